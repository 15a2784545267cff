"""A Flower app with PyTorch whose nodes are grouped: digits that are turned by one of four
angles."""

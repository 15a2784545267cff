"""A Flower app with scikit-learn whose nodes are grouped: two populations of flower growers name
the species of iris differently."""

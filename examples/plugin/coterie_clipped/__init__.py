"""An example of a package that adds an algorithm and a network to Coterie."""

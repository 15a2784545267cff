"""Tables with columns of every kind: as they were read, what clients report of them, and the numbers
that a network is given."""

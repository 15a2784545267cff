"""Federations of real clients: what runs on a node, on the server, and on the machine that starts
them."""

"""A client's machine: its data, its answers, and the site that keeps it connected."""

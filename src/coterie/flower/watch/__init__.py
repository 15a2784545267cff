"""What a federation does, for people: in the terminal, in a browser, and for Prometheus."""

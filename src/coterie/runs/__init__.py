"""A run: preparing it, its loop, its folder, tracking, and the Python interface."""

"""What those do who set a federation up: its folder, its server, and its runs."""

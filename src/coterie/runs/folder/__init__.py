"""The folder of a run: its files, rows, checkpoints and results, and their digests."""

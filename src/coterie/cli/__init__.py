"""The command line."""

from coterie.cli.main import app, main

__all__ = ["app", "main"]

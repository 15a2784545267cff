"""The command line: `coterie.cli.main:main` is the command `coterie`."""

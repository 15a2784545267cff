"""`python -m coterie.cli` is `coterie`."""

from coterie.cli.main import main

main()

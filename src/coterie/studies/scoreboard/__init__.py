"""Methods compared on a named suite of federations: ``coterie scoreboard``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What of a suite is run."""

    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Names, separated by commas, including methods of other packages. Default: all of the "
            "suite.",
        ),
    ] = ""
    federations: Annotated[
        str, typer.Option(metavar="A,B,...", help="Names, separated by commas. Default: all.")
    ] = ""
    seeds: Annotated[
        str | None,
        typer.Option(metavar="SEEDS", help="Seeds, for example 0-4. Default: those of the suite."),
    ] = None
    tune: Annotated[
        bool, typer.Option("--tune/--no-tune", help="Also choose settings on validation samples.")
    ] = True

"""The tables of papers run again, the faults of reference code included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

# The command line reads both of these, and the other modules import torch, which takes seconds.
# In the order of the page:
PAPERS = ("fedgroup", "flexcfl", "fedclust", "fedgsp", "rfedavg")


@dataclass(frozen=True, slots=True)
class LineOptions:
    """Which lines of the papers' tables to reproduce."""

    table: Annotated[
        str | None, typer.Option(help="One table or figure, for example 3, 4a or fig6.")
    ] = None
    row: Annotated[
        list[str] | None,
        typer.Option(help="A row, for example mnist-mclr, or row/column. Repeatable."),
    ] = None
    profile: Annotated[
        str, typer.Option(help="full, or quick with fewer lines, fewer rounds and one seed.")
    ] = "quick"
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, for example 0-2 or 0,3. Default: the seeds of the profile."),
    ] = None

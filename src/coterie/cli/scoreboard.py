"""The command that compares methods on a named suite of federations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import DataRoot, Debug, OpenPage, absolute, split_names
from coterie.cli.pages import show_page
from coterie.cli.signals import stop_after_round


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What of a suite is run."""

    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Names between commas, also of methods from other packages. Default: those of the "
            "suite.",
        ),
    ] = ""
    federations: Annotated[
        str, typer.Option(metavar="A,B,...", help="Names between commas. Default: all.")
    ] = ""
    seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="For example 0-4. Default: the suite's.")
    ] = None
    tune: Annotated[
        bool, typer.Option("--tune/--no-tune", help="Also choose settings on validation samples.")
    ] = True


def scoreboard_command(
    options: SuiteOptions,
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="small, full, or a .toml file of your own.")
    ] = "small",
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Show the results of another scoreboard.json beside, or `published`: those that come "
            "with Coterie.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=1, max=1024, help="How many runs go side by side."),
    ] = 2,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the results. Default: runs/scoreboard-<suite>."),
    ] = None,
    data_root: DataRoot = None,
    open_: OpenPage = False,
    debug: Debug = False,
) -> None:
    """Compare methods on the same federations, with the same budget.

    Writes ranks, scores, groups found and costs. After an interruption the same command continues.
    """
    with stop_after_round() as request:
        from coterie.studies.scoreboard.command import SuiteChoice, run_scoreboard

        choice = SuiteChoice(
            suite,
            split_names(options.methods),
            split_names(options.federations),
            options.seeds,
            options.tune,
            absolute(data_root),
        )
        folder = out or Path("runs") / f"scoreboard-{Path(suite).stem}"
        with request.while_running() as stop:
            page = run_scoreboard(choice, folder, jobs, merge or (), stop)
    show_page(page, open_)

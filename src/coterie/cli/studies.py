"""Commands that study data, layers, the tables of papers, or methods on a suite of federations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.completion import complete_paper
from coterie.cli.options import (
    Assignments,
    ConfigFile,
    DataRoot,
    Debug,
    MachineOptions,
    OpenPage,
    absolute,
    split_names,
)
from coterie.cli.pages import show_page
from coterie.cli.signals import stop_after_round
from coterie.studies.reproduce import PAPERS, LineOptions
from coterie.studies.scoreboard import SuiteOptions

PAPERS_HELP = f"{', '.join(PAPERS[:-1])} or {PAPERS[-1]}. Default: all of them."


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The columns of a file with the data."""

    client: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of clients, if DATA is a file of samples."),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of labels, if DATA is a file of samples."),
    ] = None
    features: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...",
            help="A column of inputs, or several numeric columns, if DATA is a file of samples.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The short runs that advice is based on."""

    rounds: Annotated[
        int, typer.Option(min=2, max=1000, help="The number of rounds of each short run.")
    ] = 15
    seeds: Annotated[
        int, typer.Option(min=1, max=5, help="The number of short runs of each method.")
    ] = 3
    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Methods to try: fedgroup, flexcfl, ifca, fedclust (the default), clove, "
            "cornflqs.",
        ),
    ] = ""


def advise_command(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="A configuration, or a .parquet, .csv or .npz file with samples."
        ),
    ],
    columns: ColumnOptions,
    trials: TrialOptions,
    machine: MachineOptions,
    assignments: Assignments = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the results. Default: a new one, runs/advise-1, ..."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Say whether grouping would help on your data.

    Also shows the groups, the recommended method, and the cost.
    """
    # The advice has no rounds of its own to save, so its first signal ends it.
    with stop_after_round():
        from coterie.studies.advise.command import print_advice
        from coterie.studies.advise.configuration import configuration
        from coterie.studies.advise.trials import TrialBudget

        set_by_user = assignments or ()
        config = configuration(data, set_by_user, machine.values(), asdict(columns))
        methods = split_names(trials.methods)
        budget = TrialBudget(trials.rounds, trials.seeds)
        print_advice(data, config, out, set_by_user, budget, methods)


def layers_command(
    config: ConfigFile,
    machine: MachineOptions,
    assignments: Assignments = None,
    out: Annotated[Path, typer.Option(help="The folder of the results.")] = Path("runs/layers"),
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Local epochs. Default: the value in [local].")
    ] = None,
    open_: OpenPage = False,
    debug: Debug = False,
) -> None:
    """Show which layers reveal differences between clients' data.

    Trains every client once from the same start, as Figure 1 of FedClust does.
    """
    from coterie.experiment import load_config

    validated = load_config(config, assignments or (), machine.values())
    with stop_after_round():
        from coterie.runs.compose import compose
        from coterie.studies.layers import (
            COLUMNS,
            layer_rows,
            study_headline,
            study_layers,
            write_study,
        )
        from coterie.terminal import columns_table, console, counted

        study = study_layers(compose(validated), epochs)
    trained = counted(epochs or validated.local.epochs, "local epoch")
    clients = counted(len(study.clients), "client")
    model = f"{validated.name('model')} on {validated.name('source')}"
    intro = f"{model}, {validated.name('partition')}: {clients}, {trained} each."
    page, *others = write_study(study, out, f"Layers of {model}", intro)
    table = columns_table(list(COLUMNS.values()), layer_rows(study))
    console().print(intro, table, study_headline(study), sep="\n", soft_wrap=True)
    print("numbers:", *others)
    show_page(page, open_)


def reproduce_command(
    lines: LineOptions,
    papers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAPER]...", help=PAPERS_HELP, autocompletion=complete_paper),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for the page, with the runs in runs/.")
    ] = Path("runs/reproduce"),
    data_root: DataRoot = None,
    list_: Annotated[
        bool,
        typer.Option("--list", help="Show the lines and their cost, without running anything."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Reproduce the tables of the papers.

    Writes Coterie's values next to the published ones. After an interruption the same command
    continues.
    """
    with stop_after_round() as request:
        from coterie.studies.reproduce.command import list_lines, reproduce_tables

        root = absolute(data_root)
        if list_:
            list_lines(papers or (), lines, out, root)
            return
        with request.while_running() as stop:
            reproduce_tables(papers or (), lines, out, root, stop)


def scoreboard_command(
    options: SuiteOptions,
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="small, full, or your own .toml file.")
    ] = "small",
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Also show the results of another scoreboard.json, or `published` for the "
            "results that come with Coterie.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, max=1024, help="The number of runs to execute in parallel.")
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
        from coterie.studies.scoreboard.command import chosen_suite, run_scoreboard

        chosen = chosen_suite(suite, options)
        root = absolute(data_root)
        folder = out or Path("runs") / f"scoreboard-{Path(suite).stem}"
        with request.while_running() as stop:
            page = run_scoreboard(chosen, folder, jobs, merge or (), stop, root)
    show_page(page, open_)

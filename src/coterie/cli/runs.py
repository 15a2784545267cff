"""Commands on the folder of a run: take its models away, look on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.completion import complete_run

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=complete_run)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def export(
    run: RunPath,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder, new or of an earlier export; default export in the run's folder."
        ),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Each model as ONNX, too, checked against torch.")
    ] = False,
    data_root: Annotated[
        Path | None,
        typer.Option("--data-root", help="Folder of the datasets; default: that of the run."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a run's models with a loader in plain PyTorch, who is in which group, and a model
    card."""
    from coterie.export import export_run
    from coterie.terminal import counted, found_groups, percent, say

    root = None if data_root is None else str(data_root.expanduser().absolute())
    done = export_run(run, out, onnx=onnx, root=root)
    card, summary = done.card, done.card.summary
    sizes = [group["clients"] for group in card.figures.groups if group["name"] != "no-group"]
    found = found_groups(sizes, summary["clients"])
    say(
        f"models: {counted(len(card.figures.groups), 'file')}, after {counted(summary['rounds'], 'round')}: {found}"
    )
    say(f"accuracy on the clients' own test samples: {percent(card.figures.accuracy)}")
    if done.onnx is not None:
        say(f"onnx: differs from torch by at most {done.onnx:.1e}")
    if card.needs:
        say(f"load.py imports {card.needs}, which is yours and not copied")
    say(
        f"export: {done.folder.resolve()} (README.md is the model card; python {done.folder / 'load.py'} tries it)"
    )


def watch(
    run: RunPath,
    once: Annotated[bool, typer.Option("--once", help="Show how it stands, and end.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.05, max=3600, help="Seconds between looks.")
    ] = 0.5,
    debug: Debug = False,
) -> None:
    """Watch a run in progress, from any terminal: curve, groups, newcomers, migrations; ends with
    the run."""
    from coterie.cli.watch import watch as follow

    follow(run, once=once, interval=interval)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(export)
    app.command()(watch)

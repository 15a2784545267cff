"""The command that predicts new rows by the models of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import DataRootOfRun, Debug, RunPath, Trust, absolute

SHOWN_CLIENTS = 20


def predict_command(
    run: RunPath,
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", help="New rows: a .parquet or .csv file.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The CSV file to write.")] = Path(
        "predictions.csv"
    ),
    data_root: DataRootOfRun = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Make predictions for the rows of a table with a run's models.

    Clients of the run use their own model. New clients are placed by their labels, if there are any.
    """
    from coterie.export.predictions import predict
    from coterie.terminal import counted, printable, say

    # A line a client: where its predictions come from is what a reader must know first.
    done = predict(run, data, out, root=absolute(data_root), trust=trust)
    for one in done.placed[:SHOWN_CLIENTS]:
        where = f"group {one.group}" if one.group >= 0 else "no group"
        say(f"{printable(one.client)}: {where} ({one.by})")
    if len(done.placed) > SHOWN_CLIENTS:
        say(f"... {counted(len(done.placed), 'client')} in all")
    if done.calibration:
        say(f"probabilities: {done.calibration}")
    say(f"predictions: {counted(done.rows, 'row')} in {done.path}")

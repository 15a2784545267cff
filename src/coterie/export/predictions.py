"""Predictions of a run's models for new rows of known and of new clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from coterie.data.tabular.new_rows import NewRows
from coterie.errors import ConfigError
from coterie.export.calibration import CalibrationRule, calibration_of
from coterie.export.placing import Placed, place_clients, rows_of_clients
from coterie.export.source import ExportSource
from coterie.export.table_files import read_rows_for_run, task_record
from coterie.export.table_outputs import TaskRecord, calibrated, columns_of, logits_of
from coterie.files import csv_text, refuse_unwritable_output
from coterie.runs.folder.store import RunFolder
from coterie.runs.spec import ModelOutputs

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predictions of some rows: columns as they are written, how probabilities were calibrated
    or why not, and the file."""

    columns: Mapping[str, Sequence[Any]]
    placed: Sequence[Placed]
    calibration: str
    path: Path | None = None

    @property
    def rows(self) -> int:
        return len(self.columns["row"])

    def frame(self) -> pd.DataFrame:
        """The predictions as a pandas frame."""
        # Imported here: it takes a while, and the command line makes no frame.
        import pandas as pd

        return pd.DataFrame(dict(self.columns))


def predict(
    run: Path | str | RunFolder,
    data: Path | str | PathLike[str] | pd.DataFrame,
    out: Path | None,
    *,
    root: str | None = None,
    trust: bool = False,
) -> Predicted:
    """The predictions of a run for the rows of a table, written to the CSV file ``out``, if given.

    A client of the run is predicted by the model that serves it, with all that it keeps. A new
    client with labels is placed into the group whose model has the least mean loss on them; one
    without labels by its inputs where the method can (FLUX, PACFL, k-FED), else it is served as the
    method serves a client without a group. Where clients keep something, a new one has what the
    method serves newcomers.
    """
    if out is not None:
        # Before the work, as a folder that cannot be made would lose it.
        with refuse_unwritable_output("--out", out):
            out.parent.mkdir(parents=True, exist_ok=True)
    source = ExportSource.open(run, root, trust=trust)
    if source.real:
        what = "the data of real clients, and the values that they keep, are on their nodes"
        got = "a run of real clients"
        expected = "a simulation, or predict.py of `coterie export`"
        raise ConfigError("does-not-fit", "run", what, found=got, allowed=expected)
    task = task_record(source)
    composed = source.composed
    name = composed.experiment.name("source")
    new = read_rows_for_run(data, source.record, name, composed.population.names)
    placed = place_clients(source, new, task)
    outputs = _outputs(source, new, placed)
    columns = columns_of(task, outputs)
    calibration = ""
    logits = logits_of(task, outputs)
    if logits is not None:
        found, calibration = calibration_of(source, task)
        columns |= _calibrated_columns(task, found, logits, new, placed)
    table = _table(new, placed, columns)
    if out is not None:
        lines = zip(*table.values(), strict=True)
        with refuse_unwritable_output("--out", out):
            out.write_bytes(csv_text(list(table), lines).encode("utf-8", "backslashreplace"))
    return Predicted(table, list(placed.values()), calibration, out)


def _outputs(source: ExportSource, new: NewRows, placed: Mapping[str, Placed]) -> Tensor:
    """The outputs for all rows, each by the model of its client."""
    # Client by client, since each has a model of its own; then back to the order of the file.
    found: list[Tensor] = []
    order: list[Tensor] = []
    network = ModelOutputs(source.composed.predictor)
    rows = rows_of_clients(new)
    for client, one in placed.items():
        mine = torch.from_numpy(rows[client])
        found.append(network.of(one.vector, new.x[mine]))
        order.append(mine)
    outputs = torch.cat(found)
    return outputs[torch.cat(order).argsort()]


def _calibrated_columns(
    task: TaskRecord,
    rules: Mapping[int | None, CalibrationRule],
    logits: Sequence[float],
    new: NewRows,
    placed: Mapping[str, Placed],
) -> dict[str, list[Any]]:
    """The column of calibrated probabilities, or none."""
    if not rules:
        return {}
    values = []
    for client, logit in zip(new.client.tolist(), logits, strict=True):
        # A group with too few held-out rows takes the calibration of all of them.
        rule = rules.get(placed[client].group, rules[None])
        values.append(calibrated(rule, logit))
    return {f"calibrated probability of {task['labels'][1]}": values}


def _table(
    new: NewRows, placed: Mapping[str, Placed], columns: Mapping[str, Sequence[Any]]
) -> dict[str, Sequence[Any]]:
    """All columns that are written, a value a row."""
    clients = new.client.tolist()
    table: dict[str, Sequence[Any]] = {
        "row": new.row.tolist(),
        "client": clients,
        "group": [placed[client].group for client in clients],
        "placed by": [placed[client].by for client in clients],
    }
    if len(new.times):
        table["time"] = new.times
    table |= columns
    if new.labelled.any():
        table["label"] = new.label.tolist()
    return table

"""The files by which an export makes inputs of rows of a table, and predicts them.

They are ``columns.json`` and ``inputs.py``, and ``predict.json``, ``outputs.py`` and ``predict.py``,
which does without Coterie what `coterie predict` does.
"""

from __future__ import annotations

import inspect
import json
import runpy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.data import Population
from coterie.data.tabular.inputs import TableInputs
from coterie.data.tabular.raw import Column, RawTable, Window
from coterie.errors import ConfigError
from coterie.export import placing, table_inputs, table_outputs
from coterie.export.calibration import calibration_of
from coterie.export.new_rows import NEW_CLIENT
from coterie.export.source import ExportSource
from coterie.files import FORMULA
from coterie.rules.newcomers import ONE_MODEL, WITHOUT_LABELS
from coterie.runs.compose import Composed
from coterie.tasks import Binary, Classification, Multilabel, Regression

COLUMNS = "columns.json"
MODULE = "inputs.py"
TRIED_ROWS = 32
TOLERANCE = 1e-6  # of a feature: both compute in float64 and round once

RECORD = "predict.json"
OUTPUTS = "outputs.py"
PROGRAM = "predict.py"


@dataclass(frozen=True, slots=True)
class TableRoles:
    """What columns of a run's own table are for.

    Args:
        features: the columns of inputs, or one column of lists; ``None`` where `columns.json` says.
    """

    labels: tuple[str, ...]
    client: str
    features: tuple[str, ...] | str | None = None
    window: Window | None = None

    @classmethod
    def of(cls, composed: Composed) -> TableRoles | None:
        """Those of a run; ``None`` for a run whose data are no table."""
        table = composed.population.table
        if table is not None:
            origin = table.raw.origin
            return cls(_names(origin.label), origin.client, None, origin.window)
        if composed.experiment.name("source") != "file":
            return None
        options = composed.experiment.options("source")
        features = options["features"]
        if not isinstance(features, str):
            features = tuple(features)
        return cls(_names(options["label"]), options["client"], features)


def _names(columns: str | list[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        return (columns,)
    return tuple(columns)


def task_record(composed: Composed, labels: tuple[str, ...]) -> dict[str, Any]:
    """The task of a run as `coterie.export.table_outputs` has it."""
    task = composed.spec.task
    names = list(composed.label_names)
    if isinstance(task, Binary | Classification):
        return {"kind": task.name, "labels": names}
    if isinstance(task, Regression):
        record = {"kind": task.name, "loss": task.kind, "delta": task.delta, "q": task.q}
        return {**record, "targets": _targets(labels, task.targets)}
    if isinstance(task, Multilabel):
        return {"kind": task.name, "targets": _targets(labels, task.labels)}
    raise ConfigError(
        f"task.kind: no predictions for rows of a table, got {task.name!r}; expected "
        "classification, binary, multilabel or regression"
    )


def has_record(composed: Composed) -> bool:
    """Whether rows of a table can be predicted by the run's models."""
    known = Binary | Classification | Regression | Multilabel
    return isinstance(composed.spec.task, known) and TableRoles.of(composed) is not None


def _targets(labels: tuple[str, ...], count: int) -> list[str]:
    """The names of the targets: their columns, or the numbers of a column of lists."""
    # A single column may hold lists, whose values have no names.
    if len(labels) == count:
        return list(labels)
    return [str(at) for at in range(count)]


# --- columns.json, inputs.py ----------------------------------------------------------------------


def write_columns(folder: Path, population: Population) -> None:
    """Write the files of a run whose inputs come from columns of a table; none for another run."""
    table = population.table
    if table is None:
        return
    record = json.dumps(table.encoder.record(), indent=1)
    (folder / COLUMNS).write_text(record + "\n", encoding="utf-8")
    (folder / MODULE).write_text(inspect.getsource(table_inputs), encoding="utf-8")
    # A reader of the export cannot compare it with the run, so it is compared now.
    rows = np.arange(min(TRIED_ROWS, len(table.raw.values)))
    # Run and not imported, which would leave bytecode in the export.
    make_inputs = runpy.run_path(str(folder / MODULE))["inputs"]
    made = make_inputs([row_of(table, row) for row in rows.tolist()])
    # The first rows of the table, whatever split they are in: the rules are the same for all.
    tried = RawTable(table.raw.columns, table.raw.values[rows], table.raw.encode)
    gap = (made - torch.from_numpy(table.encoder.encode(tried))).abs().max().item()
    if not gap <= TOLERANCE:
        raise ConfigError(
            f"{MODULE}: makes other inputs than the run, got a difference of {gap:.1e}; "
            f"expected at most {TOLERANCE:g}"
        )


def row_of(table: TableInputs, row: int) -> dict[str, Any]:
    """A row of the table as the export takes it: column -> value, ``None`` where it is missing."""
    values = table.raw.values[row].tolist()
    return {
        column.name: _value(column, value)
        for column, value in zip(table.raw.columns, values, strict=True)
    }


def _value(column: Column, value: float) -> Any:
    if np.isnan(value):
        return None
    if column.kind == "category":
        return column.categories[int(value)]
    if column.kind == "date":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=value)
    return value


# --- predict.json, outputs.py, predict.py ---------------------------------------------------------


def write_predictor(folder: Path, source: ExportSource) -> None:
    """Write the files of a run on a table."""
    record = json.dumps(_record(source), indent=1)
    (folder / RECORD).write_text(record + "\n", encoding="utf-8")
    (folder / OUTPUTS).write_text(inspect.getsource(table_outputs), encoding="utf-8")
    # Nothing in it is filled in: all that differs between runs is in the record.
    program = resources.files("coterie.export").joinpath("templates", f"{PROGRAM}.j2")
    (folder / PROGRAM).write_text(program.read_text(encoding="utf-8"), encoding="utf-8")


def _record(source: ExportSource) -> dict[str, Any]:
    """What `predict.py` must know."""
    composed = source.composed
    roles = TableRoles.of(composed)
    assert roles is not None
    # The same record that `coterie predict` computes with.
    task = task_record(composed, roles.labels)
    rules: dict[str, Any] = {}
    calibration = ""
    two_classes = task["kind"] == "binary" or len(task.get("labels", ())) == 2
    if two_classes:
        found, calibration = calibration_of(source, task)
        # JSON has no key that is nothing.
        rules = {"all" if group is None else str(group): rule for group, rule in found.items()}
    return {
        "task": task,
        "labels": list(roles.labels),
        "client": roles.client,
        "features": roles.features,
        "window": None if roles.window is None else roles.window.model_dump(),
        "groups": source.checkpoint.groups.k,
        "calibration": calibration,
        "calibrators": rules,
        "new_client": NEW_CLIENT,
        "placed_by": {
            "known": placing.KNOWN,
            "no labels": WITHOUT_LABELS,
            "one model": ONE_MODEL,
        },
        "formula": list(FORMULA),
    }

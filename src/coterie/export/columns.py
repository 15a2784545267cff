"""What makes inputs of a table in an export: ``columns.json`` and ``inputs.py``."""

from __future__ import annotations

import importlib.util
import inspect
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from coterie.data import Population
from coterie.data.tabular.inputs import TableInputs
from coterie.data.tabular.raw import Column, RawTable
from coterie.errors import ConfigError
from coterie.export import table_inputs

COLUMNS = "columns.json"
MODULE = "inputs.py"
TRIED_ROWS = 32
TOLERANCE = 1e-6  # of a feature: both compute in float64 and round once


def write_columns(folder: Path, population: Population) -> None:
    """Write the files of a run whose inputs come from columns of a table; none for another run.

    Args:
        folder: of the export.
        population: who holds what.

    Raises:
        ConfigError: if what was written makes other inputs than the run.
    """
    table = population.table
    if table is None:
        return
    record = json.dumps(table.encoder.record(), indent=1)
    (folder / COLUMNS).write_text(record + "\n", encoding="utf-8")
    (folder / MODULE).write_text(inspect.getsource(table_inputs), encoding="utf-8")
    # A reader of the export cannot compare it with the run, so it is compared now.
    rows = np.arange(min(TRIED_ROWS, len(table.raw.values)))
    made = _load(folder / MODULE).inputs([row_of(table, row) for row in rows.tolist()])
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


def _load(path: Path) -> ModuleType:
    """The module that was written, and not this package's own."""
    spec = importlib.util.spec_from_file_location("coterie_export_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # An import would leave bytecode in the export. The file was written by this package just now.
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module

"""New rows of a table of the user, as inputs of a run's models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.tabular.columns import Columns, arrow_columns, open_columns
from coterie.data.tabular.inputs import TableInputs, inputs_of
from coterie.data.tabular.raw import Column, Window
from coterie.data.tabular.raw_columns import read_column, read_moments, read_raw
from coterie.data.tabular.roles import finite, one_per_row
from coterie.errors import DataError
from coterie.runs.compose import Composed
from coterie.terminal import warn

if TYPE_CHECKING:
    import pandas as pd

SHOWN_CATEGORIES = 5  # of a column, in a warning
NEW_CLIENT = "new"  # the client of rows that name none


@dataclass(frozen=True, eq=False, slots=True)
class NewRows:
    """Inputs, and what the file says of them.

    Args:
        x: ``[n, ...]``, the inputs.
        row: int64 ``[n]``, the row of each in the file, from 0; of a series the last one.
        client: ``[n]``, the name of the client of each.
        label: ``[n]``, the labels as text, ``""`` where there is none.
        target: what the task learns, ``[n]`` or ``[n, t]``; has no meaning without a label.
    """

    x: Tensor
    row: IntArray
    client: NDArray[np.str_]
    label: NDArray[np.str_]
    target: Tensor

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which have a label, bool ``[n]``."""
        return self.label != ""


def read_new_rows(data: str | PathLike[str] | pd.DataFrame, composed: Composed) -> NewRows:
    """Read a table with the columns of the run's own data.

    Labels and clients may be missing, a column of inputs as well: then it is missing in each row.
    """
    columns = _columns_of(data)
    path = columns.path
    table = composed.population.table
    if table is not None:
        return _rows_of_table(columns, table, composed)
    if composed.experiment.name("source") != "file" or columns.arrow is None:
        raise DataError(
            f"data.source: predictions are for tables, got {composed.experiment.name('source')!r} and "
            f"{path.name}; expected a run on source 'file' or another table, and a .parquet or "
            ".csv file"
        )
    options = composed.experiment.options("source")
    features = options["features"]
    for name in [features] if isinstance(features, str) else features:
        columns.check(name, "features")
    x = torch.from_numpy(finite(columns.features(features), path))
    x = x.reshape(len(x), *composed.population.shape)
    return _with_labels(
        columns, x, np.arange(len(x)), options["client"], options["label"], composed
    )


def _columns_of(data: str | PathLike[str] | pd.DataFrame) -> Columns:
    if isinstance(data, str | PathLike):
        path = Path(data)
        if not path.is_file():
            raise DataError(f"--data: no such file, got {path}; expected a .parquet or .csv file")
        return open_columns(path)
    import pyarrow as pa

    return arrow_columns(pa.Table.from_pandas(data, preserve_index=False), Path("data"))


def _rows_of_table(columns: Columns, table: TableInputs, composed: Composed) -> NewRows:
    raw = table.raw
    origin = raw.origin
    names = [column.name for column in raw.columns]
    labels = [origin.label] if isinstance(origin.label, str) else origin.label
    columns = _with_missing_columns(columns, names, [origin.client, *labels])
    _warn_of_new_categories(columns, raw.columns)
    new = read_raw(columns.arrow, names, raw.encode, str(columns.path), raw)
    rows = np.arange(len(new.values))
    if origin.window is None:
        x = inputs_of(new, rows, table.encoder)
        return _with_labels(columns, x, rows, origin.client, origin.label, composed)
    starts, order, row = _newest_windows(columns, origin.client, origin.window)
    series = type(new)(new.columns, new.values[order], new.encode, raw.origin)
    x = inputs_of(series, starts, table.encoder)
    client = _clients(columns, origin.client)[row]
    # What is forecast lies after the last row of each input, so no label is known.
    nothing = np.full(len(row), "", dtype=np.str_)
    return NewRows(x, row, client, nothing, torch.zeros(len(row)))


def _with_missing_columns(columns: Columns, names: Sequence[str], others: Sequence[str]) -> Columns:
    """The columns, and empty ones for those inputs that the file does not have."""
    import pyarrow as pa

    # A column that is missing is missing in each row, which the encoder can fill in; a file without
    # any of them is another file.
    absent = [name for name in names if name not in columns.names]
    unused = [name for name in columns.names if name not in {*names, *others}]
    if len(absent) == len(names):
        raise DataError(
            f"{columns.path}: no column of the run's inputs, got {', '.join(columns.names)}; "
            f"expected {', '.join(names)}"
        )
    table = columns.arrow
    if not len(table):
        raise DataError(f"{columns.path}: no rows; expected at least one")
    if absent:
        warn(_absence(columns, absent, unused))
    for name in absent:
        table = table.append_column(name, pa.nulls(len(table)))
    return arrow_columns(table, columns.path)


def _absence(columns: Columns, absent: Sequence[str], unused: Sequence[str]) -> str:
    """The warning of columns that a file does not have."""
    words = f"no column {absent[0]}, so it is missing in each row"
    if len(absent) > 1:
        words = f"no columns {', '.join(absent)}, so they are missing in each row"
    # A column with another name is the likeliest reason.
    if unused:
        words += f"; not used: {', '.join(unused)}"
    return f"{columns.path.name}: {words}"


def _warn_of_new_categories(columns: Columns, known: Sequence[Column]) -> None:
    """Warn where a column has categories that no training row had: another spelling of the same
    would be taken for something unknown, without a word."""
    for column in known:
        if column.kind != "category":
            continue
        found, codes = read_column(
            columns.arrow[column.name], column.name, str(columns.path), "category"
        )
        new = [
            place for place, name in enumerate(found.categories) if name not in column.categories
        ]
        rows = int(np.isin(codes, new).sum())
        if not rows:
            continue
        names = ", ".join(found.categories[place] for place in new[:SHOWN_CATEGORIES])
        expected = ", ".join(column.categories[:SHOWN_CATEGORIES])
        warn(
            f"{columns.path.name}: column {column.name}: {rows} of {len(codes)} values are in no "
            f"training row, got {names}; known: {expected}"
        )


def _newest_windows(
    columns: Columns, client: str, window: Window
) -> tuple[IntArray, IntArray, IntArray]:
    """The inputs of each series that end in its newest row, and every stride before it.

    Returns:
        int64 ``[n]`` the first row of each input in the order of the series; int64 ``[R]`` that
        order; int64 ``[n]`` the last row of each input in the file.
    """
    owners = _clients(columns, client)
    columns.check(window.time, "window.time")
    moments = read_moments(columns.arrow[window.time], window.time, str(columns.path))
    order = np.lexsort((moments, owners))
    _, counts = np.unique(owners, return_counts=True)
    # Backwards from the newest row, which is the one that a forecast is wanted for.
    found = []
    begin = 0
    for count in counts.tolist():
        newest = np.arange(begin + count - window.past, begin - 1, -window.stride)
        found.append(newest[::-1])
        begin += count
    starts = np.concatenate(found).astype(np.int64)
    if not len(starts):
        raise DataError(
            f"{columns.path}: no series is long enough, got {counts.max()} rows; expected at "
            f"least {window.past} (data.window.past)"
        )
    return starts, order, order[starts + window.past - 1]


def _clients(columns: Columns, client: str) -> NDArray[np.str_]:
    """The client of each row; one new client where the file names none."""
    if client in columns.names:
        return one_per_row(columns, client).astype(np.str_)
    return np.full(len(columns.arrow), NEW_CLIENT)


def _with_labels(
    columns: Columns,
    x: Tensor,
    rows: IntArray,
    client: str,
    label: str | list[str],
    composed: Composed,
) -> NewRows:
    owners = _clients(columns, client)
    labels = [label] if isinstance(label, str) else label
    if any(name not in columns.names for name in labels):
        nothing = np.full(len(rows), "", dtype=np.str_)
        return NewRows(x, rows, owners, nothing, torch.zeros(len(rows)))
    path = str(columns.path)
    if not composed.spec.task.class_labels:
        found = [read_column(columns.arrow[name], name, path, "number")[1] for name in labels]
        numbers = np.stack(found, axis=1)
        return NewRows(x, rows, owners, _texts(numbers), torch.from_numpy(numbers).float())
    label = labels[0]
    column, codes = read_column(columns.arrow[label], label, path, "category")
    known = list(composed.label_names)
    unknown = [name for name in column.categories if name not in known]
    if unknown:
        raise DataError(
            f"{path}: column {label}, got the label {unknown[0]!r}; expected one of "
            f"{', '.join(known)}, or none"
        )
    names = np.array([*column.categories, ""], dtype=np.str_)
    places = np.where(np.isnan(codes), len(column.categories), codes).astype(np.int64)
    target = np.array([*(known.index(name) for name in column.categories), 0])[places]
    return NewRows(x, rows, owners, names[places], torch.from_numpy(target))


def _texts(numbers: FloatArray) -> NDArray[Any]:
    """The labels of each row as text, nothing for a row that lacks one of them."""
    texts = []
    for row in numbers.tolist():
        complete = not any(math.isnan(one) for one in row)
        texts.append(" ".join(f"{one:g}" for one in row) if complete else "")
    return np.array(texts, dtype=np.str_)

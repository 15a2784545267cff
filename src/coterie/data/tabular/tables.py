"""Samples of a table whose columns are of every kind: a row each, or rows of a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.samples import Samples, Targets
from coterie.data.tabular.arrow import missing_column
from coterie.data.tabular.columns import Columns, arrow_columns
from coterie.data.tabular.raw import Encode, Origin, RawTable, Window
from coterie.data.tabular.raw_columns import (
    is_plain_numbers,
    numbers_as_text,
    read_column,
    read_moments,
    read_raw,
)
from coterie.data.tabular.roles import Roles, one_per_row, read_targets, train_rows_first
from coterie.errors import DataError
from coterie.terminal import counted, warn

ALL = "*"  # as features: all columns without another meaning

# Two steps of a series differ by less than this share, where clocks are exact.
_STEP_TOLERANCE = 0.01


def is_mixed(columns: Columns, features: str | list[str]) -> bool:
    """Whether features are columns of a table that are not all complete numbers."""
    if columns.arrow is None:
        return False
    if features == ALL:
        return ALL not in columns.names
    if isinstance(features, str):
        return False
    present = [name for name in features if name in columns.names]
    return not all(is_plain_numbers(columns.arrow[name]) for name in present)


def table_samples(
    columns: Columns, roles: Roles, encode: Encode, window: Window | None, targets: Targets
) -> Samples:
    """The samples of a table; their inputs are made when it is known who holds them."""
    if columns.arrow is None:
        raise DataError(
            f"data.path: [data.encode] and [data.window] are for tables, got "
            f"{columns.path.name}; expected a .parquet or .csv file"
        )
    # A series keeps rows without a label: they are the past of others, or a gap.
    if window is None:
        columns = _with_values(columns, [*roles.labels, *_client_of(columns, roles)])
    names = _feature_names(columns, roles, encode, window)
    table = read_raw(columns.arrow, names, encode, str(columns.path))
    for line in numbers_as_text(table):
        warn(line)
    table = replace(table, origin=Origin(roles.label, roles.client, window))
    if window is not None:
        return series_samples(columns, roles, table, window, targets)
    y, classes = read_targets(columns, roles.label, targets)
    order, train_rows = train_rows_first(columns, roles.split, len(y))
    # `Samples` has training rows first; the table itself keeps the order of the file.
    if order is None:
        order = np.arange(len(y))
    return Samples(
        torch.from_numpy(order),
        torch.from_numpy(y[order]),
        len(classes),
        train_rows,
        roles.owners(columns, order),
        classes,
        table=table,
    )


def _client_of(columns: Columns, roles: Roles) -> list[str]:
    """The column of clients, where there is one."""
    if roles.client in columns.names:
        return [roles.client]
    return []


def _with_values(columns: Columns, names: Sequence[str]) -> Columns:
    """The rows that have a label and a client; a warning says how many have none."""
    import pyarrow.compute as pc

    table = columns.arrow
    for name in names:
        columns.check(name, "label")
        known = pc.is_valid(table[name])
        kept = table.filter(known)
        if len(kept) < len(table):
            lost = counted(len(table) - len(kept), "row")
            warn(f"{columns.path.name}: {lost} without {name}, left out")
        table = kept
    if not len(table):
        raise DataError(f"{columns.path}: no rows with {', '.join(names)}; expected at least one")
    return arrow_columns(table, columns.path)


def _feature_names(
    columns: Columns, roles: Roles, encode: Encode, window: Window | None
) -> list[str]:
    """The columns that inputs are made of."""
    for name in (*encode.leave_out, *encode.categories):
        columns.check(name, "encode")
    used = {roles.client, roles.split, *encode.leave_out}
    labels = set(roles.labels)
    if window is not None:
        used.add(columns.check(window.time, "window.time"))
        # What is predicted is known of the past.
        labels = set()
    used |= labels
    features = roles.features
    if features == ALL:
        return [name for name in columns.names if name not in used]
    names = [features] if isinstance(features, str) else features
    for name in names:
        if name not in columns.names:
            raise missing_column(columns.path, name, [*columns.names, ALL], "features")
        if names.count(name) > 1:
            raise DataError(f"data.features: got {name!r} twice; expected each column once")
        if name in labels:
            raise DataError(
                f"data.features: got {name!r}, which is the label; expected other columns"
            )
    return [name for name in names if name not in encode.leave_out]


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the inputs of a client's series begin: int64, the first row of each."""

    train: IntArray
    test: IntArray


def split_windows(
    moments: FloatArray, target: FloatArray, window: Window, first: int = 0
) -> Windows:
    """Where the inputs of one series begin, split by time.

    Test inputs and their targets are in the last rows, ``window.test_fraction`` of all; training
    inputs and their targets are in the rows before. So no row belongs to both.

    Args:
        target: float64 ``[T]``, NaN where it is unknown.
        first: the number of the first row.
    """
    rows = len(moments)
    reach = window.past + window.horizon - 1  # from the first row of an input to its target
    # Rounded down: with few rows rather one more to test on than none.
    cut = int((1 - window.test_fraction) * rows)
    starts = np.arange(0, max(0, cut - reach), window.stride)
    test = np.arange(cut, max(cut, rows - reach), window.stride)
    usable = _usable(moments, target, window.past, reach)
    return Windows(first + starts[usable[starts]], first + test[usable[test]])


def _usable(moments: FloatArray, target: FloatArray, past: int, reach: int) -> NDArray[np.bool_]:
    """Which rows begin an input: without a gap up to its target, and with known targets.

    The last known target before the end of the input has to be there as well: it is what a
    prediction is compared with.
    """
    rows = len(moments)
    usable = np.zeros(rows, bool)
    if rows <= reach:
        return usable
    steps = np.diff(moments)
    usual = np.median(steps)
    # The number of gaps before each row: equal at both ends where there is none in between.
    gaps = np.concatenate([[0], np.cumsum(np.abs(steps - usual) > _STEP_TOLERANCE * usual)])
    known = ~np.isnan(target)
    seen = np.concatenate([[0], np.cumsum(known)])
    starts = np.arange(rows - reach)
    unbroken = gaps[starts + reach] == gaps[starts]
    has_past = seen[starts + past] > seen[starts]
    usable[starts] = unbroken & has_past & known[starts + reach]
    return usable


def series_samples(
    columns: Columns, roles: Roles, table: RawTable, window: Window, targets: Targets
) -> Samples:
    """The samples of the series of a table, one series a client."""
    if targets == "classes" or not isinstance(roles.label, str):
        raise DataError(
            f"data.window: predicts one column of numbers, got the label {roles.label!r}; "
            "expected one label and [task] kind = 'regression'"
        )
    path = str(columns.path)
    owners = one_per_row(columns, columns.check(roles.client, "client"))
    moments = read_moments(columns.arrow[window.time], window.time, path)
    _, target = read_column(columns.arrow[roles.label], roles.label, path, "number")
    if np.isnan(moments).any():
        raise DataError(f"{path}: column {window.time}, got a row without a time; expected none")
    names, owner = np.unique(owners, return_inverse=True)
    order = np.lexsort((moments, owner))
    owner = owner[order]
    moments = moments[order]
    target = target[order]
    found = []
    ends = np.cumsum(np.bincount(owner))
    for client, (begin, end) in enumerate(zip(np.append(0, ends[:-1]), ends, strict=True)):
        here = slice(begin, end)
        _refuse_same_time(moments[here], str(names[client]), window.time, path)
        found.append(split_windows(moments[here], target[here], window, int(begin)))
    train = np.concatenate([one.train for one in found])
    starts = np.concatenate([train, *(one.test for one in found)])
    if not len(train):
        raise DataError(
            f"data.window: no series is long enough, got past {window.past} and horizon "
            f"{window.horizon} for {max(np.bincount(owner))} rows at most; expected less"
        )
    reach = window.past + window.horizon - 1
    clients = names[owner[starts]]
    return Samples(
        torch.from_numpy(starts),
        torch.from_numpy(target[starts + reach].astype(np.float32)),
        0,
        len(train),
        dict.fromkeys({roles.client, "client"}, clients),
        table=replace(table, values=table.values[order]),
        naive=persistence(target, starts, window),
    )


def _refuse_same_time(moments: FloatArray, client: str, column: str, path: str) -> None:
    if (np.diff(moments) == 0).any():
        raise DataError(
            f"{path}: column {column}, got two rows of one time for client {client}; expected one"
        )


def persistence(target: FloatArray, starts: IntArray, window: Window) -> dict[str, torch.Tensor]:
    """What the past itself predicts for each input; rows of a client stand together.

    ``persistence`` is the last known target of the input. ``seasonal persistence`` is the target
    one season before the predicted one, or as few seasons as lie in the past.
    """
    # The last known target before each row, which for an input is a row of its own: inputs
    # without any are left out.
    rows = np.where(np.isnan(target), 0, np.arange(len(target)))
    filled = target[np.maximum.accumulate(rows)]
    last = starts + window.past - 1
    found = {"persistence": filled[last]}
    if window.season:
        seasons = -(-window.horizon // window.season)  # rounded up
        back = seasons * window.season - window.horizon
        if back >= window.past:
            raise DataError(
                f"data.window.season: got {window.season}, which begins before an input of "
                f"{window.past} rows; expected a season within the past"
            )
        # An unknown value of that moment is that of the moment before it.
        found["seasonal persistence"] = filled[last - back]
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in found.items()}

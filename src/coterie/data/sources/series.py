"""Samples of series: inputs are consecutive rows of a client, the target is a later one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.samples import Samples, Targets
from coterie.data.sources.columns import Columns
from coterie.data.sources.labels import one_per_row
from coterie.data.sources.raw_columns import read_column, read_moments
from coterie.data.sources.roles import Roles
from coterie.data.tabular.options import Window
from coterie.data.tabular.raw import RawTable
from coterie.errors import DataError

# Two steps of a series differ by less than this share, where clocks are exact.
_STEP_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Windows:
    """The inputs of a client's series, by the numbers of their rows.

    Args:
        train: int64 ``[n]``, the first row of each training input.
        test: int64 ``[m]``, the first row of each test input.
    """

    train: IntArray
    test: IntArray


def split_windows(
    moments: FloatArray, target: FloatArray, window: Window, first: int = 0
) -> Windows:
    """Where the inputs of one series begin, split by time.

    Test inputs and their targets are in the last rows, ``window.test_fraction`` of all; training
    inputs and their targets are in the rows before. So no row belongs to both.

    Args:
        moments: float64 ``[T]``, ascending.
        target: float64 ``[T]``, NaN where it is unknown.
        window: past, horizon, stride and the share for testing.
        first: the number of the first row.

    Example:
        >>> days = np.arange(10.0)
        >>> found = split_windows(days, days, Window(past=2, test_fraction=0.4))
        >>> found.train.tolist(), found.test.tolist()
        ([0, 1, 2, 3], [6, 7])
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
    """The samples of the series of a table, one series a client.

    Args:
        columns: of a parquet or CSV file, rows in any order.
        roles: what they are for.
        table: the columns that inputs are made of, the target among them.
        window: of an input.
        targets: how labels are read; only numbers can be.

    Raises:
        DataError: for labels that are no numbers, and for series that are too short.
    """
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
    """What the past itself predicts for each input.

    ``persistence`` is the last known target of the input. ``seasonal persistence`` is the target
    one season before the predicted one, or as few seasons as lie in the past.

    Args:
        target: float64 ``[T]``, NaN where it is unknown; rows of a client stand together.
        starts: int64 ``[n]``, the first row of each input.
        window: past, horizon and season.

    Returns:
        name -> float32 ``[n]``.
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

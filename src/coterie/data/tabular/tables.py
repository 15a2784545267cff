"""Samples of a table whose columns are of every kind: a row each, or rows of a series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.rows.arrays import LARGEST_INPUT
from coterie.data.rows.errors import column_error
from coterie.data.rows.kinds import ARRAY, BOOLEAN, CATEGORY, IDENTIFIER, NUMBER, TEXT, TIME
from coterie.data.rows.table import Rows, missing_values
from coterie.data.rows.texts import is_plain
from coterie.data.samples import Samples, Targets
from coterie.data.tabular.encoder import OTHER
from coterie.data.tabular.new_rows import NO_VALUE, STEP_TOLERANCE
from coterie.data.tabular.notes import notes_on_values, numbers_of_rows, row_numbers, why_no_input
from coterie.data.tabular.raw import Column, ColumnKind, Encode, Origin, RawTable, Window
from coterie.data.tabular.roles import Roles, complete, identifiers, read_targets, train_rows_first
from coterie.errors import DataError
from coterie.terminal import warn

ALL = "*"  # as features: all columns without another meaning


def is_mixed(rows: Rows, features: str | list[str], kinds: Mapping[str, str]) -> bool:
    """Whether features are columns of a table that are not all complete numbers."""
    if features == ALL:
        return ALL not in rows.names
    if isinstance(features, str):
        return kinds.get(features) == CATEGORY
    present = [name for name in features if name in rows.names]
    return not all(_is_complete_number(rows, name, kinds.get(name)) for name in present)


def _is_complete_number(rows: Rows, name: str, kind: str | None) -> bool:
    """Whether a column has a number in each row, also as decimals, or with decimal commas."""
    if kind in (NUMBER, BOOLEAN) and not pd.api.types.is_numeric_dtype(rows.frame[name].dtype):
        return not np.isnan(rows.values(name, kind)).any()
    return kind in (NUMBER, BOOLEAN, None) and is_plain(rows.frame[name])


def table_samples(
    rows: Rows,
    kinds: Mapping[str, str],
    roles: Roles,
    encode: Encode,
    window: Window | None,
    targets: Targets,
) -> Samples:
    """The samples of a table; their inputs are made when it is known who holds them.

    Args:
        kinds: the kinds of all columns.
    """
    # A series keeps rows without a label: they are the past of others, or a gap.
    if window is None:
        rows = rows.kept(complete(rows, kinds, roles.required(rows)))
    names = _feature_names(rows, roles, encode, window)
    kinds = dict(kinds) | dict.fromkeys(encode.categories, CATEGORY)
    codes = (*encode.categories, *roles.labels, roles.split)
    used = {name: kinds[name] for name in rows.names if name in {*names, *roles.kinds(targets)}}
    lines, why = notes_on_values(rows, used, codes)
    lines = [*rows.lines, *lines]
    if window is None:
        lines += _notes_on_row_numbers(rows, kinds, roles, names)
    for line in lines:
        warn(line)
    why = {name: reason for name, reason in why.items() if name in names}
    for name in names:
        if kinds[name] in (IDENTIFIER, TEXT):
            why[name] = why_no_input(rows, name, kinds[name])
            warn(f"column {name}: {why[name]}; left out")
    table = read_columns(rows, {name: kinds[name] for name in names}, encode)
    said = {name: kind for name, kind in kinds.items() if kind != ARRAY}
    origin = Origin(
        roles.label, roles.client, window, kinds=said, missing=rows.missing, why_text=why
    )
    table = replace(table, origin=origin)
    if window is not None:
        return series_samples(rows, kinds, roles, table, window, targets)
    y, classes = read_targets(rows, roles.label, targets)
    # `Samples` has training rows first; the table itself keeps the order of the file.
    order, train_rows = train_rows_first(rows, roles.split)
    owners = {name: values[order] for name, values in roles.owners(rows).items()}
    return Samples(
        torch.from_numpy(order),
        torch.from_numpy(y[order]),
        len(classes),
        train_rows,
        owners,
        classes,
        table=table,
    )


def _notes_on_row_numbers(
    rows: Rows, kinds: Mapping[str, str], roles: Roles, names: Sequence[str]
) -> list[str]:
    """Lines on columns that count the rows, or have another whole number in each."""
    counting = row_numbers(rows, names)
    # Who lists the columns knows them.
    if counting or roles.features != ALL:
        return counting
    return numbers_of_rows(rows, [name for name in names if kinds[name] == NUMBER])


def read_columns(rows: Rows, kinds: Mapping[str, str], encode: Encode) -> RawTable:
    """Columns as numbers with missing values, each by its kind."""
    if not kinds:
        what = "no columns remain for features"
        raise DataError("missing", rows.where, what)
    used = {name: kind for name, kind in kinds.items() if kind not in (IDENTIFIER, TEXT)}
    values = np.empty((len(rows), len(used)))
    columns = []
    for place, (name, kind) in enumerate(used.items()):
        if kind == ARRAY:
            expected = "numbers, text, booleans or times, or data.encode.leave_out"
            raise rows.refused("wrong-type", name, rows.type_of(name), expected)
        if kind == CATEGORY:
            codes, names = rows.factor(name)
            reserved = {NO_VALUE, OTHER} & set(names)
            if reserved:
                expected = f"text other than the names of features, {NO_VALUE} and {OTHER}"
                raise rows.refused("in-conflict", name, repr(min(reserved)), expected)
            values[:, place] = np.where(codes < 0, np.nan, codes)
            columns.append(Column(name, "category", names))
        else:
            values[:, place] = rows.values(name, kind)
            columns.append(Column(name, cast(ColumnKind, kind)))
    return RawTable(tuple(columns), values, encode)


def _feature_names(rows: Rows, roles: Roles, encode: Encode, window: Window | None) -> list[str]:
    """The columns that inputs are made of."""
    for name in (*encode.leave_out, *encode.categories):
        rows.column(name, "encode")
    used = {roles.client, roles.split, *encode.leave_out}
    if window is None:
        used |= set(roles.labels)
    else:
        # What is predicted is known of the past.
        rows.column(window.time, "window.time")
        used.add(window.time)
    if roles.features == ALL:
        return [name for name in rows.names if name not in used]
    names = roles.named_features(rows, forecast=window is not None)
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
    gaps = np.concatenate([[0], np.cumsum(np.abs(steps - usual) > STEP_TOLERANCE * usual)])
    known = ~np.isnan(target)
    seen = np.concatenate([[0], np.cumsum(known)])
    starts = np.arange(rows - reach)
    unbroken = gaps[starts + reach] == gaps[starts]
    has_past = seen[starts + past] > seen[starts]
    usable[starts] = unbroken & has_past & known[starts + reach]
    return usable


def series_samples(
    rows: Rows,
    kinds: Mapping[str, str],
    roles: Roles,
    table: RawTable,
    window: Window,
    targets: Targets,
) -> Samples:
    """The samples of the series of a table, one series a client."""
    if targets == "classes" or not isinstance(roles.label, str):
        got = f"the label {roles.label!r}"
        expected = "one label and [task] kind = 'regression'"
        raise DataError("does-not-fit", "data.window", found=got, allowed=expected)
    path = rows.where
    rows.column(roles.client, "client")
    lacking = int((~rows.present(roles.client)).sum())
    if lacking:
        raise missing_values(rows, roles.client, lacking)
    owners = identifiers(rows, roles.client)
    # As text, the tenth of a month would come before the second. ISO times are read as times.
    kind = NUMBER if kinds[window.time] == NUMBER else TIME
    moments = rows.values(window.time, kind)
    target = rows.numbers(roles.label, LARGEST_INPUT)
    if np.isnan(moments).any():
        raise missing_values(rows, window.time, np.isnan(moments).sum())
    names, owner = np.unique(owners, return_inverse=True)
    order = np.lexsort((moments, owner))
    owner = owner[order]
    moments = moments[order]
    target = target[order]
    train, starts = _starts(moments, target, owner, names, window, path)
    if not len(train):
        what = "no series is long enough"
        longest = max(np.bincount(owner))
        got = f"at most {longest} rows, past {window.past}, horizon {window.horizon}"
        raise DataError("out-of-range", "data.window", what, found=got, allowed="smaller values")
    reach = window.past + window.horizon - 1
    clients = names[owner[starts]]
    steps = np.diff(moments)[np.diff(owner) == 0]
    step = float(np.median(steps)) if len(steps) else 0.0
    origin = replace(table.origin, moments=kind, step=step)
    return Samples(
        torch.from_numpy(starts),
        torch.from_numpy(target[starts + reach].astype(np.float32)),
        0,
        len(train),
        dict.fromkeys({roles.client, "client"}, clients),
        table=replace(table, values=table.values[order], origin=origin),
        naive=persistence(target, starts, window),
    )


def _starts(
    moments: FloatArray,
    target: FloatArray,
    owner: IntArray,
    names: NDArray[Any],
    window: Window,
    path: str,
) -> tuple[IntArray, IntArray]:
    """The first rows of the windows to train on, and of all windows: those to test on come last."""
    found = []
    ends = np.cumsum(np.bincount(owner))
    for client, (begin, end) in enumerate(zip(np.append(0, ends[:-1]), ends, strict=True)):
        here = slice(begin, end)
        if (np.diff(moments[here]) == 0).any():
            got = f"two rows with the same time for client {names[client]}"
            raise column_error("in-conflict", path, window.time, got, "one")
        found.append(split_windows(moments[here], target[here], window, int(begin)))
    train = np.concatenate([one.train for one in found])
    return train, np.concatenate([train, *(one.test for one in found)])


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
            got = f"{window.season}, but inputs have only {window.past} rows"
            expected = "a season that fits into data.window.past"
            raise DataError("out-of-range", "data.window.season", found=got, allowed=expected)
        # An unknown value of that moment is that of the moment before it.
        found["seasonal persistence"] = filled[last - back]
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in found.items()}

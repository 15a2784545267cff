"""Samples of a table whose columns are of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from coterie.data.samples import Samples, Targets
from coterie.data.sources.checks import missing_column
from coterie.data.sources.columns import Columns, arrow_columns
from coterie.data.sources.labels import read_targets, train_rows_first
from coterie.data.sources.raw_columns import is_plain_numbers, numbers_as_text, read_raw
from coterie.data.sources.roles import Roles
from coterie.data.sources.series import series_samples
from coterie.data.tabular.options import Encode, Window
from coterie.data.tabular.raw import Origin
from coterie.errors import DataError
from coterie.terminal import counted, warn

ALL = "*"  # as features: all columns without another meaning


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
    """The samples of a table; their inputs are made when it is known who holds them.

    Args:
        columns: of a parquet or CSV file.
        roles: what they are for.
        encode: how they become numbers.
        window: of a series; ``None``: a row is a sample.
        targets: how labels are read.

    Raises:
        DataError: for columns that are missing or cannot be used, and without rows.
    """
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
    """The columns that inputs are made of.

    Raises:
        DataError: for a column that is named twice, that there is not, or that is the label.
    """
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

"""Clients that the data themselves name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.config.wording import nearest
from coterie.core.keys import Key
from coterie.data.lazy import ranges
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    Fraction,
    require_test_rows,
    rows_by_owner,
    split_train_test,
    too_large,
)
from coterie.data.samples import Samples
from coterie.errors import DataError
from coterie.terminal import counted, first_few, warn


def natural(
    samples: Samples,
    key: Key,
    /,
    *,
    column: str = "client",
    min_size: Count = 2,
    test_fraction: Fraction = 0.1,
    split: Literal["auto", "source", "random"] = "auto",
) -> Partition:
    """One client per value of a column of the data: a writer, a site, a user.

    Args:
        column: the column that names the client.
        min_size: clients with fewer samples, train and test together, are left out.
        test_fraction: share of each client's samples to test on, in a random split.
        split: ``source``: keep the source's train and test rows. ``random``: pool and split each
            client's samples. ``auto``: keep them if some client has both.
    """
    columns = samples.columns
    train_rows = samples.train_rows
    if column not in columns:
        raise _no_such_column(column, columns)
    # Clients are numbered in the order of their names, whatever the order of the rows.
    names, owner = np.unique(columns[column], return_inverse=True)
    every = rows_by_owner(owner, len(names))
    kept = [i for i, rows in enumerate(every) if len(rows) >= min_size]
    if not kept:
        largest = max(map(len, every), default=0)
        raise too_large("min_size", "no client has that many samples", min_size, largest)
    if len(kept) < len(every):
        left_out = [str(names[i]) for i, rows in enumerate(every) if len(rows) < min_size]
        few = f"fewer than {min_size} samples (partition.min_size)"
        who = f"{counted(len(left_out), 'client')} ({first_few(left_out)})"
        warn(f"left out {who} with {few}")
    held = [every[i] for i in kept]
    client_names = tuple(str(names[i]) for i in kept)
    if split == "source":
        require_test_rows(samples, "natural with split = 'source'")
    # Where train and test have no client in common (writers that only test, say), keeping the
    # source's split would leave clients with nothing to train on.
    some_client_has_both = np.intersect1d(owner[:train_rows], owner[train_rows:]).size > 0
    if split == "source" or (split == "auto" and some_client_has_both):
        train = tuple(rows[rows < train_rows] for rows in held)
        test = tuple(rows[rows >= train_rows] for rows in held)
        return Partition(train, test, client_names)
    if split == "auto" and train_rows < len(owner):
        warn(
            "no client has both training and test rows in the data, so test rows are drawn from the "
            "rows of each client; partition.split = 'source' keeps the split of the data"
        )
    parts = split_train_test(held, key, test_fraction)
    return Partition(parts.train, parts.test, client_names)


def _no_such_column(column: str, columns: Mapping[str, NDArray[Any]]) -> DataError:
    path = "data.partition.column"
    if not columns:
        what = "the data do not say which row belongs to which client"
        advice = "name the column of clients (for a file: data.client = 'NAME')"
        return DataError("does-not-fit", path, what, got=column, do=advice)
    hint = nearest(column, list(columns))
    known = ", ".join(sorted(columns))
    return DataError("not-found", path, got=column, allowed=f"one of {known}", hint=hint)


_TESTED = 0.1  # of a client's samples, where neither the source nor the user says more


def predefined(
    samples: Samples, key: Key, /, *, test_fraction: Fraction | None = None
) -> Partition:
    """The clients of the source: the first rows of each are for training, the last for testing.

    If the source is ordered by client, a client's rows are stored as two numbers, so a million
    clients take no more memory than their sizes. A population from Python has its own split, and
    ``test_fraction`` has no effect.

    Args:
        test_fraction: share of each client's samples to test on; one is always left to train on.
            ``None``: as the source divides them, or else a tenth.
    """
    if samples.holders is not None:
        return samples.holders
    offsets = samples.offsets
    if offsets is None:
        what = "the source does not say which sample belongs to which client"
        path = "data.partition.kind"
        raise DataError("does-not-fit", path, what, got="given", allowed="another kind")
    sizes = np.diff(offsets)
    if test_fraction is None:
        test_fraction = _TESTED
    wanted = ((1 - test_fraction) * sizes).astype(np.int64)
    # One sample at least to train on, except where a client has none at all.
    train = np.maximum(wanted, np.minimum(1, sizes))
    starts = offsets[:-1]
    return Partition(ranges(starts, train), ranges(starts + train, sizes - train))

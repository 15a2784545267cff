"""What the partitions share: pools of a class, counts in proportion, cutting and reading in
turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.parts import Partition
from coterie.errors import DataError


def groups(owner: NDArray[np.intp], count: int) -> list[IntArray]:
    """The rows of each of ``count`` owners, ascending."""
    order = np.argsort(owner, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(owner, minlength=count))[:-1])


def pools(labels: IntArray, classes: int) -> list[IntArray]:
    """The rows of each class, ascending."""
    return groups(labels, classes)


def consecutive(clients: int, classes: int, each: int) -> IntArray:
    """int64 ``[N, each]``: client ``u`` holds the classes ``(u + j) mod c``."""
    check_classes(each, classes)
    return (np.arange(clients)[:, None] + np.arange(each)) % classes


def check_classes(each: int, classes: int) -> None:
    """Refuse more classes per client than there are."""
    if not 1 <= each <= classes:
        raise DataError(
            f"data.partition.classes_per_client: got {each}; expected 1 to {classes}, as the data have"
        )


def check_room(held: IntArray, pools: Sequence[IntArray], first: int) -> None:
    """Refuse more clients than the pools can give ``first`` samples of each held class; say how
    many they can."""
    limit = len(held)
    for c, pool in enumerate(pools):
        holders = np.flatnonzero((held == c).any(1))
        if len(holders) > len(pool) // first:
            limit = min(limit, int(holders[len(pool) // first]))
    if limit < len(held):
        raise too_many(len(held), limit)


def too_many(clients: int, limit: int) -> DataError:
    """The error for more clients than the samples can serve."""
    return DataError(
        f"data.partition.clients: too few samples, got {clients}; expected at most {limit}"
    )


def needs_test(labels: IntArray, train_rows: int, what: str) -> None:
    """Refuse a source without test rows."""
    if train_rows >= len(labels):
        raise DataError(f"data.partition: {what} needs a source with a test split, got none")


def cut(rows: Sequence[IntArray], key: Key, test_fraction: float) -> Partition:
    """Shuffle each client's samples and cut them at ``int((1 - test_fraction) n)``, at least one to
    train on."""
    train = []
    test = []
    for i, own in enumerate(rows):
        mixed = key.of("split").client(i).generator().permutation(own)
        at = max(int((1 - test_fraction) * len(mixed)), min(1, len(mixed)))
        train.append(mixed[:at])
        test.append(mixed[at:])
    return Partition(tuple(train), tuple(test))


def apportion(shares: NDArray[Any], total: int) -> IntArray:
    """Whole numbers in proportion to ``shares`` that add up to ``total``: the cumulative sum,
    rounded."""
    edges = np.cumsum(shares, dtype=np.float64)
    if edges[-1] <= 0:
        return np.zeros(len(shares), np.int64)
    return np.diff(np.rint(edges / edges[-1] * total).astype(np.int64), prepend=0)


def deal(pool: IntArray, counts: IntArray) -> list[IntArray]:
    """Cut a pool into consecutive runs of ``counts``."""
    return np.split(pool[: counts.sum()], np.cumsum(counts)[:-1])


def join(arrays: Sequence[IntArray]) -> IntArray:
    """Concatenate, also nothing."""
    return np.concatenate([*arrays, np.empty(0, np.int64)])


def deal_classes(pools: Sequence[IntArray], counts: IntArray) -> tuple[IntArray, ...]:
    """Deal each class by its column of ``counts`` ``[N, c]``."""
    dealt = [deal(pool, counts[:, c]) for c, pool in enumerate(pools)]
    return tuple(join(own) for own in zip(*dealt, strict=True))


def own_or_tenth(
    labels: IntArray, key: Key, classes: int, train_rows: int
) -> tuple[list[IntArray], list[IntArray]]:
    """The training and test rows of each class: the source's own, or a random tenth of each class
    to test on."""
    every = pools(labels, classes)
    if train_rows < len(labels):
        return [p[p < train_rows] for p in every], [p[p >= train_rows] for p in every]
    parts = cut(every, key.of("holdout"), 0.1)
    return list(parts.train), list(parts.test)


def read_round(pools: Sequence[IntArray], held: IntArray, counts: IntArray) -> tuple[IntArray, ...]:
    """Read ``counts`` samples of each held class in turn, from the start again where a class runs
    out."""
    at = np.zeros(len(pools), np.int64)
    rows = []
    for classes, wanted in zip(held, counts, strict=True):
        own = []
        for c, n in zip(classes, wanted, strict=True):
            if n > len(pools[c]):
                raise DataError(
                    f"data.partition: a client wants {n} samples of class {c}, there are {len(pools[c])}; "
                    "expected more clients or more samples"
                )
            if at[c] + n > len(pools[c]):
                at[c] = 0
            own.append(pools[c][at[c] : at[c] + n])
            at[c] += n
        rows.append(np.concatenate(own))
    return tuple(rows)


def shuffled_split(rows: IntArray, key: Key, parts: int) -> list[IntArray]:
    """Shuffle rows and cut them into parts of equal size, give or take one."""
    return np.array_split(key.generator().permutation(rows.astype(np.int64)), parts)

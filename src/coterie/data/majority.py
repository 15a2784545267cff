"""RFedAvg's federation: every device has one class most, and the fewer classes it has the less
balanced all are."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data import dealing
from coterie.data.parts import Partition
from coterie.errors import DataError

Count = Annotated[int, Field(ge=1)]
MEAN = 5.0
VARIANCE = 10.0


def rfedavg(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    train_rows: int,
    clients: Count = 100,
    classes_per_client: Count = 10,
    largest: Count = 100,
    truncation: Literal["rejection", "clip"] = "rejection",
) -> Partition:
    """RFedAvg's data (sec. IV-C): majority classes from a discrete normal, class sizes even in
    ``1..largest``.

    Device ``k`` draws its majority class ``a = round(N(5, variance 10))`` in ``1..c`` (label ``a -
    1``) and ``B`` sizes from ``1..largest``; the largest is that of its majority class, the others
    go to ``B - 1`` further classes. The samples of a class are read in turn, from the start again
    where it runs out, so devices may share some. The test rows are all dealt, evenly, so that the
    accuracy over all clients is that of the whole test set.

    Args:
        labels: int64 ``[S]``.
        key: the stream that draws.
        classes: number of classes ``c``.
        train_rows: where the source's test rows begin; a source without any gives a tenth of each
            class.
        clients: number of devices ``K``.
        classes_per_client: classes that each device holds, ``B``.
        largest: most samples of a class that a device holds.
        truncation: a majority class out of range is drawn again (``rejection``), or moved to the
            nearest (``clip``), which piles them up at both ends.

    Raises:
        DataError: for more classes than there are, or a class with fewer samples than a device
            wants.

    Example:
        >>> labels = np.tile(np.arange(10), 120)
        >>> parts = rfedavg(labels, Key(0), classes=10, train_rows=1000, clients=20, classes_per_client=2)
        >>> len(set(labels[parts.train[3]])), sorted(map(len, parts.test)) == [10] * 20
        (2, True)
    """
    dealing.check_classes(classes_per_client, classes)
    train, tests = dealing.own_or_tenth(labels, key, classes, train_rows)
    counts = _counts(key, clients, classes, classes_per_client, largest, truncation)
    for c, pool in enumerate(train):
        if counts[:, c].max() > len(pool):
            raise DataError(
                f"data.partition.largest: class {c} has {len(pool)} training samples, got {largest}; "
                f"expected at most {min(map(len, train))}"
            )
    pools = [
        key.of("order").client(c).generator().permutation(pool) for c, pool in enumerate(train)
    ]
    start = np.cumsum(counts, axis=0) - counts
    rows = [
        dealing.join(
            [_turn(pools[c], start[k, c], counts[k, c]) for c in np.flatnonzero(counts[k])]
        )
        for k in range(clients)
    ]
    return Partition(
        tuple(rows), tuple(dealing.shuffled_split(dealing.join(tests), key.of("test"), clients))
    )


def _turn(pool: IntArray, start: int, n: int) -> IntArray:
    """``n`` samples from a place on, round and round."""
    return pool[(start + np.arange(n)) % len(pool)]


def _counts(
    key: Key, clients: int, classes: int, each: int, largest: int, truncation: str
) -> IntArray:
    """Samples per device and class, int64 ``[N, c]``."""
    counts = np.zeros((clients, classes), np.int64)
    for k in range(clients):
        rng = key.of("sizes").client(k).generator()
        major = _major(rng, classes, truncation)
        sizes = np.sort(rng.integers(1, largest, each, endpoint=True))[::-1]
        others = rng.permutation(np.delete(np.arange(classes), major))[: each - 1]
        counts[k, major] = sizes[0]
        counts[k, others] = rng.permutation(sizes[1:])
    return counts


def _major(rng: np.random.Generator, classes: int, truncation: str) -> int:
    while True:
        drawn = int(np.rint(rng.normal(MEAN, np.sqrt(VARIANCE)))) - 1
        if 0 <= drawn < classes:
            return drawn
        if truncation == "clip":
            return min(max(drawn, 0), classes - 1)

"""What partitions share: the rows of a class, whole numbers in proportion, and splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.samples import Samples
from coterie.errors import DataError

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]

# The share of a client's, or of a class's, samples to test on where a recipe does not say another.
TEST_FRACTION = 0.1


# --- rows by owner and by class -------------------------------------------------------------------


def rows_by_owner(owner: NDArray[np.intp], count: int) -> list[IntArray]:
    """The rows of each of ``count`` owners, such as clients or classes, ascending."""
    # A stable sort keeps the rows of an owner ascending.
    order = np.argsort(owner, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(owner, minlength=count))
    return np.split(order, ends[:-1])


def concatenate_rows(arrays: Sequence[IntArray]) -> IntArray:
    """Concatenate index arrays; none at all give an empty int64 array."""
    # NumPy refuses to concatenate nothing, and an empty float array would turn rows into floats.
    return np.concatenate([*arrays, np.empty(0, np.int64)])


def train_and_test_pools(samples: Samples, key: Key) -> tuple[list[IntArray], list[IntArray]]:
    """The training rows and the test rows of each class, by the split of the source. A source
    without test rows gives a random tenth of each class."""
    pools = rows_by_owner(samples.labels, samples.classes)
    # Training rows come first in every source, so a row's number says which split it is of.
    train_rows = samples.train_rows
    if train_rows < len(samples):
        train = [pool[pool < train_rows] for pool in pools]
        test = [pool[pool >= train_rows] for pool in pools]
        return train, test
    parts = split_train_test(pools, key.of("holdout"), TEST_FRACTION)
    return list(parts.train), list(parts.test)


def shuffled_pools(pools: Sequence[IntArray], key: Key) -> list[IntArray]:
    """The rows of each class in random order, each class with a stream of its own."""
    return [key.of("order").client(c).generator().permutation(pool) for c, pool in enumerate(pools)]


# --- which classes a client holds -----------------------------------------------------------------


def consecutive_classes(clients: int, classes: int, each: int) -> IntArray:
    """Client ``u`` holds the classes ``(u + j) mod c`` for ``j < each``, int64 ``[N, each]``."""
    check_classes_per_client(each, classes)
    return (np.arange(clients)[:, None] + np.arange(each)) % classes


def check_classes_per_client(each: int, classes: int) -> None:
    """Refuse more classes per client than there are."""
    if not 1 <= each <= classes:
        expected = f"1 to {classes}, the number of classes"
        raise DataError(
            "out-of-range", "data.partition.classes_per_client", found=each, allowed=expected
        )


def check_pool_sizes(held: IntArray, pools: Sequence[IntArray], first: int) -> None:
    """Refuse more clients than the classes can give ``first`` samples each."""
    limit = len(held)
    for c, pool in enumerate(pools):
        holders = np.flatnonzero((held == c).any(1))
        served = len(pool) // first
        if len(holders) > served:
            # The first holder that gets nothing ends the federation.
            limit = min(limit, int(holders[served]))
    if limit < len(held):
        raise too_many_clients(len(held), limit)


def too_large(option: str, what: str, got: object, largest: int) -> DataError:
    """The error for an option of a partition that the data do not allow to be so large."""
    path = f"data.partition.{option}"
    return DataError("out-of-range", path, what, found=got, allowed=f"at most {largest}")


def too_many_clients(clients: int, limit: int) -> DataError:
    """The error for more clients than there are samples for."""
    return too_large("clients", "too few samples", clients, limit)


def require_test_rows(samples: Samples, what: str) -> None:
    """Refuse a source that has no test split."""
    if samples.train_rows >= len(samples):
        needed = f"{what} needs test samples, and this source has no test split"
        advice = "choose another source or another kind"
        raise DataError("does-not-fit", "data.partition.kind", needed, do=advice)


# --- cutting pools into clients -------------------------------------------------------------------


def split_train_test(rows: Sequence[IntArray], key: Key, test_fraction: float) -> Partition:
    """Shuffle each client's samples and cut them at ``int((1 - test_fraction) n)``.

    A client with any sample has at least one to train on. Each client has its own stream, so that
    the split of one does not depend on how many there are.
    """
    train = []
    test = []
    for i, held in enumerate(rows):
        # Rounded down, as the papers' scripts do, so that two samples give one to test on.
        shuffled = key.of("split").client(i).generator().permutation(held)
        end = max(int((1 - test_fraction) * len(shuffled)), min(1, len(shuffled)))
        train.append(shuffled[:end])
        test.append(shuffled[end:])
    return Partition(tuple(train), tuple(test))


def apportion(shares: NDArray[Any], total: int) -> IntArray:
    """Whole numbers in proportion to shares, that add up to a total.

    The cumulative sum is rounded and not each share, so that the errors do not add up.

    Example:
        >>> apportion(np.array([1.0, 1.0, 1.0]), 10).tolist()
        [3, 4, 3]
    """
    # The last edge is then exactly the total, whatever the shares add up to.
    edges = np.cumsum(shares, dtype=np.float64)
    if edges[-1] <= 0:
        return np.zeros(len(shares), np.int64)
    return np.diff(np.rint(edges / edges[-1] * total).astype(np.int64), prepend=0)


def cut_pool(pool: IntArray, counts: IntArray) -> list[IntArray]:
    """Cut the rows of a class into consecutive runs of ``counts``."""
    return np.split(pool[: counts.sum()], np.cumsum(counts)[:-1])


def cut_pools(pools: Sequence[IntArray], counts: IntArray) -> tuple[IntArray, ...]:
    """Cut every class by its column of ``counts`` and put the runs of each client together. Clients
    get the rows of a pool in its order."""
    runs_by_class = [cut_pool(pool, counts[:, c]) for c, pool in enumerate(pools)]
    return tuple(concatenate_rows(runs) for runs in zip(*runs_by_class, strict=True))


def cut_as(counts: IntArray, pools: Sequence[IntArray]) -> tuple[IntArray, ...]:
    """All rows of every class, cut in proportion to ``counts`` of other rows, int64 ``[N, c]``."""
    shares = [apportion(counts[:, c], len(pool)) for c, pool in enumerate(pools)]
    return cut_pools(pools, np.stack(shares, axis=1))


def read_in_turn(
    pools: Sequence[IntArray], held: IntArray, counts: IntArray
) -> tuple[IntArray, ...]:
    """Read each client's samples of each of its classes, one client after another.

    A class that has too few samples left is read from its start again, so clients may share
    samples. What was left at its end stays unread, as in Ditto's generator.
    """
    position = np.zeros(len(pools), np.int64)
    rows = []
    for classes, wanted in zip(held, counts, strict=True):
        runs = []
        for c, n in zip(classes, wanted, strict=True):
            if n > len(pools[c]):
                what = f"a client needs {n} samples of class {c}, but there are {len(pools[c])}"
                expected = "more clients or more samples"
                raise DataError("out-of-range", "data.partition", what, allowed=expected)
            if position[c] + n > len(pools[c]):
                position[c] = 0
            runs.append(pools[c][position[c] : position[c] + n])
            position[c] += n
        rows.append(np.concatenate(runs))
    return tuple(rows)


def shuffle_and_split(rows: IntArray, key: Key, parts: int) -> list[IntArray]:
    """Shuffle rows and cut them into parts whose sizes differ by one at most."""
    return np.array_split(key.generator().permutation(rows.astype(np.int64)), parts)

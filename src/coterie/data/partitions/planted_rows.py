"""Which samples the clients of planted groups hold, and how many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    apportion,
    cut_pool,
    shuffle_and_split,
    split_train_test,
    too_many_clients,
)
from coterie.data.samples import Samples

# Two samples are the least that can be split into train and test.
LEAST = 2


@dataclass(frozen=True, slots=True)
class ClientSizes:
    """How many samples the clients hold.

    Args:
        test_fraction: share of each client's samples to test on.
        most: samples of a client, train and test together; ``None``: all.
        skew: concentration of the Dirichlet distribution of the sizes; ``None``: equal sizes.
    """

    test_fraction: float
    most: int | None = None
    skew: float | None = None

    def cut(self, rows: IntArray, key: Key, clients: int, least: int = LEAST) -> list[IntArray]:
        """Shuffled rows for so many clients.

        Args:
            rows: to be given to them.
            key: the stream that shuffles.
            clients: their number.
            least: samples that each client gets with unequal sizes.
        """
        if self.skew is None:
            return shuffle_and_split(rows, key, clients)
        shares = key.of("sizes").generator().dirichlet(np.full(clients, self.skew))
        # The distribution may give a client nearly nothing, so the least is set aside for each.
        counts = least + apportion(shares, len(rows) - least * clients)
        return cut_pool(key.generator().permutation(rows), counts)

    def split(self, rows: list[IntArray], key: Key) -> Partition:
        """The rows of each client as training and test samples."""
        return split_train_test([held[: self.most] for held in rows], key, self.test_fraction)

    @property
    def most_of_splits(self) -> tuple[int | None, int | None]:
        """Most training samples and most test samples of a client."""
        if self.most is None:
            return None, None
        trained = int((1 - self.test_fraction) * self.most)
        return trained, self.most - trained


def rows_of_own_classes(
    samples: Samples, key: Key, group: IntArray, sizes: ClientSizes
) -> list[IntArray]:
    """The samples of each client, where each group has a run of consecutive classes.

    Args:
        samples: of the source.
        key: the stream that shuffles.
        group: int64 ``[N]``, the group of each client.
        sizes: how many samples they hold.

    Raises:
        DataError: if the classes of a group have too few samples for its clients.
    """
    groups = int(group.max()) + 1
    rows: list[IntArray] = [np.empty(0, np.int64)] * len(group)
    for g, classes in enumerate(np.array_split(np.arange(samples.classes), groups)):
        members = np.flatnonzero(group == g)
        pool = np.flatnonzero(np.isin(samples.labels, classes))
        if len(pool) < LEAST * len(members):
            raise too_many_clients(len(group), groups * (len(pool) // LEAST))
        parts = sizes.cut(pool, key.of("order").client(g), len(members))
        for client, part in zip(members, parts, strict=True):
            rows[client] = part
    return rows


def copied_rows(samples: Samples, key: Key, group: IntArray, sizes: ClientSizes) -> Partition:
    """Every group has its own copy of all samples; copy ``g`` of row ``i`` is row ``g S + i``.

    The arguments and what is raised are those of `rows_of_own_classes`.
    """
    pools = _train_and_test_rows(samples, key, sizes.test_fraction)
    nobody = np.empty(0, np.int64)
    train = [nobody] * len(group)
    test = [nobody] * len(group)
    for g in range(int(group.max()) + 1):
        members = np.flatnonzero(group == g)
        for pool, held, most in zip(pools, (train, test), sizes.most_of_splits, strict=True):
            if len(pool) < len(members):
                raise too_many_clients(len(group), len(group) * len(pool) // len(members))
            # A stream of each group's own, so that no two have the same clients.
            parts = sizes.cut(pool, key.of("order").client(g), len(members), least=1)
            for client, part in zip(members, parts, strict=True):
                held[client] = g * len(samples) + part[:most]
    return Partition(tuple(train), tuple(test))


def _train_and_test_rows(
    samples: Samples, key: Key, test_fraction: float
) -> tuple[IntArray, IntArray]:
    """The rows to train and to test on, the same in every group: a sample that one group trains on
    must not be a test sample of another, which may have the same model."""
    rows = np.arange(len(samples))
    if samples.train_rows < len(samples):
        return rows[: samples.train_rows], rows[samples.train_rows :]
    whole = split_train_test([rows], key.of("holdout"), test_fraction)
    return whole.train[0], whole.test[0]

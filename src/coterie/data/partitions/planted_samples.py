"""The samples of planted groups: which of them clients hold, and the labels that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

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
from coterie.errors import DataError

# Two samples are the least that can be split into train and test.
LEAST = 2

Pair = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


@dataclass(frozen=True, slots=True)
class ClientSizes:
    """How many samples the clients hold.

    Args:
        most: samples of a client, train and test together; ``None``: all.
        skew: concentration of the Dirichlet distribution of the sizes; ``None``: equal sizes.
    """

    test_fraction: float
    most: int | None = None
    skew: float | None = None

    def cut(self, rows: IntArray, key: Key, clients: int, least: int = LEAST) -> list[IntArray]:
        """Shuffled rows for so many clients; with unequal sizes each gets ``least`` of them."""
        if self.skew is None:
            return shuffle_and_split(rows, key, clients)
        shares = key.of("sizes").generator().dirichlet(np.full(clients, self.skew))
        # The distribution may give a client nearly nothing, so the least is reserved for each.
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
    """The samples of each client, where each group has a run of consecutive classes."""
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
    """Every group has its own copy of all samples; copy ``g`` of row ``i`` is row ``g S + i``."""
    pools = _train_and_test_rows(samples, key, sizes.test_fraction)
    no_rows = np.empty(0, np.int64)
    train = [no_rows] * len(group)
    test = [no_rows] * len(group)
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


def permutations(key: Key, classes: int, groups: int) -> IntArray:
    """One permutation of the labels per group, int64 ``[groups, c]``; the first is the identity.

    The classes are put on a random circle, which group ``g`` turns by ``g (c // groups)`` places.
    Turns by different amounts, less than a full one, agree on no class.
    """
    order = key.of("labels").generator().permutation(classes)
    table = np.empty((groups, classes), np.int64)
    for g in range(groups):
        table[g, order] = np.roll(order, -g * (classes // groups))
    return table


def swapped(swaps: Sequence[Sequence[Pair]], classes: int) -> IntArray:
    """The label that each group gives to each class, int64 ``[groups, c]``."""
    table = np.tile(np.arange(classes), (len(swaps), 1))
    for g, pairs in enumerate(swaps):
        labels = [label for pair in pairs for label in pair]
        if len(set(labels)) < len(labels) or max(labels, default=0) >= classes:
            got = f"{labels} for group {g}"
            expected = f"pairs of different labels below {classes}, each label once"
            raise DataError("does-not-fit", "data.partition.swaps", found=got, allowed=expected)
        for one, other in pairs:
            table[g, [one, other]] = other, one
    return table


def labels_of_columns(samples: Samples, parts: Partition, columns: Sequence[str]) -> IntArray:
    """What is added to each label, so that each group has the labels of its column, ``[copies S]``."""
    assert parts.planted is not None
    turns = np.zeros((parts.copies, len(samples)), np.int64)
    for g, name in enumerate(columns):
        labels = _classes_in_column(samples, name)
        moved = (labels - samples.labels) % samples.classes
        # With copies every group has rows of its own. Otherwise they share one set of rows, and
        # only those that this group's clients hold are changed.
        if parts.copies > 1:
            turns[g] = moved
            continue
        for client in np.flatnonzero(parts.planted == g):
            for held in (parts.train[client], parts.test[client]):
                turns[0, held] = moved[held]
    return turns.ravel()


def _classes_in_column(samples: Samples, name: str) -> IntArray:
    """The values of a column of the source, int64 ``[S]``."""
    if name not in samples.columns:
        known = ", ".join(samples.columns) or "no columns"
        expected = f"one of {known}"
        raise DataError("unknown-choice", "data.partition.columns", got=name, allowed=expected)
    values = np.asarray(samples.columns[name])
    whole = values.dtype.kind in "iu"
    if not whole or not ((values >= 0) & (values < samples.classes)).all():
        got = f"{name!r} with values such as {values[0].item()!r}"
        expected = f"classes: whole numbers from 0 to {samples.classes - 1}"
        raise DataError("does-not-fit", "data.partition.columns", found=got, allowed=expected)
    return values.astype(np.int64)


def wrong_labels(
    train: Sequence[IntArray], key: Key, noise: float, samples: int, classes: int
) -> IntArray:
    """What is added to each label, so that a share of each client's training labels is wrong."""
    turns = np.zeros(samples, np.int64)
    for client, held in enumerate(train):
        rng = key.client(client).generator()
        wrong = rng.permutation(held)[: round(noise * len(held))]
        turns[wrong] = rng.integers(1, classes, len(wrong))
    return turns

"""Which labels the samples of planted groups have: what distinguishes one group from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.samples import Samples
from coterie.errors import DataError

Pair = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


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
    """The label that each group gives to each class, int64 ``[groups, c]``.

    Raises:
        DataError: for a label that there is not, or that a group swaps twice.
    """
    table = np.tile(np.arange(classes), (len(swaps), 1))
    for g, pairs in enumerate(swaps):
        labels = [label for pair in pairs for label in pair]
        if len(set(labels)) < len(labels) or max(labels, default=0) >= classes:
            raise DataError(
                f"data.partition.swaps: each label once and below {classes}, got {labels} for group "
                f"{g}; expected pairs of different labels"
            )
        for one, other in pairs:
            table[g, [one, other]] = other, one
    return table


def labels_of_columns(samples: Samples, parts: Partition, columns: Sequence[str]) -> IntArray:
    """What is added to each label, so that each group has the labels of its column, ``[copies S]``.

    Args:
        samples: of the source, with its columns.
        parts: who holds which sample and is of which planted group.
        columns: the name of the column of each group.

    Raises:
        DataError: for a column that there is not, or that has no classes.
    """
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
    """The values of a column of the source, int64 ``[S]``.

    Raises:
        DataError: for a column that there is not, or whose values are no classes.
    """
    if name not in samples.columns:
        known = ", ".join(samples.columns) or "no columns"
        raise DataError(f"data.partition.columns: got {name!r}; expected of {known}")
    values = np.asarray(samples.columns[name])
    whole = values.dtype.kind in "iu"
    if not whole or not ((values >= 0) & (values < samples.classes)).all():
        raise DataError(
            f"data.partition.columns: {name!r} has no classes, got values like "
            f"{values[0].item()!r}; expected whole numbers from 0 to {samples.classes - 1}"
        )
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

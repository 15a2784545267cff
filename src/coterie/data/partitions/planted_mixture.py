"""Federations whose clients hold samples of two known concepts, to see whether a method finds the
shares."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    Fraction,
    shuffle_and_split,
    split_train_test,
    too_many_clients,
)
from coterie.data.partitions.planted import TRANSFORMS, check_groups
from coterie.data.partitions.planted_labels import permutations
from coterie.data.samples import Samples


def planted_mixture(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 60,
    groups: Annotated[int, Field(ge=2)] = 2,
    how: Literal["swap", "rotate"] = "swap",
    share: Annotated[float, Field(ge=0.5, lt=1)] = 0.7,
    test_fraction: Fraction = 0.2,
    size: Annotated[int, Field(ge=2)] | None = None,
) -> Partition:
    """Each client holds samples of two concepts, a share of ``share`` of the first.

    The first concept of client ``i`` is ``i mod groups``, the second one of the others in turn. The
    first one is kept as ``planted``, and that of each sample as ``concept``; no method sees them.

    Args:
        samples: of a source; train and test are pooled, and no sample goes to two clients. Inputs
            are not read.
        key: the stream that shuffles.
        clients: number of clients ``N``.
        groups: number of concepts.
        how: ``swap``: each concept has its own permutation of the labels, and no two concepts agree
            on any, so that every sample tells its concept. ``rotate``: the images of concept ``g``
            are turned by ``90 g`` degrees.
        share: of each client's samples that are of its first concept, in training and in test
            samples, to a whole sample.
        test_fraction: share of each client's samples to test on.
        size: most samples of a client, train and test together; ``None``: all samples are used.

    Raises:
        DataError: if there are too few samples or classes for so many clients and concepts.

    Example:
        >>> import torch
        >>> y = torch.arange(5).repeat_interleave(80)
        >>> samples = Samples(torch.zeros(400, 1), y, classes=5, train_rows=400)
        >>> parts = planted_mixture(samples, Key(0), clients=4, groups=2)
        >>> [np.bincount(parts.concept[rows]).tolist() for rows in parts.train]
        [[56, 24], [24, 56], [56, 24], [24, 56]]
    """
    check_groups(groups, clients, how, samples.classes)
    if clients * 2 > len(samples):
        raise too_many_clients(clients, len(samples) // 2)
    rows = shuffle_and_split(np.arange(len(samples)), key.of("order"), clients)
    parts = split_train_test([held[:size] for held in rows], key, test_fraction)
    first = np.arange(clients) % groups
    # The pairs of concepts in turn, so that each two concepts meet in some client.
    apart = 1 + np.arange(clients) // groups % (groups - 1)
    second = (first + apart) % groups
    concept = np.zeros(len(samples), np.int64)
    for split in (parts.train, parts.test):
        for client, held in enumerate(split):
            count = round(share * len(held))
            shuffled = key.of("concept").client(client).generator().permutation(held)
            concept[shuffled[:count]] = first[client]
            concept[shuffled[count:]] = second[client]
    relabel = None
    if how == "swap":
        relabel = permutations(key, samples.classes, groups)
    return Partition(parts.train, parts.test, (), first, TRANSFORMS[how], relabel, concept)

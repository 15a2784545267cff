"""Clients that are all alike."""

from __future__ import annotations

import numpy as np

from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    Fraction,
    shuffle_and_split,
    split_train_test,
    too_many_clients,
)
from coterie.data.samples import Samples


def iid(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    test_fraction: Fraction = 0.1,
) -> Partition:
    """A random share of equal size for every client, of the train rows and of the test rows.

    Args:
        samples: of a source; their inputs are not read.
        key: the stream that shuffles.
        clients: number of clients ``N``.
        test_fraction: share of each client's samples to test on, where the source has no test rows.

    Raises:
        DataError: if there are fewer training samples than clients.

    Example:
        >>> import torch
        >>> y = torch.zeros(20, dtype=torch.int64)
        >>> samples = Samples(torch.zeros(20, 1), y, classes=1, train_rows=16)
        >>> parts = iid(samples, Key(0), clients=4)
        >>> [len(rows) for rows in parts.train], [len(rows) for rows in parts.test]
        ([4, 4, 4, 4], [1, 1, 1, 1])
    """
    train_rows = samples.train_rows
    if clients > train_rows:
        raise too_many_clients(clients, train_rows)
    train = shuffle_and_split(np.arange(train_rows), key.of("train"), clients)
    # Without a test split, each client gives up a share of its own.
    if train_rows == len(samples):
        return split_train_test(train, key, test_fraction)
    test = shuffle_and_split(np.arange(train_rows, len(samples)), key.of("test"), clients)
    return Partition(tuple(train), tuple(test))

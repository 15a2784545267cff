"""Ditto's Fashion-MNIST, which FlexCFL uses."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    consecutive_classes,
    read_in_turn,
    require_test_rows,
    rows_by_class,
)
from coterie.data.samples import Samples


def ditto(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 500,
    classes_per_client: Count = 5,
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 233,
) -> Partition:
    """Ditto's Fashion-MNIST: consecutive classes, lognormal sizes and class shares.

    Train and test are split alike. Sizes are ``lognormal(3, 1) + 10``, scaled to the training rows.
    Client ``u`` holds the classes ``(u + j) mod c`` in lognormal(1, 1) shares ``p``: ``int(p n) +
    1`` training samples and ``int(p n / 6) + 1`` test samples of each. A class that runs out is
    read from its start again, so clients may share samples.

    Args:
        samples: of a source; their inputs are not read.
        key: not used: the recipe has a seed of its own.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.
        seed: of the draws.

    Raises:
        DataError: if the source has no test split, or too few samples of a class for one client.

    Source: the generator of Li et al., Ditto (2021), litian96/ditto. On Fashion-MNIST it gives the
    61,251 + 11,254 samples of FlexCFL's Table 2.

    Example:
        >>> import torch
        >>> y = torch.arange(10).repeat(70)
        >>> samples = Samples(torch.zeros(700, 1), y, classes=10, train_rows=600)
        >>> parts = ditto(samples, Key(0), clients=20)
        >>> parts.clients, len(np.unique(samples.labels[parts.train[3]]))
        (20, 5)
    """
    require_test_rows(samples, "ditto")
    labels = samples.labels
    classes = samples.classes
    train_rows = samples.train_rows
    held = consecutive_classes(clients, classes, classes_per_client)
    # NumPy's legacy generator gives the recipe's own numbers; it is a local one, so no other draw
    # depends on it. All sizes are drawn first, then the shares of one client after another.
    rng = np.random.RandomState(seed)
    sizes = rng.lognormal(3, 1, clients) + 10
    sizes = train_rows * sizes / sizes.sum()
    shares = np.stack([rng.lognormal(1, 1, classes_per_client) for _ in range(clients)])
    # Real numbers here; train and test are cut to whole ones apart from each other.
    wanted = shares / shares.sum(1, keepdims=True) * sizes[:, None]
    train_pools = rows_by_class(labels[:train_rows], classes)
    test_pools = [pool + train_rows for pool in rows_by_class(labels[train_rows:], classes)]
    # Fashion-MNIST has six training rows to a test row, hence the 6.
    train = read_in_turn(train_pools, held, wanted.astype(np.int64) + 1)
    test = read_in_turn(test_pools, held, (wanted / 6).astype(np.int64) + 1)
    return Partition(train, test)

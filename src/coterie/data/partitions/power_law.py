"""Few classes per client and sizes by a power law: FedProx's MNIST, and FedGroup's toy data."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    TEST_FRACTION,
    Count,
    apportion,
    check_classes_per_client,
    check_pool_sizes,
    consecutive_classes,
    cut_pool,
    rows_by_class,
    split_train_test,
)
from coterie.data.samples import Samples

# Samples of each of its classes that every client gets before sizes are drawn.
FIRST = 5


def power_law(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 1000,
    classes_per_client: Count = 2,
) -> Partition:
    """FedProx's MNIST: consecutive classes per client and sizes by a power law.

    Client ``u`` holds the classes ``(u + j) mod c``. It gets 5 samples of each first. Then it gets
    ``int`` of a lognormal(0, 2) share of what is left of the class; a share that would overrun the
    class is skipped. The samples of train and test are pooled, and each client's are shuffled and
    cut at ``int(0.9 n)``.

    Args:
        samples: of a source, whose own split is not used; their inputs are not read.
        key: the stream that draws.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.

    Raises:
        DataError: if there are too few samples for so many clients; it says how many they
            suffice for.

    Source: Li et al., Federated Optimization in Heterogeneous Networks (2020), and its generator.

    Example:
        >>> import torch
        >>> y = torch.arange(10).repeat_interleave(200)
        >>> samples = Samples(torch.zeros(2000, 1), y, classes=10, train_rows=2000)
        >>> parts = power_law(samples, Key(0), clients=20)
        >>> parts.clients, min(len(a) + len(b) for a, b in zip(parts.train, parts.test)) >= 10
        (20, True)
    """
    classes = samples.classes
    held = consecutive_classes(clients, classes, classes_per_client)
    # Classes are read in the order of the source, as in the generator; only the samples of each
    # client are shuffled, at the end.
    pools = rows_by_class(samples.labels, classes)
    check_pool_sizes(held, pools, FIRST)
    left = np.array([len(pool) - FIRST * (held == c).sum() for c, pool in enumerate(pools)])
    extra = _extra_samples(key, left, clients, classes_per_client)
    position = np.zeros(classes, np.int64)
    rows: list[list[IntArray]] = [[] for _ in range(clients)]
    # Two passes, as in the generator: the first samples of all clients come before extra ones.
    for u, j in np.ndindex(held.shape):
        c = held[u, j]
        rows[u].append(pools[c][position[c] : position[c] + FIRST])
        position[c] += FIRST
    for u, j in np.ndindex(held.shape):
        c = held[u, j]
        more = extra[c, u // classes, j]
        # The generator's strict `<`: a share that would just empty the class is skipped, too.
        if position[c] + more < len(pools[c]):
            rows[u].append(pools[c][position[c] : position[c] + more])
            position[c] += more
    return split_train_test([np.concatenate(runs) for runs in rows], key, TEST_FRACTION)


def _extra_samples(key: Key, left: IntArray, clients: int, classes_per_client: int) -> IntArray:
    """How many samples a client gets beyond the first ones.

    Args:
        key: the stream that draws.
        left: int64 ``[c]``, samples of each class that are left.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.

    Returns:
        int64 ``[c, ceil(N / c), classes_per_client]``: client ``u`` has ``[class, u // c, j]`` of
        its ``j``-th class. Only the ``c`` clients of a block hold a class as their ``j``-th.
    """
    classes = len(left)
    blocks = -(-clients // classes)
    rng = key.of("sizes").generator()
    shares: FloatArray = rng.lognormal(0, 2, (classes, blocks, classes_per_client))
    # Shares of clients that do not exist are drawn, so that the others do not depend on N, and
    # then set to zero, so that the whole class is shared out.
    first_class = (np.arange(classes)[:, None, None] - np.arange(classes_per_client)) % classes
    user = np.arange(blocks)[:, None] * classes + first_class
    shares[user >= clients] = 0
    # A class that no client holds has no shares at all; the tiny number avoids 0 / 0.
    total = np.maximum(shares.sum((1, 2), keepdims=True), np.finfo(float).tiny)
    return (left[:, None, None] * shares / total).astype(np.int64)


def by_classes(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 1000,
    classes_per_client: Count = 2,
) -> Partition:
    """Random classes per client and sizes by a power law; every sample of a held class is used.

    Each client draws ``classes_per_client`` distinct classes. A class gives 5 samples to each of
    its holders and the rest by lognormal(0, 2) shares, without replacement. Train and test are
    pooled; each client's samples are split 90/10.

    Args:
        samples: of a source, whose own split is not used; their inputs are not read.
        key: the stream that draws.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.

    Raises:
        DataError: if there are too few samples for so many clients; it says how many they
            suffice for.

    Source: Duan et al., FedGroup (2021), Table 1. The paper says "power law"; the first 5 samples
    and the lognormal shares are those of FedProx's MNIST.

    Example:
        >>> import torch
        >>> y = torch.arange(10).repeat_interleave(200)
        >>> samples = Samples(torch.zeros(2000, 1), y, classes=10, train_rows=2000)
        >>> parts = by_classes(samples, Key(0), clients=50, classes_per_client=1)
        >>> parts.samples
        2000
    """
    classes = samples.classes
    check_classes_per_client(classes_per_client, classes)
    # A random order of all classes for each client, of which it holds the first ones.
    every = np.tile(np.arange(classes), (clients, 1))
    held = key.of("classes").generator().permuted(every, axis=1)[:, :classes_per_client]
    pools = [
        key.of("order").client(c).generator().permutation(pool)
        for c, pool in enumerate(rows_by_class(samples.labels, classes))
    ]
    check_pool_sizes(held, pools, FIRST)
    rng = key.of("sizes").generator()
    rows: list[list[IntArray]] = [[] for _ in range(clients)]
    # Class by class: how many hold a class is known only now, and its pool is to be used up.
    for c, pool in enumerate(pools):
        holders = np.flatnonzero((held == c).any(1))
        if not len(holders):
            continue
        shares = rng.lognormal(0, 2, len(holders))
        counts = FIRST + apportion(shares, len(pool) - FIRST * len(holders))
        for u, run in zip(holders, cut_pool(pool, counts), strict=True):
            rows[u].append(run)
    return split_train_test([np.concatenate(runs) for runs in rows], key, TEST_FRACTION)

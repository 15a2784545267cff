"""Few consecutive classes per client and sizes by a power law: FedProx's MNIST and FEMNIST, Ditto's
Fashion-MNIST, and FedGroup's toy data."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

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
    read_in_turn,
    require_test_rows,
    rows_by_owner,
    shuffled_pools,
    split_train_test,
    too_many_clients,
)
from coterie.data.samples import Samples

# Samples of each of its classes that every client gets before sizes are drawn.
FIRST = 5


def power_law(
    samples: Samples, key: Key, /, *, clients: Count = 1000, classes_per_client: Count = 2
) -> Partition:
    """FedProx's MNIST: consecutive classes per client and sizes by a power law.

    Client ``u`` holds the classes ``(u + j) mod c``. It gets 5 samples of each first. Then it gets
    ``int`` of a lognormal(0, 2) share of the rest of the class; a share that is larger than the
    rest is skipped. The samples of train and test are pooled, and those of each client are shuffled
    and split at ``int(0.9 n)``.

    Source: Li et al., Federated Optimization in Heterogeneous Networks (2020), and its generator.
    """
    classes = samples.classes
    held = consecutive_classes(clients, classes, classes_per_client)
    # Classes are read in the order of the source, as in the generator; only the samples of each
    # client are shuffled, at the end.
    pools = rows_by_owner(samples.labels, classes)
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
    """How many samples a client gets beyond the first ones, of the ``left`` int64 ``[c]`` of each
    class.

    Client ``u`` has ``[class, u // c, j]`` of its ``j``-th class in the int64 ``[c, ceil(N / c),
    classes_per_client]``. Only the ``c`` clients of a block hold a class as their ``j``-th.
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
    samples: Samples, key: Key, /, *, clients: Count = 1000, classes_per_client: Count = 2
) -> Partition:
    """Random classes per client and sizes by a power law; every sample of a held class is used.

    Each client draws ``classes_per_client`` distinct classes. A class gives 5 samples to each of
    its holders and the rest by lognormal(0, 2) shares, without replacement. Train and test are
    pooled; each client's samples are split 90/10.

    Source: Duan et al., FedGroup (2021), Table 1. The paper says "power law"; the first 5 samples
    and the lognormal shares are those of FedProx's MNIST.
    """
    classes = samples.classes
    check_classes_per_client(classes_per_client, classes)
    # A random order of all classes for each client, of which it holds the first ones.
    every = np.tile(np.arange(classes), (clients, 1))
    held = key.of("classes").generator().permuted(every, axis=1)[:, :classes_per_client]
    pools = shuffled_pools(rows_by_owner(samples.labels, classes), key)
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

    Train and test are split in the same way. Sizes are ``lognormal(3, 1) + 10``, scaled to the
    training rows. Client ``u`` holds the classes ``(u + j) mod c`` in lognormal(1, 1) shares ``p``:
    ``int(p n) + 1`` training samples and ``int(p n / 6) + 1`` test samples of each. If a class runs
    out, it is read from its start again, so clients may share samples.

    Source: the generator of Li et al., Ditto (2021), litian96/ditto. On Fashion-MNIST it gives the
    61,251 + 11,254 samples of FlexCFL's Table 2.
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
    train_pools = rows_by_owner(labels[:train_rows], classes)
    test_pools = [pool + train_rows for pool in rows_by_owner(labels[train_rows:], classes)]
    # Fashion-MNIST has six training rows to a test row, hence the 6.
    train = read_in_turn(train_pools, held, wanted.astype(np.int64) + 1)
    test = read_in_turn(test_pools, held, (wanted / 6).astype(np.int64) + 1)
    return Partition(train, test)


def femnist10(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 200,
    # The paper's text says 5; the figures that FedGroup and FlexCFL print are reached with 3.
    classes_per_client: Count = 3,
    overlap: Literal["disjoint", "released"] = "disjoint",
    per_class: Count = 4000,
) -> Partition:
    """FedProx's FEMNIST of ten letters: consecutive classes in equal parts, lognormal sizes.

    Client ``u`` holds ``max(2, int(n / classes_per_client))`` samples of each of the classes
    ``(u + j) mod c``, with ``n ~ lognormal(4, 1) + 5``, from a pool of ``per_class`` random samples
    of each class. Train and test are pooled; each client's samples are split 90/10.

    Args:
        classes_per_client: classes that each client holds: 3 in the released script, 5 in the
            paper's text.
        overlap: ``disjoint``: no sample goes to two clients. ``released``: as in the released
            script, whose test for the end of a class is inverted, so that every client reads each
            class from its start. Then clients share samples, and some test on samples with which
            others train.
        per_class: size of the pool of each class.

    Source: the script ``data/nist`` of Li et al., Federated Optimization in Heterogeneous Networks
    (2020).
    """
    held = consecutive_classes(clients, samples.classes, classes_per_client)
    pools = [
        key.of("pool").client(c).generator().permutation(pool)[:per_class]
        for c, pool in enumerate(rows_by_owner(samples.labels, samples.classes))
    ]
    # The script divides a client's size evenly over its classes, two samples of each at least.
    sizes = key.of("sizes").generator().lognormal(4, 1, clients) + 5
    each = np.maximum(2, (sizes / classes_per_client).astype(np.int64))
    # Where the next client begins to read each class; it stays at 0 if clients may overlap.
    position = np.zeros(samples.classes, np.int64)
    rows = []
    for u in range(clients):
        mine = held[u]
        n = each[u]
        if overlap == "disjoint" and any(position[c] + n > len(pools[c]) for c in mine):
            raise too_many_clients(clients, u)
        rows.append(np.concatenate([pools[c][position[c] : position[c] + n] for c in mine]))
        if overlap == "disjoint":
            position[mine] += n
    return split_train_test(rows, key, TEST_FRACTION)

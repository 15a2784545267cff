"""Label skew by a Dirichlet distribution for each client, whose size is chosen apart from it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    apportion,
    cut_pools,
    too_many_clients,
    train_and_test_pools,
)
from coterie.data.samples import Samples
from coterie.errors import DataError


def dirichlet_by_size(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    sizes: tuple[Count, ...] | None = None,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Partition:
    """Clients of given sizes, each with class shares of its own from Dir(beta).

    One sample after another goes to a random client that has room. Its class is drawn by the shares
    of that client, among the classes of which samples are left. Towards the end few classes may be
    left, so the last samples follow the shares less. Test rows of a class are split as its training
    rows are. A source without a test split gives a random tenth of each class to test on.

    Unlike ``dirichlet``, where a class is shared out among clients and sizes follow, sizes are
    exact here.

    Args:
        samples: of a source; their inputs are not read.
        key: the stream that draws.
        clients: number of clients ``N``.
        sizes: training samples of each client; by default all samples, in equal parts.
        beta: concentration; a small one gives a client few classes.

    Raises:
        DataError: if there are fewer training samples than asked for, or not a size for each client.

    Source: Acar et al., Federated Learning Based on Dynamic Regularization (2021), as the
    ``InnerDirichletPartitioner`` of flwr-datasets has it.

    Example:
        >>> import torch
        >>> y = torch.arange(4).repeat_interleave(100)
        >>> samples = Samples(torch.zeros(400, 1), y, classes=4, train_rows=400)
        >>> parts = dirichlet_by_size(samples, Key(0), clients=3, sizes=(200, 100, 50))
        >>> [len(rows) for rows in parts.train]
        [200, 100, 50]
    """
    train, tests = train_and_test_pools(samples, key)
    pools = [
        key.of("order").client(c).generator().permutation(pool) for c, pool in enumerate(train)
    ]
    room = np.array([len(pool) for pool in pools])
    wanted = _sizes(sizes, clients, int(room.sum()))
    counts = _draw_counts(key.of("shares").generator(), wanted, room, beta)
    held = cut_pools(pools, counts)
    shares = [apportion(counts[:, c], len(pool)) for c, pool in enumerate(tests)]
    return Partition(held, cut_pools(tests, np.stack(shares, axis=1)))


def _sizes(sizes: tuple[int, ...] | None, clients: int, total: int) -> IntArray:
    """Training samples of each client, int64 ``[N]``."""
    if sizes is None:
        if clients > total:
            raise too_many_clients(clients, total)
        return apportion(np.ones(clients), total)
    if len(sizes) != clients:
        raise DataError(
            f"data.partition.sizes: one for each of {clients} clients, got {len(sizes)}; "
            f"expected {clients} sizes, or clients = {len(sizes)}"
        )
    if sum(sizes) > total:
        raise DataError(
            f"data.partition.sizes: {total} training samples, got sizes that add up to "
            f"{sum(sizes)}; expected at most {total}"
        )
    return np.array(sizes, np.int64)


def _draw_counts(
    rng: np.random.Generator, sizes: IntArray, room: IntArray, beta: float
) -> IntArray:
    """Training samples per client and class, int64 ``[N, c]``, drawn one by one.

    Args:
        rng: the stream.
        sizes: of the clients.
        room: samples of each class.
        beta: concentration.
    """
    classes = len(room)
    left = room.copy()
    shares = rng.dirichlet(np.full(classes, beta), size=len(sizes))
    # A small beta rounds shares to zero. A client must be able to take what is left at the end.
    shares = np.maximum(shares, np.finfo(np.float64).tiny)
    edges = np.cumsum(shares * (left > 0), axis=1)
    counts = np.zeros((len(sizes), classes), np.int64)
    for client in rng.permutation(np.repeat(np.arange(len(sizes)), sizes)):
        mine = edges[client]
        # Between 0 and the sum, which is left out, so that the class has a share.
        c = int(np.searchsorted(mine, rng.random() * mine[-1], side="right"))
        counts[client, c] += 1
        left[c] -= 1
        if left[c] == 0:
            edges = np.cumsum(shares * (left > 0), axis=1)
    return counts

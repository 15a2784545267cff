"""Label skew by a Dirichlet distribution: shares of each class, or of each client."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    apportion,
    concatenate_rows,
    cut_as,
    cut_pools,
    shuffled_pools,
    too_large,
    too_many_clients,
    train_and_test_pools,
)
from coterie.data.samples import Samples
from coterie.errors import DataError

# Draws before it is said that no split will do. The reference code draws for ever.
TRIES = 10_000


def dirichlet(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    beta: Annotated[float, Field(gt=0)] = 0.1,
    min_size: Annotated[int, Field(ge=0)] = 10,
    test: Literal["proportional", "labels_present"] = "proportional",
) -> Partition:
    """Label skew as in NIID-Bench: each class is split among the clients by a draw from Dir(beta).

    Class by class, clients that already hold ``n / N`` samples get nothing, so that sizes stay
    balanced. All classes are drawn again until every client has ``min_size`` samples. Every
    training row goes to one client. A source without a test split gives a random tenth of each
    class to test on.

    Args:
        beta: concentration; a small value gives a client few classes.
        min_size: smallest number of training samples of a client.
        test: ``proportional``: the test rows of a class are split as its training rows are.
            ``labels_present``: a client is tested on all test rows of every class it holds, so
            that clients share them, as in PACFL's code.

    Source: Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (2022), and
    its code.
    """
    train, tests = train_and_test_pools(samples, key)
    sizes = np.array([len(pool) for pool in train])
    total = sizes.sum()
    # Said at once: ten thousand draws that cannot succeed would take minutes.
    if min_size * clients > total:
        what = f"{total} training samples cannot give {min_size} to each"
        raise too_large("clients", what, clients, total // max(1, min_size))
    counts = _draw_counts(key.of("shares"), tuple(sizes.tolist()), clients, beta, min_size)
    # Clients get runs of a class; unshuffled these would follow the order of the source, which may
    # be that of its writers.
    rows = cut_pools(shuffled_pools(train, key), counts)
    if test == "labels_present":
        shared = [concatenate_rows([tests[c] for c in np.flatnonzero(held)]) for held in counts]
        return Partition(rows, tuple(shared))
    return Partition(rows, cut_as(counts, tests))


# Kept, since a sweep runs many methods on the same clients, and a small beta takes hundreds of draws:
# longer than a method trains on small data.
@lru_cache(maxsize=16)
def _draw_counts(
    key: Key, sizes: tuple[int, ...], clients: int, beta: float, min_size: int
) -> IntArray:
    """Training samples per client and class, int64 ``[N, c]``; drawn until all are large enough."""
    rng = key.generator()
    of_class = np.array(sizes)
    for _ in range(TRIES):
        counts = _one_draw(rng, of_class, clients, beta)
        if counts is not None and counts.sum(1).min() >= min_size:
            # All calls with these arguments share the array.
            counts.flags.writeable = False
            return counts
    what = f"no Dirichlet split in {TRIES} draws gives every client min_size samples"
    got = f"clients = {clients}, beta = {beta}, min_size = {min_size}"
    expected = "fewer clients, a larger beta or a smaller min_size"
    raise DataError("failed", "data.partition", what, found=got, allowed=expected)


def _one_draw(
    rng: np.random.Generator, sizes: IntArray, clients: int, beta: float
) -> IntArray | None:
    """One draw of all classes; ``None`` if a class fell to full clients alone."""
    counts = np.zeros((clients, len(sizes)), np.int64)
    for c, size in enumerate(sizes):
        shares: FloatArray = rng.dirichlet(np.full(clients, beta))
        has_room = counts.sum(1) < sizes.sum() / clients
        shares = shares * has_room
        # With a small beta nearly all of a class may fall to one client. Where that client is
        # full, no share is left to normalise, and the draw starts again.
        if not shares.sum() > 0:
            return None
        # Edges are cut off, not rounded, and the last client takes the rest, as in NIID-Bench.
        edges = (np.cumsum(shares / shares.sum()) * size).astype(np.int64)
        edges[-1] = size
        counts[:, c] = np.diff(edges, prepend=0)
    return counts


def dirichlet_by_size(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    sizes: tuple[Count, ...] | None = None,
    beta: Annotated[float, Field(gt=0)] = 0.1,
) -> Partition:
    """Clients of given sizes, each with its own class shares from Dir(beta).

    One sample after another goes to a random client that has room. Its class is drawn by the shares
    of that client, among the classes that have samples left. Towards the end few classes may be
    left, so the last samples follow the shares less. Test rows of a class are split as its training
    rows are. A source without a test split gives a random tenth of each class to test on.

    Unlike ``dirichlet``, where a class is shared out among clients and sizes follow, sizes are
    exact here.

    Args:
        sizes: training samples of each client; by default all samples, in equal parts.
        beta: concentration; a small value gives a client few classes.

    Source: Acar et al., Federated Learning Based on Dynamic Regularization (2021), as in the
    ``InnerDirichletPartitioner`` of flwr-datasets.
    """
    train, tests = train_and_test_pools(samples, key)
    pools = shuffled_pools(train, key)
    room = np.array([len(pool) for pool in pools])
    wanted = _sizes(sizes, clients, int(room.sum()))
    counts = _draw_one_by_one(key.of("shares").generator(), wanted, room, beta)
    return Partition(cut_pools(pools, counts), cut_as(counts, tests))


def _sizes(sizes: tuple[int, ...] | None, clients: int, total: int) -> IntArray:
    """Training samples of each client, int64 ``[N]``."""
    if sizes is None:
        if clients > total:
            raise too_many_clients(clients, total)
        return apportion(np.ones(clients), total)
    if len(sizes) != clients:
        expected = f"{clients}, one for each client, or clients = {len(sizes)}"
        raise DataError("wrong-shape", "data.partition.sizes", found=len(sizes), allowed=expected)
    if sum(sizes) > total:
        got = f"sizes that add up to {sum(sizes)}"
        raise too_large("sizes", f"{total} training samples", got, total)
    return np.array(sizes, np.int64)


def _draw_one_by_one(
    rng: np.random.Generator, sizes: IntArray, room: IntArray, beta: float
) -> IntArray:
    """Training samples per client and class, int64 ``[N, c]``, drawn one by one."""
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

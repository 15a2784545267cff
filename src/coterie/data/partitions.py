"""How pooled samples are dealt to clients: pure functions from labels to index arrays, `PARTITIONS`
by kind.

Every partition takes the labels and a key; what else it needs of the samples it declares by name
(`CONTEXT`): the number of classes, where the source's test rows or its clients begin, further
columns. The rest are its own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.data import dealing
from coterie.data.given import given
from coterie.data.majority import rfedavg
from coterie.data.parts import Partition, Transform, load_partition, save_partition
from coterie.errors import DataError

__all__ = ["CONTEXT", "PARTITIONS", "Partition", "load_partition", "save_partition"]

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
CONTEXT = frozenset({"labels", "key", "classes", "train_rows", "columns", "offsets"})
FIRST = 5  # samples of each of its classes that every client gets before sizes are drawn
TRIES = 10_000


def power_law(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    clients: Count = 1000,
    classes_per_client: Count = 2,
) -> Partition:
    """FedProx's MNIST: consecutive classes per client, sizes by a power law, 90/10 split of the
    pooled samples.

    Client ``u`` holds the classes ``(u + j) mod c``; 5 samples of each first, then ``int`` of a
    lognormal(0, 2) share of what is left of the class, skipped if it would overrun; each client's
    samples are shuffled and cut at ``int(0.9 n)``.

    Args:
        labels: int64 ``[S]``; the source's own split is not looked at.
        key: the stream that draws.
        classes: number of classes ``c``.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.

    Raises:
        DataError: if there are too few samples for so many clients; it says how many can be served.

    Example:
        >>> parts = power_law(np.repeat(np.arange(10), 200), Key(0), classes=10, clients=20)
        >>> parts.clients, min(len(a) + len(b) for a, b in zip(parts.train, parts.test)) >= 10
        (20, True)
    """
    held = dealing.consecutive(clients, classes, classes_per_client)
    pools = dealing.pools(labels, classes)
    dealing.check_room(held, pools, FIRST)
    slot = np.arange(classes_per_client)
    blocks = -(-clients // classes)
    shares = key.of("sizes").generator().lognormal(0, 2, (classes, blocks, classes_per_client))
    user = (
        np.arange(blocks)[:, None] * classes + (np.arange(classes)[:, None, None] - slot) % classes
    )
    shares[user >= clients] = 0  # nobody has that share
    left = np.array([len(pool) - FIRST * (held == c).sum() for c, pool in enumerate(pools)])
    total = np.maximum(shares.sum((1, 2), keepdims=True), np.finfo(float).tiny)
    extra = (left[:, None, None] * shares / total).astype(np.int64)
    at = np.zeros(classes, np.int64)
    rows: list[list[IntArray]] = [[] for _ in range(clients)]
    for u, j in np.ndindex(held.shape):
        c = held[u, j]
        rows[u].append(pools[c][at[c] : at[c] + FIRST])
        at[c] += FIRST
    for u, j in np.ndindex(held.shape):
        c = held[u, j]
        more = extra[held[u, j], u // classes, j]
        if at[c] + more < len(pools[c]):
            rows[u].append(pools[c][at[c] : at[c] + more])
            at[c] += more
    return dealing.cut([np.concatenate(r) for r in rows], key, 0.1)


def by_classes(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    clients: Count = 1000,
    classes_per_client: Count = 2,
) -> Partition:
    """Random classes per client, sizes by a power law, every sample of a held class dealt once;
    90/10 split.

    Each client draws ``classes_per_client`` distinct classes; a class gives 5 samples to each of
    its holders and the rest by lognormal(0, 2) shares, without replacement (Table 1 of FedGroup).

    Args:
        labels: int64 ``[S]``; the source's own split is not looked at.
        key: the stream that draws.
        classes: number of classes ``c``.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.

    Raises:
        DataError: if there are too few samples for so many clients; it says how many can be served.

    Example:
        >>> parts = by_classes(np.repeat(np.arange(10), 200), Key(0), classes=10, clients=50, classes_per_client=1)
        >>> parts.samples
        2000
    """
    dealing.check_classes(classes_per_client, classes)
    every = np.tile(np.arange(classes), (clients, 1))
    held = key.of("classes").generator().permuted(every, axis=1)[:, :classes_per_client]
    pools = [
        key.of("order").client(c).generator().permutation(p)
        for c, p in enumerate(dealing.pools(labels, classes))
    ]
    dealing.check_room(held, pools, FIRST)
    rng = key.of("sizes").generator()
    rows: list[list[IntArray]] = [[] for _ in range(clients)]
    for c, pool in enumerate(pools):
        holders = np.flatnonzero((held == c).any(1))
        if len(holders):
            counts = FIRST + dealing.apportion(
                rng.lognormal(0, 2, len(holders)), len(pool) - FIRST * len(holders)
            )
            for u, part in zip(holders, dealing.deal(pool, counts), strict=True):
                rows[u].append(part)
    return dealing.cut([np.concatenate(r) for r in rows], key, 0.1)


def dirichlet(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    train_rows: int,
    clients: Count = 100,
    beta: Annotated[float, Field(gt=0)] = 0.1,
    min_size: Annotated[int, Field(ge=0)] = 10,
    test: Literal["proportional", "labels_present"] = "proportional",
) -> Partition:
    """Dirichlet label skew as in NIID-Bench: each class is split by Dir(beta) over the clients,
    sizes kept balanced.

    Class by class, clients that already hold ``n/N`` samples get nothing; all is drawn anew until
    every client has ``min_size``. The training rows are all dealt, each once. A source without a
    test split gives a random tenth of each class.

    Args:
        labels: int64 ``[S]``.
        key: the stream that draws.
        classes: number of classes ``c``.
        train_rows: where the source's test rows begin.
        clients: number of clients ``N``.
        beta: concentration; small is skewed.
        min_size: least training samples of a client.
        test: ``proportional``: test rows of a class are split as its training rows are;
            ``labels_present``: a client is tested on all test rows of every class it holds, which
            clients then share (PACFL's code).

    Raises:
        DataError: if no draw gives every client ``min_size`` samples.

    Example:
        >>> parts = dirichlet(np.repeat(np.arange(4), 100), Key(0), classes=4, train_rows=400, clients=5, beta=0.5)
        >>> sum(map(len, parts.train)), min(map(len, parts.train)) >= 10
        (360, True)
    """
    train, tests = dealing.own_or_tenth(labels, key, classes, train_rows)
    sizes = np.array([len(pool) for pool in train])
    if min_size * clients > sizes.sum():
        raise DataError(
            f"data.partition.clients: {sizes.sum()} training samples cannot give {min_size} to each, got {clients}; "
            f"expected at most {sizes.sum() // max(1, min_size)}"
        )
    counts = _dirichlet_counts(key.of("shares").generator(), sizes, clients, beta, min_size)
    mixed = [
        key.of("order").client(c).generator().permutation(pool) for c, pool in enumerate(train)
    ]
    rows = dealing.deal_classes(mixed, counts)
    if test == "labels_present":
        return Partition(
            rows, tuple(dealing.join([tests[c] for c in np.flatnonzero(held)]) for held in counts)
        )
    shares = [dealing.apportion(counts[:, c], len(pool)) for c, pool in enumerate(tests)]
    return Partition(rows, dealing.deal_classes(tests, np.stack(shares, axis=1)))


def ditto(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    train_rows: int,
    clients: Count = 500,
    classes_per_client: Count = 5,
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 233,
) -> Partition:
    """Ditto's Fashion-MNIST: consecutive classes, lognormal sizes and shares, train and test dealt
    alike.

    Sizes ``lognormal(3, 1) + 10`` scaled to the training rows; client ``u`` holds the classes ``(u
    + j) mod c`` by lognormal(1, 1) shares ``p``: ``int(p n) + 1`` training and ``int(p n / 6) + 1``
    test samples. A class that runs out is read from its start again, so clients may share samples.
    The draws are NumPy's legacy ones from ``seed``, so that Fashion-MNIST gives the generator's own
    61,251 + 11,254 samples.

    Args:
        labels: int64 ``[S]``.
        key: not used: the recipe fixes its own seed.
        classes: number of classes ``c``.
        train_rows: where the source's test rows begin.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds.
        seed: of the draws.

    Raises:
        DataError: if the source has no test split, or too few samples of a class for one client.

    Example:
        >>> labels = np.tile(np.arange(10), 70)
        >>> parts = ditto(labels, Key(0), classes=10, train_rows=600, clients=20)
        >>> parts.clients, len(np.unique(labels[parts.train[3]]))
        (20, 5)
    """
    dealing.needs_test(labels, train_rows, "ditto")
    held = dealing.consecutive(clients, classes, classes_per_client)
    rng = np.random.RandomState(
        seed
    )  # a local generator; the recipe's numbers come from this one alone
    sizes = rng.lognormal(3, 1, clients) + 10
    sizes = train_rows * sizes / sizes.sum()
    shares = np.stack([rng.lognormal(1, 1, classes_per_client) for _ in range(clients)])
    wanted = shares / shares.sum(1, keepdims=True) * sizes[:, None]
    train = dealing.read_round(
        dealing.pools(labels[:train_rows], classes), held, wanted.astype(np.int64) + 1
    )
    tests = [pool + train_rows for pool in dealing.pools(labels[train_rows:], classes)]
    return Partition(train, dealing.read_round(tests, held, (wanted / 6).astype(np.int64) + 1))


def femnist10(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    clients: Count = 200,
    classes_per_client: Count = 3,
    overlap: Literal["disjoint", "released"] = "disjoint",
    per_class: Count = 4000,
) -> Partition:
    """FedProx's FEMNIST of 10 letters: consecutive classes, lognormal sizes, 90/10 split of the
    pooled samples.

    Client ``u`` holds the classes ``(u + j) mod c`` in equal parts of ``max(2, int(n /
    classes_per_client))`` with ``n ~ lognormal(4, 1) + 5``, from a pool of ``per_class`` random
    samples of each class.

    Args:
        labels: int64 ``[S]``; the source's own split is not looked at.
        key: the stream that draws.
        classes: number of classes ``c``.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds (3 in the released script, 5 in the
            paper's text).
        overlap: ``disjoint``: no sample goes to two clients; ``released``: as the released script
            does it, every client reads each class from its start, so that clients share samples and
            one tests on what another trains on.
        per_class: size of the pool of each class.

    Raises:
        DataError: if a pool runs out (``disjoint``); it says how many clients it can serve.

    Example:
        >>> parts = femnist10(np.repeat(np.arange(10), 400), Key(3), classes=10, clients=20)
        >>> len(np.unique(np.concatenate([*parts.train, *parts.test]))) == parts.samples
        True
    """
    held = dealing.consecutive(clients, classes, classes_per_client)
    pools = [
        key.of("pool").client(c).generator().permutation(pool)[:per_class]
        for c, pool in enumerate(dealing.pools(labels, classes))
    ]
    sizes = key.of("sizes").generator().lognormal(4, 1, clients) + 5
    each = np.maximum(2, (sizes / classes_per_client).astype(np.int64))
    pairs = list(zip(held, each, strict=True))
    if overlap == "released":
        return dealing.cut([np.concatenate([pools[c][:n] for c in h]) for h, n in pairs], key, 0.1)
    at = np.zeros(classes, np.int64)
    rows = []
    for u, (h, n) in enumerate(pairs):
        if any(at[c] + n > len(pools[c]) for c in h):
            raise dealing.too_many(clients, u)
        rows.append(np.concatenate([pools[c][at[c] : at[c] + n] for c in h]))
        at[h] += n
    return dealing.cut(rows, key, 0.1)


def natural(
    labels: IntArray,
    key: Key,
    /,
    *,
    train_rows: int,
    columns: Mapping[str, NDArray[Any]],
    column: str = "client",
    min_size: Count = 2,
    test_fraction: Fraction = 0.1,
    split: Literal["auto", "source", "random"] = "auto",
) -> Partition:
    """One client per value of a column of the data: a writer, a site, a user.

    Args:
        labels: int64 ``[S]``.
        key: the stream that splits.
        train_rows: where the source's test rows begin.
        columns: the columns of the samples.
        column: which of them names the client.
        min_size: clients with fewer samples, train and test together, are left out.
        test_fraction: share of each client's samples to test on, in a random split.
        split: ``source``: keep the source's train and test rows; ``random``: pool and split each
            client's samples; ``auto``: keep them if some client has both.

    Raises:
        DataError: if there is no such column, or no client is large enough.

    Example:
        >>> sites = np.array(["b", "a", "a", "b", "c"])
        >>> parts = natural(np.zeros(5, np.int64), Key(0), train_rows=5, columns={"site": sites}, column="site")
        >>> parts.names, [len(rows) for rows in parts.train]
        (('a', 'b'), [1, 1])
    """
    if column not in columns:
        near = get_close_matches(column, list(columns), n=1)
        raise DataError(
            f"data.partition.column: the data have no such column, got {column!r}; expected one of "
            f"{', '.join(sorted(columns)) or '(none)'}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )
    names, owner = np.unique(columns[column], return_inverse=True)
    rows = dealing.groups(owner, len(names))
    kept = [i for i, r in enumerate(rows) if len(r) >= min_size]
    if not kept:
        raise DataError(
            f"data.partition.min_size: no client has so many samples, got {min_size}; "
            f"expected at most {max(map(len, rows), default=0)}"
        )
    rows = [rows[i] for i in kept]
    chosen = tuple(str(names[i]) for i in kept)
    if split == "source":
        dealing.needs_test(labels, train_rows, "natural with split = 'source'")
    both = np.intersect1d(owner[:train_rows], owner[train_rows:]).size > 0
    if split == "source" or (split == "auto" and both):
        return Partition(
            tuple(r[r < train_rows] for r in rows), tuple(r[r >= train_rows] for r in rows), chosen
        )
    parts = dealing.cut(rows, key, test_fraction)
    return Partition(parts.train, parts.test, chosen)


def iid(
    labels: IntArray,
    key: Key,
    /,
    *,
    train_rows: int,
    clients: Count = 100,
    test_fraction: Fraction = 0.1,
) -> Partition:
    """Every client a random share of equal size, of the train rows and of the test rows.

    Args:
        labels: int64 ``[S]``.
        key: the stream that shuffles.
        train_rows: where the source's test rows begin.
        clients: number of clients ``N``.
        test_fraction: share of each client's samples to test on, where the source has no test rows.

    Raises:
        DataError: if there are fewer training samples than clients.

    Example:
        >>> parts = iid(np.zeros(20, np.int64), Key(0), train_rows=16, clients=4)
        >>> [len(rows) for rows in parts.train], [len(rows) for rows in parts.test]
        ([4, 4, 4, 4], [1, 1, 1, 1])
    """
    if clients > train_rows:
        raise dealing.too_many(clients, train_rows)
    train = dealing.shuffled_split(np.arange(train_rows), key.of("train"), clients)
    if train_rows == len(labels):
        return dealing.cut(train, key, test_fraction)
    test = dealing.shuffled_split(np.arange(train_rows, len(labels)), key.of("test"), clients)
    return Partition(tuple(train), tuple(test))


def planted(
    labels: IntArray,
    key: Key,
    /,
    *,
    classes: int,
    clients: Count = 60,
    groups: Count = 3,
    how: Literal["labels", "swap", "rotate"] = "labels",
    test_fraction: Fraction = 0.2,
    size: Annotated[int, Field(ge=2)] | None = None,
) -> Partition:
    """A federation with known groups: client `i` is of group `i mod groups`; the truth is kept as
    `planted`.

    Args:
        labels: int64 ``[S]``; all samples are pooled and none is dealt twice.
        key: the stream that shuffles.
        classes: number of classes ``c``.
        clients: number of clients ``N``.
        groups: number of planted groups.
        how: ``labels``: each group has its own classes; ``swap``: each group has its own
            permutation of the labels, and no two groups agree on any; ``rotate``: the images of
            group ``g`` are turned by ``90 g`` degrees.
        test_fraction: share of each client's samples to test on.
        size: most samples of a client, training and test together; ``None``: all samples are dealt.

    Raises:
        DataError: if there are too few samples, classes or clients.

    Example:
        >>> labels = np.repeat(np.arange(6), 50)
        >>> parts = planted(labels, Key(0), classes=6, clients=6, groups=2)
        >>> parts.planted.tolist(), sorted(set(labels[parts.train[0]].tolist()))
        ([0, 1, 0, 1, 0, 1], [0, 1, 2])
    """
    limit = min(clients, 4 if how == "rotate" else classes)
    if groups > limit:
        raise DataError(
            f"data.partition.groups: too many for {clients} clients and how = {how!r}, got {groups}; "
            f"expected 1 to {limit}"
        )
    if clients * 2 > len(labels):
        raise dealing.too_many(clients, len(labels) // 2)
    group = np.arange(clients) % groups
    if how == "labels":
        rows = _own_classes(labels, key, classes, group, groups)
    else:
        rows = dealing.shuffled_split(np.arange(len(labels)), key.of("order"), clients)
    parts = dealing.cut([own[:size] for own in rows], key, test_fraction)
    transform: Transform = {"labels": "", "swap": "relabel", "rotate": "rotate"}[how]  # type: ignore[assignment]
    table = _permutations(key, classes, groups) if how == "swap" else None
    return Partition(parts.train, parts.test, (), group, transform, table)


PARTITIONS: MappingProxyType[str, Callable[..., Partition]] = MappingProxyType(
    {
        "power_law": power_law,
        "classes": by_classes,
        "dirichlet": dirichlet,
        "ditto": ditto,
        "femnist10": femnist10,
        "natural": natural,
        "iid": iid,
        "planted": planted,
        "rfedavg": rfedavg,
        "given": given,
    }
)


def _dirichlet_counts(
    rng: np.random.Generator, sizes: IntArray, clients: int, beta: float, least: int
) -> IntArray:
    for _ in range(TRIES):
        counts = np.zeros((clients, len(sizes)), np.int64)
        for c, size in enumerate(sizes):
            shares: FloatArray = rng.dirichlet(np.full(clients, beta))
            shares = shares * (counts.sum(1) < sizes.sum() / clients)
            if not shares.sum() > 0:
                break
            edges = (np.cumsum(shares / shares.sum()) * size).astype(np.int64)
            edges[-1] = size
            counts[:, c] = np.diff(edges, prepend=0)
        else:
            if counts.sum(1).min() >= least:
                return counts
    raise DataError(
        f"data.partition: no Dirichlet split in {TRIES} draws gives every client min_size samples, got "
        f"clients = {clients}, beta = {beta}, min_size = {least}; "
        "expected fewer clients, a larger beta or a smaller min_size"
    )


def _own_classes(
    labels: IntArray, key: Key, classes: int, group: IntArray, groups: int
) -> list[IntArray]:
    rows: list[IntArray] = [np.empty(0, np.int64)] * len(group)
    for g, own in enumerate(np.array_split(np.arange(classes), groups)):
        members = np.flatnonzero(group == g)
        dealt = dealing.shuffled_split(
            np.flatnonzero(np.isin(labels, own)), key.of("order").client(g), len(members)
        )
        if min(map(len, dealt)) < 2:
            raise dealing.too_many(len(group), groups * (sum(map(len, dealt)) // 2))
        for u, part in zip(members, dealt, strict=True):
            rows[u] = part
    return rows


def _permutations(key: Key, classes: int, groups: int) -> IntArray:
    """One permutation of the labels per group, the first the identity, no two alike in any
    class."""
    order = key.of("labels").generator().permutation(classes)
    table = np.empty((groups, classes), np.int64)
    for g in range(groups):
        table[g, order] = np.roll(order, -g * (classes // groups))
    return table

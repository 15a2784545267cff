"""Balanced groups: different clients put together so that every group looks like the whole.

The growth of the number of groups, inter-cluster grouping (ICG) and Astraea's mediators. Pure
functions from label histograms ``[n, c]`` to the group of each client.

Sources: Zeng et al., "Heterogeneous Federated Learning via Grouped Sequential-to-Parallel Training"
(FedGSP, 2022); Duan et al., "Astraea: Self-balancing Federated Learning" (2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core import NO_GROUP, IntArray, Key, one_library_thread
from coterie.core.startup import starting_up
from coterie.math.similarity import Matrix
from coterie.math.transport import SOLVERS, Exact, integer_costs

Growth = Literal["linear", "log", "exp"]
Leftover = Literal["idle", "append", "exact"]
Init = Literal["random", "k-means++"]

# Floors sit on exact integers, which a product like 0.1 * 30 may miss from below.
_SLACK = 1e-9

# The exponential of more than about 709 is beyond float64.
_LOG_LARGEST = 700.0

# Zeros of label counts, before a logarithm or a division.
_TINY = 1e-12


# --- how many groups ------------------------------------------------------------------------------


def grow(growth: Growth, round: int, alpha: float, beta: int, most: int) -> int:
    """Number of groups in round ``r``, counted from 1, clipped to ``1..most`` (FedGSP eq. 1-3).

    ``linear``: ``beta floor(alpha (r-1) + 1)``; ``log``: ``beta floor(alpha ln r + 1)``; ``exp``:
    ``beta floor((1 + alpha)^(r-1))``.

    Args:
        alpha: growth rate, > 0.
        beta: first number of groups and span of growth, >= 1.

    Example:
        >>> [grow("log", r, 2.0, 10, 368) for r in range(1, 11)]
        [10, 20, 30, 30, 40, 40, 40, 50, 50, 50]
        >>> grow("exp", 10_000, 2.0, 10, 368)
        368
    """
    r = max(1, round)
    if growth == "linear":
        value = alpha * (r - 1) + 1
    elif growth == "log":
        value = alpha * math.log(r) + 1
    elif (r - 1) * math.log1p(alpha) < _LOG_LARGEST:
        value = (1 + alpha) ** (r - 1)
    else:
        value = math.inf
    # Clipped before the floor, which infinity does not have, and after it.
    return max(1, min(most, beta * math.floor(min(value, most) + _SLACK)))


def groups_sampled(kappa: float, groups: int) -> int:
    """Groups that take part in a round: ``kappa`` of them, rounded half up, at least one.

    The paper does not say how to round. Python's own rounding takes a half to the even number.

    Example:
        >>> [groups_sampled(0.3, m) for m in (1, 5, 10, 130)]
        [1, 2, 3, 39]
    """
    return max(1, math.floor(kappa * groups + 0.5 + _SLACK))


# --- inter-cluster grouping -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EqualKMeans:
    """How clusters of equal size are found.

    Args:
        iterations: ``tau``, the most assignments.
        init: centroids start at ``L`` distinct clients, chosen evenly or by k-means++. The paper
            does not say where.
        solver: ``transport``, ``matching`` (scipy) or ``flow`` (OR-Tools); all exact.
    """

    iterations: int = 10
    init: Init = "random"
    solver: Exact = "transport"


_DEFAULT = EqualKMeans()


@dataclass(frozen=True, slots=True)
class EqualClusters:
    """Clusters ``label [n]``, and ``sum_k 1/2 |V^k - C_l|^2`` after every assignment (eq. 10),
    which never increases."""

    label: IntArray
    objective: tuple[float, ...] = ()


def equal_clusters(
    features: Matrix, clusters: int, key: Key, how: EqualKMeans = _DEFAULT
) -> EqualClusters:
    """K-means with clusters of exactly ``S = n / L`` clients (FedGSP eq. 10-13, Alg. 2 l. 2-5).

    Assignment and centroids alternate until no client moves, at most ``tau`` times. With counts for
    features all is exact: costs are kept as ``|T_l|^2 / 2 - S <V^k, T_l>``, with ``T_l = S C_l``
    the sum of a cluster. These are integers, so ties stay ties on every machine.
    """
    n = len(features)
    size = n // clusters
    assert size * clusters == n, (n, clusters)
    if clusters == 1 or size == 1:
        return EqualClusters(np.arange(n) % clusters)
    # The part of the objective that no assignment changes.
    fixed = 0.5 * float((features**2).sum())
    label = np.full(n, -1)
    objective = []
    with one_library_thread():
        total = size * features[_first_centroids(features, clusters, key, how.init)]
        for _ in range(how.iterations):
            cost = 0.5 * (total**2).sum(axis=1) - size * (features @ total.T)
            found = SOLVERS[how.solver](integer_costs(cost), size)
            objective.append(fixed + float(cost[np.arange(n), found].sum()) / size**2)
            if np.array_equal(found, label):
                break
            label = found
            # All clusters have the same size, so sorted by cluster they are a block each.
            by_cluster = features[np.argsort(label, kind="stable")]
            total = by_cluster.reshape(clusters, size, -1).sum(axis=1)
    return EqualClusters(label, tuple(objective))


def _first_centroids(features: Matrix, clusters: int, key: Key, init: Init) -> IntArray:
    with starting_up():
        from sklearn.cluster import kmeans_plusplus

    stream = key.of("centroids")
    if init == "random":
        return stream.generator().choice(len(features), clusters, replace=False)
    chosen: IntArray
    _, chosen = kmeans_plusplus(features, clusters, random_state=stream.seed32())
    return chosen


def inter_cluster(
    histograms: Matrix,
    groups: int,
    key: Key,
    leftover: Leftover = "idle",
    normalize: bool = False,
    how: EqualKMeans = _DEFAULT,
) -> IntArray:
    """Inter-cluster grouping: ``M`` groups with one client of each cluster (FedGSP Alg. 2).

    There are ``L = floor(K / M)`` clusters of similar clients; a group has ``L`` clients that
    differ.

    Args:
        histograms: ``[K, c]``, the label counts of the clients.
        leftover: ``idle``: clusters of ``S = floor(K / L)``, of which ``M`` each are used, and ``K
            - L M`` clients sit out, as Alg. 2 has it; ``append``: those join distinct groups at
            random; ``exact``: ``L M`` clients are chosen first and make clusters of ``M``.
        normalize: class shares instead of counts, so that large clients do not dominate.

    Returns:
        int64 ``[K]``, the group of each client, -1 for one that sits out.

    Example:
        >>> histograms = np.array([[9, 0], [0, 9], [8, 0], [0, 8]])
        >>> inter_cluster(histograms, 2, Key(1)).tolist()
        [0, 1, 1, 0]
    """
    n = len(histograms)
    assert 1 <= groups <= n, (groups, n)
    if groups == 1:
        return np.zeros(n, np.int64)
    rng = key.of("deal").generator()
    clusters = n // groups
    size = groups if leftover == "exact" else n // clusters
    # Sorted, so that the clusters depend on who was chosen and not on the order.
    chosen = np.sort(rng.permutation(n)[: clusters * size])
    features = np.asarray(histograms, np.float64)
    if normalize:
        features = features / np.maximum(features.sum(axis=1, keepdims=True), _TINY)
    label = equal_clusters(features[chosen], clusters, key, how).label
    group = np.full(n, NO_GROUP)
    for cluster in range(clusters):
        members = rng.permutation(chosen[label == cluster])
        group[members[:groups]] = np.arange(groups)
    if leftover == "append":
        # Fewer clients are left than there are groups, so no group gets two of them.
        idle = np.flatnonzero(group < 0)
        group[idle] = rng.permutation(groups)[: len(idle)]
    return group


# --- other ways to make groups --------------------------------------------------------------------


def random_equal_groups(clients: int, groups: int, key: Key) -> IntArray:
    """Random groups whose sizes differ by one at most: int64 ``[clients]`` (NaiveGSP).

    Example:
        >>> np.bincount(random_equal_groups(7, 3, Key(0))).tolist()
        [3, 2, 2]
    """
    group = np.empty(clients, np.int64)
    group[key.of("deal").generator().permutation(clients)] = np.arange(clients) % groups
    return group


def mediators(histograms: Matrix, most: int) -> tuple[IntArray, IntArray]:
    """Astraea's mediators: groups filled one after another, so that each has even labels.

    The client comes next that brings the mediator's labels nearest to uniform: ``argmin_i KL((P_m +
    h_i) / |P_m + h_i| || uniform)`` over the clients left, until the mediator has ``most`` of them.
    Zeros are smoothed with 1e-12; ties go to the first client.

    Args:
        most: clients per mediator, ``gamma``.

    Returns:
        int64 ``[n]`` and ``[n]``: clients in the order they were taken, and the mediator of each of
        these.

    Example:
        >>> histograms = np.array([[9, 0], [9, 0], [0, 9], [0, 9]])
        >>> order, mediator = mediators(histograms, 2)
        >>> order.tolist(), mediator.tolist()
        ([0, 2, 1, 3], [0, 0, 1, 1])
    """
    n, classes = histograms.shape
    left = np.arange(n)
    order = []
    held = np.zeros(classes)
    for at in range(n):
        if at % most == 0:
            held = np.zeros(classes)
        counts = held + histograms[left] + _TINY
        shares = counts / counts.sum(axis=1, keepdims=True)
        divergence = (shares * np.log(shares * classes)).sum(axis=1)
        best = int(divergence.argmin())
        order.append(left[best])
        held = held + histograms[left[best]]
        left = np.delete(left, best)
    return np.array(order, np.int64), np.arange(n) // most

"""Clients to be left out before clusters are formed: those whose updates or losses are far from all
others, whose updates are against all others or copies, and whose losses contradict those of others."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from coterie.core.arrays import BoolArray, FloatArray
from coterie.math.similarity import Matrix

# Robust standard deviations beyond which a point is an outlier.
FAR = 3.0
_TO_SIGMA = 1.4826  # times the median absolute deviation: the standard deviation of a Gaussian


def far_from_neighbours(distance: Matrix, clusters: int) -> BoolArray:
    """The points whose neighbours are unusually far, bool ``[n]``.

    The score of a point is the mean distance to its ``max(2, n // (2 clusters))`` nearest
    neighbours, so many as half of an average cluster has. A point is an outlier if its score is more
    than three robust standard deviations above the median, ``score_i > med + 3 * 1.4826 * med |score
    - med|``. These are fewer than half of the points.

    Points in more than half of an average cluster, close to each other, have near neighbours: they
    are a cluster, and no outliers.

    Args:
        clusters: how many there are, at least about.

    Source: Ramaswamy et al., Efficient Algorithms for Mining Outliers from Large Data Sets (2000),
    the distance to neighbours; Iglewicz and Hoaglin (1993), the median in place of the mean.

    Example:
        >>> at = np.array([0.0, 0.1, 0.2, 0.3, 5.0, 5.1, 5.2, 5.3, 90.0])
        >>> far_from_neighbours(np.abs(at[:, None] - at), 2).nonzero()[0].tolist()
        [8]
    """
    n = len(distance)
    neighbours = max(2, n // (2 * clusters))
    if n <= neighbours + 1:
        return np.zeros(n, bool)
    # The first of each sorted row is the point itself. Whole rows are not sorted: of 4,096 points
    # that takes longer than their clustering.
    nearest = np.partition(distance, neighbours, axis=1)[:, : neighbours + 1]
    score = np.sort(nearest, axis=1)[:, 1:].mean(axis=1)
    middle = np.median(score)
    sigma = _TO_SIGMA * np.median(np.abs(score - middle))
    # The least share of the median: among equal points, rounding makes no outliers.
    return score > middle + FAR * max(float(sigma), 0.01 * float(middle))


def contradicted(losses: FloatArray) -> BoolArray:
    """The clients whose losses contradict those of the others, bool ``[n]``.

    If ``i`` does well with the model of ``j``, then ``j`` mostly does well with the model of ``i``.
    The score of ``i`` is the median over ``j`` of ``|log(L_ij / L_ji)|``. A client is contradicted if
    its score is more than three robust standard deviations above the median score, and losses differ
    by more than a factor of two. So a client that reports losses of zero is found, which would be
    near to everybody. Losses below a thousandth of the median count as that.

    Args:
        losses: float64 ``[n, n]``, of the model of client ``i`` on the data of client ``j``, reported
            by ``j``.

    Source: Coterie; the robust score is that of Iglewicz and Hoaglin (1993).

    Example:
        >>> losses = np.full((5, 5), 0.3)
        >>> losses[:, 2] = 0.0
        >>> contradicted(losses).nonzero()[0].tolist()
        [2]
    """
    n = len(losses)
    if n < 3:
        return np.zeros(n, bool)
    least = max(1e-3 * float(np.median(losses)), np.finfo(float).tiny)
    logs = np.log(np.maximum(losses, least))
    others = ~np.eye(n, dtype=bool)
    score = np.median(np.abs(logs - logs.T)[others].reshape(n, n - 1), axis=1)
    middle = np.median(score)
    sigma = _TO_SIGMA * np.median(np.abs(score - middle))
    return score > max(float(middle + FAR * sigma), np.log(2))


def against_the_others(updates: Tensor) -> BoolArray:
    """The updates that point against the common direction, bool ``[n]``.

    The common direction ``c`` is the median of each coordinate over the updates, all made equally
    long. An update points against it if ``cos(u_i, c)`` is negative and more than three robust
    standard deviations below the median of these cosines. Training from a common model has a common
    part, whatever the group; a sign that is flipped turns it round, in however many updates fewer
    than half.

    Source: Coterie. The cosine with a reference update is that of Cao et al., FLTrust (2021), where
    the server has data of its own.

    Example:
        >>> import torch
        >>> updates = torch.tensor([[3.0, 1.0], [3.0, -1.0], [2.0, 0.5], [-3.0, 1.0], [3.0, 0.0]])
        >>> against_the_others(updates).nonzero()[0].tolist()
        [3]
    """
    rows = updates.flatten(1).numpy().astype(np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    common = np.median(rows, axis=0)
    size = np.linalg.norm(common)
    if size == 0:
        return np.zeros(len(rows), bool)
    cosines = (rows * (common / size)).sum(axis=1)
    middle = np.median(cosines)
    sigma = _TO_SIGMA * np.median(np.abs(cosines - middle))
    return (cosines < 0) & (cosines < middle - FAR * sigma)


def copies(updates: Tensor) -> BoolArray:
    """The updates that repeat an earlier one to the bit, bool ``[n]``.

    Training draws batches of its own for each client, so equal updates are hardly ever made by
    training. Attackers that agree on one update would be the closest cluster of all.

    Example:
        >>> import torch
        >>> copies(torch.tensor([[1.0], [2.0], [1.0], [1.0]])).tolist()
        [False, False, True, True]
    """
    rows = updates.flatten(1).numpy()
    _, first = np.unique(rows, axis=0, return_index=True)
    found = np.ones(len(rows), bool)
    found[first] = False
    return found


def outliers(updates: Tensor, distance: Matrix, clusters: int) -> BoolArray:
    """The updates that are far from all others, against all others, or copies, bool ``[n]``; none
    where that would be half of them or more.

    Example:
        >>> import torch
        >>> updates = torch.tensor([[3.0, 1.0], [3.0, -1.0], [2.0, 0.5], [-3.0, 1.0], [3.0, 0.0]])
        >>> outliers(updates, np.zeros((5, 5)), 1).nonzero()[0].tolist()
        [3]
    """
    found = copies(updates) | against_the_others(updates)
    # Among the others: those against them, if they are many, are near to each other.
    rest = ~found
    if found.any():
        distance = distance[np.ix_(rest, rest)]
    found[rest] = far_from_neighbours(distance, clusters)
    if 2 * found.sum() >= len(found):
        return np.zeros(len(found), bool)
    return found

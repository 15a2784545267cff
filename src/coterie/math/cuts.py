"""Where to cut a tree of merges: at a number of clusters, at the largest gap, or by silhouettes; and the radius
of clusters by density."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.startup import starting_up
from coterie.math.similarity import Matrix

# A gap between merge heights counts from this share of the last height on.
GAP = 0.1

# The mean silhouette that groups need where no gap is that wide, and the most that are looked for.
# Chosen on digits, see `docs/algorithms/fedclust.md`.
SILHOUETTE = 0.18
MOST = 50

# Points that are needed for silhouettes: those of fewer are as large by chance.
FEW = 16


def largest_gap(heights: FloatArray) -> float:
    """The height at which to cut a tree by its largest gap, which FedClust leaves open.

    With merge heights ``z_1 <= ... <= z_{n-1}``, the cut is in the middle of the largest gap
    ``z_{k+1} - z_k`` with ``k >= n/2``. If this gap is under a tenth of ``z_{n-1}``, there is one
    cluster, and the height is ``z_{n-1} / 0.9``: a point farther away would open a gap of a tenth.
    The height is infinite if all points coincide.

    Args:
        heights: float64 ``[n-1]``, ascending.

    Example:
        >>> largest_gap(np.array([1.0, 1.0, 1.5, 6.0, 7.0]))
        3.75
        >>> largest_gap(np.array([8.0, 8.5, 9.0]))
        10.0
    """
    last = float(heights.max(initial=0))
    first = _first_merge(len(heights) + 1)
    gaps = np.diff(heights[first:])
    if last == 0 or not len(gaps) or gaps.max() < GAP * last:
        return above_last(heights)
    at = first + int(gaps.argmax())
    return float(heights[at] + heights[at + 1]) / 2


def above_last(heights: FloatArray) -> float:
    """The height of a cut above all merges, beyond which a point would open a gap of a tenth;
    infinite if all points coincide.

    Args:
        heights: float64 ``[n-1]``, ascending.

    Example:
        >>> above_last(np.array([8.0, 8.5, 9.0])), above_last(np.zeros(2))
        (10.0, inf)
    """
    last = float(heights.max(initial=0))
    if last == 0:
        return float("inf")
    return last / (1 - GAP)


def widest_gap(heights: FloatArray) -> float:
    """The gap that ``largest_gap`` considers, as a share of the last height; 0 if there is none.

    Args:
        heights: float64 ``[n-1]``, ascending.

    Example:
        >>> widest_gap(np.array([8.0, 8.5, 9.0, 10.0]))
        0.1
    """
    last = float(heights.max(initial=0))
    gaps = np.diff(heights[_first_merge(len(heights) + 1) :])
    if not len(gaps) or last == 0:
        return 0.0
    return float(gaps.max()) / last


def _first_merge(n: int) -> int:
    """The index of the first height whose gap counts.

    Early merges join pairs; a gap among them would leave more than half of the clients alone.
    """
    return -(-n // 2) - 1


def silhouette_count(distance: Matrix, tree: Matrix) -> int:
    """The number of clusters for which all points are nearer to their own cluster than to others.

    The distances between updates of many noisy values are all similar: clients of the same group
    are ``sqrt(2) s`` apart for noise of length ``s``, clients of groups that differ by ``D`` are
    ``sqrt(2 s^2 + D^2)``. Merge heights then have no wide gap, even though the tree is right. With
    ``a_i`` the mean distance of point ``i`` to the others of its cluster, and ``b_i`` to the
    nearest other cluster, its silhouette is ``(b_i - a_i) / max(a_i, b_i)``; a point alone in a
    cluster has 0. Of the cuts into 2 to ``min(n/2, 50)`` clusters in which every silhouette is
    positive, the answer is the one with the largest mean, if that is 0.18 or more. Otherwise, and
    for fewer than 16 points, it is one.

    Args:
        distance: ``[n, n]``, symmetric.
        tree: float64 ``[n-1, 4]``, its merges.

    Source: Rousseeuw, Silhouettes: A Graphical Aid to the Interpretation and Validation of Cluster
    Analysis (1987).

    Example:
        >>> from coterie.math.clustering import agglomerate
        >>> noise = np.random.default_rng(0).normal(size=(20, 400))
        >>> apart = noise + np.repeat(np.eye(400)[:2] * 20, 10, axis=0)
        >>> for points in (noise, apart):
        ...     distance = np.linalg.norm(points[:, None] - points, axis=2)
        ...     print(silhouette_count(distance, agglomerate(distance, count=1).tree))
        1
        2
    """
    n = len(distance)
    if n < FEW:
        return 1
    best = SILHOUETTE
    answer = 1
    for count in range(2, min(n // 2, MOST) + 1):
        labels = cut_after(tree, n - count)
        # Finer cuts have the same single points, whose silhouettes are 0.
        if (np.bincount(labels) == 1).any():
            break
        found = silhouettes(distance, labels)
        mean = float(found.mean())
        if (found > 0).all() and mean >= best:
            best = mean
            answer = count
    return answer


def silhouettes(distance: Matrix, labels: IntArray) -> FloatArray:
    """Rousseeuw's silhouettes of the points of two or more clusters.

    Args:
        distance: ``[n, n]``, symmetric; its diagonal is not used.
        labels: int64 ``[n]`` in ``0..k-1``, ``k >= 2``.

    Returns:
        float64 ``[n]`` in -1..1; 0 if all distances are 0, and for a point alone in its cluster.

    Example:
        >>> x = np.array([0.0, 1.0, 8.0, 9.0])
        >>> silhouettes(np.abs(np.subtract.outer(x, x)), np.array([0, 0, 1, 1])).round(2).tolist()
        [0.88, 0.87, 0.87, 0.88]
    """
    points = np.arange(len(labels))
    apart = distance.copy()
    np.fill_diagonal(apart, 0)
    sizes = np.bincount(labels)
    total = apart @ np.eye(len(sizes))[labels]
    own = total[points, labels] / np.maximum(sizes[labels] - 1, 1)
    mean = total / sizes
    mean[points, labels] = np.inf
    other = mean.min(axis=1)
    larger = np.maximum(own, other)
    defined = (larger > 0) & (sizes[labels] > 1)
    return np.divide(other - own, larger, out=np.zeros_like(own), where=defined)


# --- labels of a cut ------------------------------------------------------------------------------


def cut_after(tree: Matrix, merges: int) -> IntArray:
    """The labels after a number of merges of a tree.

    scipy cuts at heights, which cannot separate merges of equal height.

    Args:
        tree: float64 ``[n-1, 4]``, as scipy writes it.
        merges: number of merges that are done, from the lowest.

    Returns:
        int64 ``[n]``, numbered by first appearance.
    """
    n = len(tree) + 1
    root = np.arange(n + merges)
    for at, pair in enumerate(tree[:merges, :2].astype(np.int64)):
        root[pair] = n + at
    # From the last merge down each node takes the root of its parent, which is already final.
    for node in range(n + merges - 1, -1, -1):
        root[node] = root[root[node]]
    return by_first_appearance(root[:n])


def middle_of_gap(heights: FloatArray, merges: int) -> float:
    """The height half-way between the last merge that is done and the next one; infinite if there
    is none.

    Args:
        heights: float64 ``[n-1]``, ascending.
        merges: number of merges that are done.

    Example:
        >>> middle_of_gap(np.array([1.0, 3.0]), 1)
        2.0
    """
    if merges >= len(heights):
        return float("inf")
    done = heights[merges - 1] if merges else 0
    return float(heights[merges] + done) / 2


def by_first_appearance(labels: IntArray) -> IntArray:
    """The same partition with labels in order of first appearance.

    Libraries number clusters arbitrarily; a run must not depend on that.

    Args:
        labels: int64 ``[n]``.

    Example:
        >>> by_first_appearance(np.array([2, 2, 0])).tolist()
        [0, 0, 1]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


# --- density --------------------------------------------------------------------------------------


# How far the curve must fall behind a maximum to make it a knee, in steps of the abscissa.
SENSITIVITY = 1.0


def knee(values: FloatArray) -> int:
    """Where an ascending convex curve begins to rise steeply, by Kneedle.

    Both axes are scaled to 0..1. The curve ``x - y`` is read from its right end. Its first local
    maximum is the knee, if the curve falls by one step behind it before it rises again, or below 0.

    Args:
        values: float64 ``[n]``, ascending, at least one.

    Returns:
        The index of the knee; the last one if there is none.

    Source: Satopaa et al., Finding a "Kneedle" in a Haystack (2011), with sensitivity 1.

    Example:
        >>> knee(np.array([1.0, 1.1, 1.2, 1.3, 5.0, 9.0]))
        3
    """
    with starting_up():
        from scipy.signal import argrelextrema

    n = len(values)
    span = values[-1] - values[0]
    if n < 3 or span == 0:
        return n - 1
    x = np.linspace(0.0, 1.0, n)
    # The same curve seen from its right end, where it is concave.
    difference = np.flip(values[-1] - values) / span - x
    maxima = set(argrelextrema(difference, np.greater_equal)[0].tolist())
    minima = set(argrelextrema(difference, np.less_equal)[0].tolist())
    found = None
    threshold = 0.0
    for at in range(n - 1):
        if at in maxima:
            found = at
            threshold = difference[at] - SENSITIVITY * x[1]
        if at in minima:
            threshold = 0.0
        if found is not None and difference[at + 1] < threshold:
            return n - 1 - found
    return n - 1


def adaptive_radius(distance: Matrix) -> float:
    """FLUX's radius for DBSCAN: the knee of all points' distances to their nearest neighbour.

    Args:
        distance: ``[n, n]``, symmetric, with zeros on the diagonal.

    Returns:
        The radius; 0 for fewer than two points.

    Source: Fenoglio et al., FLUX (2025), adaptive DBSCAN, with Kneedle as the reference code.

    Example:
        >>> at = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.25, 9.0])
        >>> round(adaptive_radius(np.abs(np.subtract.outer(at, at))), 2)
        0.15
    """
    if len(distance) < 2:
        return 0.0
    others = distance + np.diag(np.full(len(distance), np.inf))
    nearest = np.sort(others.min(axis=1))
    return float(nearest[knee(nearest)])

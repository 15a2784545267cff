"""Features or distances to labels ``0..m-1``, every label in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.threads import one_library_thread
from coterie.math.similarity import Matrix

Linkage = Literal["average", "complete", "single", "ward", "weighted"]
GAP = 0.1


@dataclass(frozen=True, slots=True)
class Clusters:
    """What agglomerative clustering found.

    Args:
        labels: int64 ``[n]`` in ``0..count-1``, numbered by first appearance.
        tree: float64 ``[n-1, 4]``, the merges as ``scipy.cluster.hierarchy.linkage`` writes them.
        threshold: the height ``lambda`` of the cut: what lies farther apart is not merged.
    """

    labels: IntArray
    tree: Matrix
    threshold: float

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.labels.max(initial=-1)) + 1


def agglomerate(
    distance: Matrix,
    method: Linkage = "average",
    threshold: float | Literal["auto"] = "auto",
    count: int | None = None,
) -> Clusters:
    """Agglomerative hierarchical clustering of a distance matrix, cut at a height, at a number, or
    at the largest gap.

    - ``threshold``: clusters merge while they are at most that far apart.
    - ``count``: that many clusters (or ``n``, where there are fewer); ``lambda`` is then the middle
      of the gap.
    - ``auto``: see ``largest_gap``.

    Args:
        distance: ``[n, n]``, symmetric.
        method: ``average`` (UPGMA), ``complete``, ``single``, ``ward``, ``weighted`` (WPGMA, what
            PACFL's code does).
        threshold: ``lambda`` or ``auto``.
        count: number of clusters; it goes before the threshold.

    Source: Day and Edelsbrunner, Efficient Algorithms for Agglomerative Hierarchical Clustering
    Methods (1984).

    Example:
        >>> d = np.abs(np.subtract.outer([0.0, 1.0, 10.0, 11.0], [0.0, 1.0, 10.0, 11.0]))
        >>> found = agglomerate(d)
        >>> found.labels.tolist(), found.threshold, agglomerate(d, threshold=0.5).count, agglomerate(d, count=3).count
        ([0, 0, 1, 1], 5.5, 4, 3)
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    n = len(distance)
    tree = linkage(squareform(distance, checks=False), method) if n > 1 else np.empty((0, 4))
    heights = tree[:, 2]
    if count is not None:
        merges = max(0, n - count)
        return Clusters(_cut(tree, merges), tree, _middle(heights, merges))
    level = largest_gap(heights) if threshold == "auto" else threshold
    return Clusters(_cut(tree, int((heights <= level).sum())), tree, level)


def largest_gap(heights: FloatArray) -> float:
    """The height at which to cut a tree by its largest gap (what FedClust leaves open, settled
    here).

    Of the merge heights ``z_1 <= ... <= z_{n-1}`` the largest gap ``z_{k+1} - z_k`` with ``k >=
    n/2``, cut in its middle. Where it is under a tenth of ``z_{n-1}`` all is one cluster, and the
    height is ``z_{n-1} / 0.9``: from there on a point would open a gap of a tenth. Infinite where
    all points are one.

    Args:
        heights: float64 ``[n-1]``, ascending.

    Example:
        >>> largest_gap(np.array([1.0, 1.0, 1.5, 6.0, 7.0])), largest_gap(np.array([8.0, 8.5, 9.0]))
        (3.75, 10.0)
    """
    last = float(heights.max(initial=0))
    n = len(heights) + 1
    if last == 0:
        return float("inf")
    first = -(-n // 2) - 1
    gaps = np.diff(heights[first:])
    if not len(gaps) or gaps.max() < GAP * last:
        return last / (1 - GAP)
    at = first + int(gaps.argmax())
    return float(heights[at] + heights[at + 1]) / 2


def between(cross: Matrix, within: Matrix, labels: IntArray, k: int, method: Linkage) -> Matrix:
    """How far new points are from clusters, by the distance that a linkage merges them at.

    ``average`` is the mean distance to a cluster's points; so is ``weighted``, since a point that
    comes later has no place in the order of merges. For ``ward`` (Euclidean distances) it is
    ``sqrt(2 s / (s + 1)) |u - centre|``.

    Args:
        cross: ``[n, s]``, new points by old ones.
        within: ``[s, s]``, old points; only ``ward`` looks at it.
        labels: int64 ``[s]``, the clusters of the old points.
        k: number of clusters.
        method: the linkage.

    Returns:
        float64 ``[n, k]``, infinite for a cluster without points.

    Example:
        >>> cross, old = np.array([[1.0, 3.0, 9.0]]), np.array([0, 0, 2])
        >>> between(cross, np.zeros((3, 3)), old, 3, "average").tolist()
        [[2.0, inf, 9.0]]
    """
    found = np.full((len(cross), k), np.inf)
    for j in np.unique(labels):
        mine = labels == j
        own = cross[:, mine]
        match method:
            case "complete":
                found[:, j] = own.max(axis=1)
            case "single":
                found[:, j] = own.min(axis=1)
            case "ward":
                square = (own**2).mean(axis=1) - (within[np.ix_(mine, mine)] ** 2).mean() / 2
                found[:, j] = np.sqrt(2 * mine.sum() / (mine.sum() + 1) * np.maximum(square, 0))
            case _:
                found[:, j] = own.mean(axis=1)
    return found


def _cut(tree: Matrix, merges: int) -> IntArray:
    """Labels after so many of a tree's merges."""
    n = len(tree) + 1
    root = np.arange(n + merges)
    for at, pair in enumerate(tree[:merges, :2].astype(np.int64)):
        root[pair] = n + at
    for node in range(n + merges - 1, -1, -1):
        root[node] = root[root[node]]
    return _ordered(root[:n])


def _middle(heights: FloatArray, merges: int) -> float:
    """Half-way between the last merge done and the first one left; infinite where none is left."""
    if merges >= len(heights):
        return float("inf")
    return float(heights[merges] + (heights[merges - 1] if merges else 0)) / 2


def kmeans(features: Matrix, m: int, key: Key) -> IntArray:
    """K-Means with k-means++ seeding (10 starts, 20 iterations), labels numbered by first
    appearance.

    A cluster left empty takes the point farthest from its own centre.

    Args:
        features: ``[n, f]``, ``n >= m``.
        m: number of clusters.
        key: random stream.

    Returns:
        int64 ``[n]``.

    Example:
        >>> kmeans(np.array([[0.0], [0.1], [5.0], [5.1]]), 2, Key(0)).tolist()
        [0, 0, 1, 1]
    """
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(m, init="k-means++", n_init=10, max_iter=20, random_state=key.seed32())
    with warnings.catch_warnings(), one_library_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(features).astype(np.int64)
    distance = np.linalg.norm(features - model.cluster_centers_[labels], axis=1)
    return _ordered(_fill_empty(labels, distance, m))


def complete_linkage(distance: Matrix, m: int) -> IntArray:
    """Agglomerative clustering of a distance matrix with complete linkage, cut at exactly ``m``
    clusters.

    Example:
        >>> complete_linkage(np.array([[0, 1, 9], [1, 0, 9], [9, 9, 0]], float), 2).tolist()
        [0, 0, 1]
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(distance, checks=False), "complete")
    labels = fcluster(tree, m, "maxclust").astype(np.int64) - 1
    return _ordered(_fill_empty(labels, distance.mean(axis=1), m))


def _fill_empty(labels: IntArray, distance: Matrix, m: int) -> IntArray:
    """Move the farthest points of clusters with company into clusters without anyone."""
    labels = labels.copy()
    for empty in np.setdiff1d(np.arange(m), labels):
        company = np.bincount(labels, minlength=m)[labels] > 1
        labels[np.argmax(np.where(company, distance, -1.0))] = empty
    return labels


def _ordered(labels: IntArray) -> IntArray:
    """The same partition with labels in order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)

"""Features or distances to cluster labels ``0..m-1``, every label in use."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.threads import one_library_thread
from coterie.math.similarity import Matrix

Linkage = Literal["average", "complete", "single", "ward", "weighted"]

# A gap between merge heights counts from this share of the last height on.
GAP = 0.1


# --- agglomerative --------------------------------------------------------------------------------


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
    """Agglomerative hierarchical clustering, cut at a height, at a number, or at the largest gap.

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
        >>> points = [0.0, 1.0, 10.0, 11.0]
        >>> distance = np.abs(np.subtract.outer(points, points))
        >>> found = agglomerate(distance)
        >>> found.labels.tolist(), found.threshold
        ([0, 0, 1, 1], 5.5)
        >>> agglomerate(distance, threshold=0.5).count, agglomerate(distance, count=3).count
        (4, 3)
    """
    n = len(distance)
    tree = _merge(distance, method)
    heights = tree[:, 2]
    if count is not None:
        merges = max(0, n - count)
        return Clusters(_cut_after(tree, merges), tree, _middle_of_gap(heights, merges))
    height = largest_gap(heights) if threshold == "auto" else threshold
    # No linkage above merges lower than it did before, so what lies below the cut came first.
    merges = int((heights <= height).sum())
    return Clusters(_cut_after(tree, merges), tree, height)


def _merge(distance: Matrix, method: Linkage) -> Matrix:
    """The merges of a distance matrix, float64 ``[n-1, 4]``."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    # scipy refuses fewer than two points.
    if len(distance) < 2:
        return np.empty((0, 4))
    # Unchecked: a distance that is made of products has rounding on its diagonal, which is refused.
    tree: Matrix = linkage(squareform(distance, checks=False), method)
    return tree


def largest_gap(heights: FloatArray) -> float:
    """The height at which to cut a tree by its largest gap, which FedClust leaves open.

    Of the merge heights ``z_1 <= ... <= z_{n-1}`` the largest gap ``z_{k+1} - z_k`` with ``k >=
    n/2``, cut in its middle. Where it is under a tenth of ``z_{n-1}`` all is one cluster, and the
    height is ``z_{n-1} / 0.9``: from there on a point would open a gap of a tenth. Infinite where
    all points are one.

    Args:
        heights: float64 ``[n-1]``, ascending.

    Example:
        >>> largest_gap(np.array([1.0, 1.0, 1.5, 6.0, 7.0]))
        3.75
        >>> largest_gap(np.array([8.0, 8.5, 9.0]))
        10.0
    """
    last = float(heights.max(initial=0))
    n = len(heights) + 1
    if last == 0:
        return float("inf")
    # Early merges join pairs; a gap among them would leave more than half of the clients alone.
    first = -(-n // 2) - 1
    gaps = np.diff(heights[first:])
    if not len(gaps) or gaps.max() < GAP * last:
        return last / (1 - GAP)
    at = first + int(gaps.argmax())
    return float(heights[at] + heights[at + 1]) / 2


def linkage_distance(
    cross: Matrix, within: Matrix, labels: IntArray, k: int, method: Linkage
) -> Matrix:
    """How far new points are from clusters, by the distance that a linkage merges them at.

    ``average`` is the mean distance to a cluster's points; so is ``weighted``, since a point that
    comes later has no place in the order of merges. For ``ward`` (Euclidean distances) it is
    ``sqrt(2 s / (s + 1)) |u - centre|``.

    Args:
        cross: ``[n, s]``, new points by old ones.
        within: ``[s, s]``, old points; only ``ward`` uses it.
        labels: int64 ``[s]``, the clusters of the old points.
        k: number of clusters.
        method: the linkage.

    Returns:
        float64 ``[n, k]``, infinite for a cluster without points.

    Example:
        >>> cross, old = np.array([[1.0, 3.0, 9.0]]), np.array([0, 0, 2])
        >>> linkage_distance(cross, np.zeros((3, 3)), old, 3, "average").tolist()
        [[2.0, inf, 9.0]]
    """
    found = np.full((len(cross), k), np.inf)
    for j in np.unique(labels):
        members = labels == j
        to_members = cross[:, members]
        match method:
            case "complete":
                found[:, j] = to_members.max(axis=1)
            case "single":
                found[:, j] = to_members.min(axis=1)
            case "ward":
                among = within[np.ix_(members, members)]
                found[:, j] = _ward_distance(to_members, among)
            case _:
                found[:, j] = to_members.mean(axis=1)
    return found


def _ward_distance(to_members: Matrix, among: Matrix) -> FloatArray:
    """Ward's distance of points to one cluster, from distances alone, without coordinates.

    ``|u - centre|^2`` is the mean squared distance to the members, less half of the mean squared
    distance among them.
    """
    size = len(among)
    square = (to_members**2).mean(axis=1) - (among**2).mean() / 2
    found: FloatArray = np.sqrt(2 * size / (size + 1) * np.maximum(square, 0))
    return found


def _cut_after(tree: Matrix, merges: int) -> IntArray:
    """Labels after so many of a tree's merges.

    scipy cuts at heights, which cannot separate merges of equal height.
    """
    n = len(tree) + 1
    root = np.arange(n + merges)
    for at, pair in enumerate(tree[:merges, :2].astype(np.int64)):
        root[pair] = n + at
    # From the last merge down each node takes the root of its parent, which is already final.
    for node in range(n + merges - 1, -1, -1):
        root[node] = root[root[node]]
    return _by_first_appearance(root[:n])


def _middle_of_gap(heights: FloatArray, merges: int) -> float:
    """Half-way between the last merge done and the first one left; infinite where none is left."""
    if merges >= len(heights):
        return float("inf")
    done = heights[merges - 1] if merges else 0
    return float(heights[merges] + done) / 2


def complete_linkage(distance: Matrix, m: int) -> IntArray:
    """Agglomerative clustering with complete linkage, cut at exactly ``m`` clusters (FedGroup).

    Where merges have equal heights the point farthest from all others is parted from its cluster;
    `agglomerate` with ``count=m`` leaves out whichever of these merges comes last.

    Args:
        distance: ``[n, n]``, symmetric; MADC, for instance.
        m: number of clusters, at most ``n``.

    Returns:
        int64 ``[n]``.

    Example:
        >>> complete_linkage(np.array([[0, 1, 9], [1, 0, 9], [9, 9, 0]], float), 2).tolist()
        [0, 0, 1]
    """
    from scipy.cluster.hierarchy import fcluster

    tree = _merge(distance, "complete")
    labels = fcluster(tree, m, "maxclust").astype(np.int64) - 1
    # Merges of equal height leave fewer clusters than asked for.
    return _by_first_appearance(_fill_empty(labels, distance.mean(axis=1), m))


# --- k-means --------------------------------------------------------------------------------------


def kmeans(features: Matrix, m: int, key: Key) -> IntArray:
    """K-Means with k-means++ seeding: 10 starts, 20 iterations, as FedGroup's code has them.

    A cluster left empty takes the point farthest from its own centre.

    Args:
        features: ``[n, f]``, ``n >= m``.
        m: number of clusters.
        key: random stream.

    Returns:
        int64 ``[n]``, numbered by first appearance.

    Example:
        >>> kmeans(np.array([[0.0], [0.1], [5.0], [5.1]]), 2, Key(0)).tolist()
        [0, 0, 1, 1]
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(m, init="k-means++", n_init=10, max_iter=20, random_state=key.seed32())
    # One thread, so that sums have the same bits whatever the number of cores.
    with warnings.catch_warnings(), one_library_thread():
        # Fewer distinct points than clusters are no fault here: the rest is filled up below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(features).astype(np.int64)
    distance = np.linalg.norm(features - model.cluster_centers_[labels], axis=1)
    return _by_first_appearance(_fill_empty(labels, distance, m))


def scatter(points: Matrix, labels: IntArray) -> float:
    """Sum of squared distances to the clusters' centres.

    Args:
        points: ``[n, f]``.
        labels: int64 ``[n]`` in ``0..m-1``, every label in use.

    Example:
        >>> scatter(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]))
        2.0
    """
    centre = np.stack([points[labels == j].mean(axis=0) for j in range(labels.max() + 1)])
    return float(((points - centre[labels]) ** 2).sum())


def _fill_empty(labels: IntArray, distance: Matrix, m: int) -> IntArray:
    """Move the farthest points of clusters with others in them into empty clusters."""
    labels = labels.copy()
    for empty in np.setdiff1d(np.arange(m), labels):
        has_company = np.bincount(labels, minlength=m)[labels] > 1
        labels[np.argmax(np.where(has_company, distance, -1.0))] = empty
    return labels


def _by_first_appearance(labels: IntArray) -> IntArray:
    """The same partition with labels in order of first appearance.

    Libraries number clusters as they like; a run must not depend on it.
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)

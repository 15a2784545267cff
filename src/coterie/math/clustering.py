"""Clustering of features or distances into labels ``0..m-1``, all of which are used."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core import BoolArray, FloatArray, IntArray, Key, one_library_thread
from coterie.core.startup import starting_up
from coterie.math.cuts import (
    above_last,
    by_first_appearance,
    cut_after,
    largest_gap,
    middle_of_gap,
    silhouette_count,
)
from coterie.math.similarity import Matrix

Linkage = Literal["average", "complete", "single", "ward", "weighted"]
# Rules that find the height of a cut.
Automatic = Literal["auto", "gap"]


# --- agglomerative --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clusters:
    """The result of agglomerative clustering.

    Args:
        labels: int64 ``[n]`` in ``0..count-1``, numbered by first appearance.
        tree: float64 ``[n-1, 4]``, the merges as ``scipy.cluster.hierarchy.linkage`` writes them.
        threshold: the height ``lambda`` of the cut: clusters that are farther apart are not merged.
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
    threshold: float | Automatic = "auto",
    count: int | None = None,
) -> Clusters:
    """Agglomerative hierarchical clustering, cut at a height, at a number, or automatically.

    - ``threshold``: clusters merge while they are at most that far apart.
    - ``count``: that many clusters (or ``n``, if there are fewer points); ``lambda`` is then the
      middle of the gap.
    - ``gap``: see ``cuts.largest_gap``.
    - ``auto``: as ``gap``; if that finds one cluster, ``cuts.silhouette_count`` is the number.

    Args:
        distance: ``[n, n]``, symmetric.
        method: ``average`` (UPGMA), ``complete``, ``single``, ``ward``, ``weighted`` (WPGMA, what
            PACFL's code does).
        threshold: ``lambda``, ``auto`` or ``gap``.
        count: number of clusters; it takes precedence over the threshold.

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
    if count is None and threshold == "auto":
        count = _count_without_gap(distance, tree)
    if count is not None:
        merges = max(0, n - count)
        return Clusters(cut_after(tree, merges), tree, middle_of_gap(heights, merges))
    height = largest_gap(heights) if isinstance(threshold, str) else threshold
    # No linkage above merges lower than it did before, so what lies below the cut came first.
    merges = int((heights <= height).sum())
    return Clusters(cut_after(tree, merges), tree, height)


def _count_without_gap(distance: Matrix, tree: Matrix) -> int | None:
    """The number of clusters where no gap tells it; ``None`` where a gap does, or all are one."""
    heights = tree[:, 2]
    if (heights > largest_gap(heights)).any():
        return None
    count = silhouette_count(distance, tree)
    if count == 1:
        return None
    return count


def _merge(distance: Matrix, method: Linkage) -> Matrix:
    """The merges of a distance matrix, float64 ``[n-1, 4]``."""
    with starting_up():
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import squareform

    # scipy refuses fewer than two points.
    if len(distance) < 2:
        return np.empty((0, 4))
    # Unchecked: a distance that is made of products has rounding on its diagonal, which is refused.
    return linkage(squareform(distance, checks=False), method)


def linkage_distance(
    cross: Matrix, within: Matrix, labels: IntArray, k: int, method: Linkage
) -> Matrix:
    """The distances of new points from clusters, as a linkage defines them.

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
    return np.sqrt(2 * size / (size + 1) * np.maximum(square, 0))


def complete_linkage(distance: Matrix, m: int) -> IntArray:
    """Agglomerative clustering with complete linkage, cut at exactly ``m`` clusters (FedGroup).

    If merges have equal heights, the point farthest from all others is separated from its cluster;
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
    with starting_up():
        from scipy.cluster.hierarchy import fcluster

    tree = _merge(distance, "complete")
    labels = fcluster(tree, m, "maxclust").astype(np.int64) - 1
    # Merges of equal height leave fewer clusters than asked for.
    return by_first_appearance(_fill_empty(labels, distance.mean(axis=1), m))


# --- k-means --------------------------------------------------------------------------------------


def kmeans(features: Matrix, m: int, key: Key) -> IntArray:
    """K-Means with k-means++ seeding: 10 starts, 20 iterations, as in FedGroup's code.

    An empty cluster takes the point farthest from its own centre.

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
    with starting_up():
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

    model = KMeans(m, init="k-means++", n_init=10, max_iter=20, random_state=key.seed32())
    # One thread, so that sums have the same bits whatever the number of cores.
    with warnings.catch_warnings(), one_library_thread():
        # Fewer distinct points than clusters are no fault here: the rest is filled up below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(features).astype(np.int64)
    distance = np.linalg.norm(features - model.cluster_centers_[labels], axis=1)
    return by_first_appearance(_fill_empty(labels, distance, m))


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


# --- spectral -------------------------------------------------------------------------------------


def best_partition(alike: Matrix, most: int, key: Key) -> IntArray | None:
    """The spectral clustering with the lowest Davies-Bouldin index; ``None`` if none is below 1.

    Args:
        alike: float64 ``[n, n]``, the affinity.
        most: largest number of clusters.
        key: the stream of the eigenvectors' start.

    Returns:
        int64 ``[n]``.

    Source: Davies, Bouldin, A Cluster Separation Measure (1979).

    Example:
        >>> two = np.kron(np.eye(2), np.ones((4, 4))) + 0.01
        >>> best_partition(two, 3, Key(0)).tolist() in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
        True
    """
    with starting_up():
        from sklearn.cluster import SpectralClustering
        from sklearn.manifold import SpectralEmbedding
        from sklearn.metrics import davies_bouldin_score

    least = 1.0
    best = None
    seed = key.seed32()
    with warnings.catch_warnings(), one_library_thread():
        # An affinity in several parts is what is looked for.
        warnings.simplefilter("ignore", UserWarning)
        for m in range(2, most + 1):
            options = {"n_components": m, "affinity": "precomputed", "random_state": seed}
            points = SpectralEmbedding(**options).fit_transform(alike)
            split = SpectralClustering(m, assign_labels="cluster_qr", **options)
            labels = split.fit_predict(alike)
            if len(np.unique(labels)) < m:
                continue
            index = float(davies_bouldin_score(points, labels))
            if index < least:
                least = index
                best = labels.astype(np.int64)
    return best


# --- who is near whom -----------------------------------------------------------------------------


def pivot_clusters(near: BoolArray, key: Key) -> IntArray:
    """Correlation clustering: a random point forms a cluster with all unassigned points near it.

    Args:
        near: bool ``[n, n]``, symmetric.
        key: the stream that draws the points.

    Returns:
        int64 ``[n]``, numbered by first appearance.

    Source: Bansal, Blum, Chawla, Correlation Clustering (2004).

    Example:
        >>> near = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
        >>> pivot_clusters(near, Key(0)).tolist()
        [0, 0, 1]
    """
    labels = np.full(len(near), -1)
    for pivot in key.generator().permutation(len(near)):
        if labels[pivot] < 0:
            free = labels < 0
            labels[free & near[pivot]] = pivot
            labels[pivot] = pivot
    return by_first_appearance(labels)


# --- far points -----------------------------------------------------------------------------------


# A cluster with at most this share of the points, or a single one, is a few points.
FEW = 0.05
# The share of the points that can be set aside.
MOST_ASIDE = 0.25


def cut_without_few(
    distance: Matrix, method: Linkage, threshold: Automatic
) -> tuple[Clusters, BoolArray]:
    """Agglomerative clustering with an automatic cut, in which far points do not hide clusters.

    Far points are merged last, so the largest gap of a tree can be the one before their merges. All
    other points are then one cluster, whatever their structure. If a cut gives one cluster and
    otherwise only a few points (clusters of at most 5 % of all), these are set aside, and the
    others are clustered again, until there are two clusters of more than a few points. If that
    never happens, or a quarter of the points would have to be set aside, the first cut is used.

    Args:
        distance: ``[n, n]``, symmetric.
        method: how clusters are merged.
        threshold: ``auto`` or ``gap``, see `agglomerate`.

    Returns:
        The clusters of the points that were not set aside, and those that were, bool ``[n]``.

    Example:
        >>> at = np.array([0.0, 0.1, 0.2, 3.0, 3.1, 3.2, 90.0])
        >>> distance = np.abs(at[:, None] - at)
        >>> agglomerate(distance).labels.tolist()
        [0, 0, 0, 0, 0, 0, 1]
        >>> found, outliers = cut_without_few(distance, "average", "auto")
        >>> found.labels.tolist(), outliers.nonzero()[0].tolist()
        ([0, 0, 0, 1, 1, 1], [6])
    """
    n = len(distance)
    nothing_apart = np.zeros(n, bool)
    first = agglomerate(distance, method, threshold)
    found = first
    kept = np.arange(n)
    while True:
        sizes = np.bincount(found.labels)
        few = sizes[found.labels] <= max(1.0, FEW * n)
        large = len(np.unique(found.labels[~few]))
        if large >= 2:
            outliers = np.ones(n, bool)
            outliers[kept] = False
            return found, outliers
        kept = kept[~few]
        if not few.any() or n - len(kept) > MOST_ASIDE * n:
            return first, nothing_apart
        among_kept = distance[np.ix_(kept, kept)]
        found = agglomerate(among_kept, method, threshold)


def large_clusters(
    distance: Matrix, method: Linkage, count: int, least: int
) -> tuple[Clusters, BoolArray]:
    """Agglomerative clustering into a number of clusters of at least so many points each.

    The tree is cut at the highest level with ``count`` such clusters, or with as many of them as
    any level has. The points of smaller clusters are set aside.

    Returns:
        The clusters of the points that were not set aside, and those that were, bool ``[n]``.

    Example:
        >>> at = np.array([0.0, 0.1, 0.2, 3.0, 3.1, 3.2, 90.0])
        >>> distance = np.abs(at[:, None] - at)
        >>> found, aside = large_clusters(distance, "average", 2, least=2)
        >>> found.labels.tolist(), aside.nonzero()[0].tolist()
        ([0, 0, 0, 1, 1, 1], [6])
    """
    n = len(distance)
    tree = _merge(distance, method)
    large = np.concatenate([np.ones(n), tree[:, 3]]) >= least
    # How many large clusters there are after each merge, counted from the last one back.
    fewer = large[tree[:, :2].astype(np.int64)].sum(axis=1) - large[n:]
    after = 1 + np.append(np.cumsum(fewer[::-1])[::-1], 0)
    count = min(count, int(after.max()))
    if count == 1:
        return Clusters(cut_after(tree, n - 1), tree, above_last(tree[:, 2])), np.zeros(n, bool)
    merges = int(np.flatnonzero(after >= count).max())
    labels = cut_after(tree, merges)
    aside = np.bincount(labels)[labels] < least
    if aside.any():
        return agglomerate(distance[np.ix_(~aside, ~aside)], method, count=count), aside
    return Clusters(labels, tree, middle_of_gap(tree[:, 2], merges)), aside

"""An automatic cut that a few far points cannot decide."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import BoolArray, IntArray
from coterie.math.clustering import Automatic, Clusters, Linkage, agglomerate
from coterie.math.similarity import Matrix

# A cluster with at most this share of the points, or a single one, is a few points.
FEW = 0.05
# The share of the points that can be set aside.
MOST_ASIDE = 0.25


def cut_without_few(
    distance: Matrix, method: Linkage, threshold: Automatic, tolerated: float = 0.0
) -> tuple[Clusters, BoolArray]:
    """Agglomerative clustering with an automatic cut, in which far points do not hide clusters.

    The merges of far points are the last ones, so the largest gap of a tree can be the one before
    them. All others are then one cluster, whatever is in it. Where a cut gives one cluster and
    besides it only a few points (clusters of at most 5 % of all), these are set aside, and the
    others are clustered again, until there are two clusters of more than a few points. If there
    never are, or a quarter of the points would have to go, the first cut stands.

    Args:
        distance: ``[n, n]``, symmetric.
        method: how clusters are merged.
        threshold: ``auto`` or ``gap``, see ``clustering.agglomerate``.
        tolerated: see there.

    Returns:
        The clusters of the points that were not set aside, and those that were, bool ``[n]``.

    Example:
        >>> at = np.array([0.0, 0.1, 0.2, 3.0, 3.1, 3.2, 90.0])
        >>> distance = np.abs(at[:, None] - at)
        >>> agglomerate(distance).labels.tolist()
        [0, 0, 0, 0, 0, 0, 1]
        >>> found, aside = cut_without_few(distance, "average", "auto")
        >>> found.labels.tolist(), aside.nonzero()[0].tolist()
        ([0, 0, 0, 1, 1, 1], [6])
    """
    n = len(distance)
    nothing_apart = np.zeros(n, bool)
    first = agglomerate(distance, method, threshold, tolerated=tolerated)
    found = first
    kept = np.arange(n)
    while True:
        few = _of_few(found.labels, n)
        large = len(np.unique(found.labels[~few]))
        if large >= 2:
            aside = np.ones(n, bool)
            aside[kept] = False
            return found, aside
        kept = kept[~few]
        if not few.any() or n - len(kept) > MOST_ASIDE * n:
            return first, nothing_apart
        among_kept = distance[np.ix_(kept, kept)]
        found = agglomerate(among_kept, method, threshold, tolerated=tolerated)


def _of_few(labels: IntArray, n: int) -> BoolArray:
    """The points of small clusters, of ``n`` points in all."""
    sizes = np.bincount(labels)
    few: BoolArray = sizes[labels] <= max(1.0, FEW * n)
    return few

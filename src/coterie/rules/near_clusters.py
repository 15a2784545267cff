"""Clusters of clients that are near each other by what they lose on each other's models."""

from __future__ import annotations

from typing import Literal

import numpy as np

from coterie.core.arrays import BoolArray, IntArray
from coterie.core.groups import NO_GROUP
from coterie.core.keys import Key
from coterie.math.clustering import agglomerate
from coterie.math.correlation import pivot_clusters
from coterie.math.outliers import far_from_neighbours
from coterie.math.similarity import Matrix
from coterie.rules.cold_start import Outliers


def left_out(distance: Matrix, clusters: int, outliers: Outliers) -> BoolArray:
    """The clients that are far from all others and have no part in the clusters, bool ``[n]``.

    Args:
        distance: ``[n, n]``, symmetric.
        clusters: how many there are, at least about.
        outliers: ``keep``: all clients take part.

    Example:
        >>> at = np.array([0.0, 0.1, 0.2, 0.3, 90.0])
        >>> left_out(np.abs(at[:, None] - at), 1, "leave_out").nonzero()[0].tolist()
        [4]
    """
    if outliers == "keep":
        return np.zeros(len(distance), bool)
    return far_from_neighbours(distance, clusters)


def near_clusters(
    distance: Matrix,
    threshold: float | Literal["auto"],
    far: BoolArray,
    key: Key,
) -> tuple[IntArray, float]:
    """Correlation clustering of the clients whose distance is at most a threshold.

    Args:
        distance: ``[n, n]``, symmetric.
        threshold: ``auto``: by the largest gap between merges of average linkage.
        far: bool ``[n]``, the clients that have no part in it, nor in the threshold.
        key: the stream that draws the pivots.

    Returns:
        int64 ``[n]``, the cluster of each client, -1 for those that have none; and the threshold.

    Example:
        >>> at = np.array([0.0, 0.1, 5.0, 5.1, 90.0])
        >>> near_clusters(np.abs(at[:, None] - at), 1.0, at > 50, Key(0))[0].tolist()
        [0, 0, 1, 1, -1]
    """
    among = distance[np.ix_(~far, ~far)]
    if threshold == "auto":
        threshold = float(agglomerate(among, "average").threshold)
    label = np.full(len(distance), NO_GROUP)
    label[~far] = pivot_clusters(among <= threshold, key)
    return label, threshold

"""Clusters of points of which only is known who is near whom."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import BoolArray, IntArray
from coterie.core.keys import Key
from coterie.math.cuts import by_first_appearance


def pivot_clusters(near: BoolArray, key: Key) -> IntArray:
    """Correlation clustering: a random point and all that are near it and still free are a cluster.

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

"""Features or distances to labels ``0..m-1``, every label in use."""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from threadpoolctl import threadpool_limits

from coterie.keys import Key
from coterie.similarity import Matrix
from coterie.types import IntArray


def kmeans(features: Matrix, m: int, key: Key) -> IntArray:
    """K-Means with k-means++ seeding (10 starts, 20 iterations), labels numbered by first appearance.

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
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit_predict(features).astype(np.int64)
    distance = np.linalg.norm(features - model.cluster_centers_[labels], axis=1)
    return _ordered(_fill_empty(labels, distance, m))


def complete_linkage(distance: Matrix, m: int) -> IntArray:
    """Agglomerative clustering of a distance matrix with complete linkage, cut at exactly ``m`` clusters.

    Example:
        >>> complete_linkage(np.array([[0, 1, 9], [1, 0, 9], [9, 9, 0]], float), 2).tolist()
        [0, 0, 1]
    """
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

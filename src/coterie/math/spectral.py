"""Spectral clusters of an affinity, as many as separate best."""

from __future__ import annotations

import warnings

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.process import one_library_thread
from coterie.math.similarity import Matrix


def best_partition(alike: Matrix, most: int, key: Key) -> IntArray | None:
    """Spectral clusters with the least Davies-Bouldin index, ``None`` if none is below 1.

    Args:
        alike: float64 ``[n, n]``, the affinity.
        most: clusters there may be.
        key: the stream of the eigenvectors' start.

    Returns:
        int64 ``[n]``.

    Source: Davies, Bouldin, A Cluster Separation Measure (1979).

    Example:
        >>> two = np.kron(np.eye(2), np.ones((4, 4))) + 0.01
        >>> best_partition(two, 3, Key(0)).tolist() in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
        True
    """
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

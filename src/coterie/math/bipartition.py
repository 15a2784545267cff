"""The best division of a cluster in two (CFL)."""

from __future__ import annotations

from typing import Literal

from coterie.core.arrays import BoolArray
from coterie.math.clustering import agglomerate
from coterie.math.similarity import Matrix

Halving = Literal["single", "complete"]


def bipartition(similarity: Matrix, linkage: Halving = "single") -> tuple[BoolArray, float]:
    """Two halves with the least ``alpha_cross = max_{i in c1, k in c2} S(D_i, D_k)``.

    Single linkage on ``1 - S`` finds the optimum: it merges the most alike until two clusters are
    left, as Kruskal's algorithm. ``complete`` linkage, which the released code has, need not.

    Args:
        similarity: ``[n, n]``, ``n >= 2``.
        linkage: which.

    Returns:
        bool ``[n]``, the half without the first client; and ``alpha_cross``.

    Source: Sattler et al., Clustered Federated Learning (2020), Alg. 1.

    Example:
        >>> import numpy as np
        >>> s = np.array([[1.0, 0.9, -0.2], [0.9, 1.0, 0.1], [-0.2, 0.1, 1.0]])
        >>> half, cross = bipartition(s)
        >>> half.tolist(), cross
        ([False, False, True], 0.1)
    """
    half: BoolArray = agglomerate(1 - similarity, linkage, count=2).labels == 1
    return half, float(similarity[~half][:, half].max())

"""RFedAvg's adaptive clustering by cosine similarity (CCS, Alg. 1), and how much each cluster of updates
counts, so that every class counts alike (sec. III-B).

``M`` is the number of classes, ``N`` that of clusters.

Source: Wang, Zhang and Tao, Adaptive Clustering-Based Model Aggregation for Federated Learning with
Imbalanced Data (2021).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.startup import starting_up
from coterie.math.similarity import Matrix

# --- clusters -------------------------------------------------------------------------------------


# Similarities so little below the threshold still count: they are rounded.
_SLACK = 1e-9


def adaptive_threshold(
    loss: float, first: float, l_star: float = 0.05, theta: float = math.pi / 36
) -> float:
    """How similar the updates of a cluster must be (RFedAvg eq. 7, clipped).

    It falls with the loss: ``eps_t = cos(theta + (pi/2 - theta) rho)`` with ``rho = (l_0 - l_t) /
    (l_0 - l_*)`` held in 0..1. Without the clip a loss above ``l_0`` would turn the angle negative
    and one below ``l_*`` the threshold. A run that starts at ``l_*`` or under has ``rho = 1``.

    Args:
        loss: ``l_t``, now.
        first: ``l_0``, in the first round.
        l_star: ``l_*``, the loss wanted, in nats.
        theta: angle of the first round, in radians.

    Example:
        >>> [round(adaptive_threshold(l, 2.3, 0.1), 6) for l in (2.3, 1.2, 0.6, 0.1)]
        [0.996195, 0.67559, 0.330814, 0.0]
    """
    rho = 1.0
    if first > l_star:
        rho = min(1.0, max(0.0, (first - loss) / (first - l_star)))
    return math.cos(theta + (math.pi / 2 - theta) * rho)


def ccs(similarity: Matrix, threshold: float) -> IntArray:
    """Clusters by cosine similarity (RFedAvg Alg. 1).

    The update with most neighbours, the pivot, makes a cluster with them. Then the next pivot is
    found among those that are left. A neighbour is at least ``threshold`` similar; members need not
    be similar to each other. Of two pivots with as many neighbours left the first one goes first.
    One that is not similar to itself, an update of zeros, is alone.

    Args:
        threshold: ``eps_t``; 1e-9 below it still counts.

    Returns:
        int64 ``[n]``, the cluster of each, numbered in the order they are made.

    Example:
        >>> import torch
        >>> from coterie.math.similarity import cosine
        >>> g = torch.tensor([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [-1, 0]])
        >>> ccs(cosine(g, g), 0.8).tolist(), ccs(cosine(g, g), 0.0).tolist()
        ([0, 0, 1, 1, 2], [0, 0, 0, 0, 0])
    """
    near = similarity >= threshold - _SLACK
    # A zero update has cosine 0 with all others, which is above a threshold of 0 or less.
    is_zero = np.diag(similarity) <= 0
    near[is_zero] = False
    near[:, is_zero] = False
    # Every update is its own neighbour, so each pass takes one at least.
    np.fill_diagonal(near, True)
    cluster = np.full(len(near), -1)
    made = 0
    left = cluster < 0
    while left.any():
        neighbours = near[:, left].sum(axis=1)
        pivot = np.argmax(np.where(left, neighbours, -1))
        cluster[near[pivot] & left] = made
        made += 1
        left = cluster < 0
    return cluster


# --- weights --------------------------------------------------------------------------------------


# Weight of |p|^2 that makes the balancing weights unique where classes leave them open.
_RIDGE = 1e-8


def cluster_imbalance(level: FloatArray, size: FloatArray, cluster: IntArray) -> FloatArray:
    """``I_C = I_k* - sum of D_k over the others`` for each cluster (steps 1 and 2).

    ``k*`` is the client with the largest ``I_k`` of the cluster, the first one of equals.

    Args:
        level: ``[n]``, ``I_k = sum_m |D/M - D_k^m|`` of each client (eq. 17).

    Returns:
        float64 ``[N]``; never less than ``D - D_C``, the samples of all clients less those of the
        cluster.

    Example:
        >>> level, size = np.array([75.0, 80.0, 75.0, 95.0]), np.array([30.0, 25.0, 40.0, 10.0])
        >>> cluster_imbalance(level, size, np.array([0, 0, 1, 2])).tolist()
        [50.0, 75.0, 95.0]
    """
    total = np.bincount(cluster, size)
    found = np.empty(len(total))
    for n in range(len(total)):
        mine = np.flatnonzero(cluster == n)
        worst = mine[np.argmax(level[mine])]
        found[n] = level[worst] - (total[n] - size[worst])
    return found


def imbalance_floor(total: float) -> float:
    """The least that a cluster's imbalance counts as: ``max(1, 1e-6 D)``."""
    # I_C is 0 where one cluster holds everything, and its reciprocal would be infinite.
    return max(1.0, 1e-6 * total)


def reciprocal(level: FloatArray, total: float) -> FloatArray:
    """``p_n = (1 / I_Cn) / sum_n (1 / I_Cn)`` of all clusters, float64 ``[N]``, with ``I_C`` held
    at or above `imbalance_floor`."""
    inverse = 1 / np.maximum(level, imbalance_floor(total))
    return inverse / inverse.sum()


def balancing(shares: Matrix) -> FloatArray:
    """The weights ``[N]`` that come closest to equal classes by the class shares ``B [M, N]`` of
    each cluster (RFedAvg Q1, eq. 16).

    ``argmin_p |B p - 1/M|^2`` on the simplex. A ridge of ``1e-8 |p|^2`` makes them unique.

    Non-negative least squares finds them exactly. On the simplex the objective is ``|G p|^2``, with
    ``B - 1/M`` on top of ``1e-4 I`` as ``G``. Let ``u >= 0`` be the least-squares solution of ``G u
    = 0, 1^T u = 1``. The objective is least in its direction, at ``p = u / sum u``.
    """
    with starting_up():
        from scipy.optimize import nnls

    classes, clusters = shares.shape
    system = np.vstack(
        [shares - 1 / classes, np.sqrt(_RIDGE) * np.eye(clusters), np.ones((1, clusters))]
    )
    wanted = np.zeros(len(system))
    wanted[-1] = 1
    try:
        found: FloatArray = nnls(system, wanted, maxiter=100 * clusters)[0]
    except RuntimeError:
        # The limit of iterations was met, as nearly parallel columns can do: equal weights then.
        found = np.ones(clusters)
    return found / found.sum()


def class_shares(histograms: NDArray[Any], cluster: IntArray) -> Matrix:
    """The class shares of each cluster, ``B[m, n] = D_Cn^m / D_Cn``, float64 ``[M, N]``.

    A cluster without any known histogram has the shares of all clusters together. If no histogram
    is known at all, its classes are equal.
    """
    counts = np.zeros((int(cluster.max()) + 1, histograms.shape[1]))
    np.add.at(counts, cluster, histograms)
    together = counts.sum(axis=0)
    if not together.any():
        together = np.ones_like(together)
    is_unknown = counts.sum(axis=1) == 0
    counts[is_unknown] = together
    return (counts / counts.sum(axis=1, keepdims=True)).T

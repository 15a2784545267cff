"""Adaptive clustering by cosine similarity (CCS), RFedAvg Alg. 1.

Source: Wang, Zhang and Tao, Adaptive Clustering-Based Model Aggregation for Federated Learning with
Imbalanced Data (2021).
"""

from __future__ import annotations

import math

import numpy as np

from coterie.core.arrays import IntArray
from coterie.math.similarity import Matrix

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
        similarity: ``[n, n]`` in -1..1.
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

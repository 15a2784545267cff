"""How much each reply counts for each model: one ``[k, n]`` matrix; rows sum to 1, or 0 where nobody trained."""

from __future__ import annotations

import numpy as np

from coterie.similarity import Matrix
from coterie.types import FloatArray, Groups, IntArray, Updates


def _shares(k: int, row: IntArray, weight: FloatArray) -> Matrix:
    shares = np.zeros((k, len(row)))
    shares[row, np.arange(len(row))] = weight
    total = shares.sum(axis=1, keepdims=True)
    return np.divide(shares, total, out=shares, where=total > 0)


def by_size(groups: Groups, updates: Updates) -> Matrix:
    """Weights ``n_i / sum n_i`` over a group's participants (FedAvg, Alg. 1 l. 8).

    Example:
        >>> import torch
        >>> groups = Groups(torch.zeros(2, 1), np.zeros(3, np.int64))
        >>> updates = Updates(np.array([0, 1]), np.array([0, 0]), torch.zeros(2, 1), np.array([1.0, 3.0]), np.zeros(2))
        >>> by_size(groups, updates).tolist()
        [[0.25, 0.75], [0.0, 0.0]]
    """
    return _shares(groups.k, updates.row, updates.size)


def evenly(groups: Groups, updates: Updates) -> Matrix:
    """Every participant of a group counts the same (IFCA, FeSEM, FedGSP)."""
    return _shares(groups.k, updates.row, np.ones(len(updates)))

"""How much each reply counts for each model: one ``[k, n]`` matrix; rows sum to 1, or 0 where
nobody trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.math.similarity import Matrix


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


@dataclass(frozen=True)
class InverseDistance:
    """``a_k`` proportional to ``1 / (|w_bar - w_k| + eps)`` within each group, ``w_bar`` the plain
    mean (IDA).

    Args:
        norm: of the distance, over all parameters.
        eps: least distance.
        intrac: times ``1 / max(1 / C, acc_k)``, with the accuracy that ``grouping.accuracy``
            remembers.
        by_size: times ``n_k``.

    Source: Yeganeh et al., Inverse Distance Aggregation for Federated Learning with Non-IID Data
    (2020).

    Example:
        >>> import torch
        >>> delta = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
        >>> updates = Updates(np.arange(3), np.zeros(3, np.int64), delta, np.ones(3), np.zeros(3))
        >>> InverseDistance()(Groups(torch.zeros(1, 2), np.zeros(3, np.int64)), updates).round(5).tolist()
        [[0.27273, 0.54545, 0.18182]]
    """

    norm: Literal["l1", "l2"] = "l1"
    eps: float = 1e-6
    intrac: bool = False
    by_size: bool = False

    def __call__(self, groups: Groups, updates: Updates) -> Matrix:
        delta = updates.delta.numpy()
        distance = np.zeros(len(updates))
        for j in np.unique(updates.row):
            mine = np.flatnonzero(updates.row == j)
            mean = delta[mine].mean(axis=0, dtype=np.float64)
            distance[mine] = [
                np.linalg.norm(mean - delta[i], 1 if self.norm == "l1" else 2) for i in mine
            ]
        weight = 1 / (distance + self.eps)
        if self.intrac and "floor_accuracy" in groups.memory:
            weight /= groups.memory["floor_accuracy"].numpy()[updates.ids]
        return _shares(groups.k, updates.row, weight * updates.size if self.by_size else weight)

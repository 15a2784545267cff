"""How much each reply counts for each model: a matrix ``W [k, n]`` whose rows sum to 1, or are 0
where no client trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from coterie.clients.round import Round
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.math.similarity import Matrix

Weigh = Callable[[Groups, Updates, Round], Matrix]


@runtime_checkable
class WeighsAlone(Protocol):
    """A weighing rule that knows what a reply counts without seeing the others.

    Large rounds can then be aggregated block by block, and no update has to be kept.
    """

    def weight_of(self, size: FloatArray) -> FloatArray:
        """What replies count before each group's are divided by their sum, ``[n]``.

        Args:
            size: float64 ``[n]``, the training samples behind each.
        """
        ...

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix: ...


def shares(k: int, row: IntArray, weight: FloatArray) -> Matrix:
    """Weights as shares of their group's sum, ``[k, n]``.

    Args:
        k: number of groups.
        row: int64 ``[n]``, the group that each reply counts for.
        weight: float64 ``[n]``.

    Example:
        >>> shares(2, np.array([0, 0]), np.array([1.0, 3.0])).tolist()
        [[0.25, 0.75], [0.0, 0.0]]
    """
    matrix = np.zeros((k, len(row)))
    matrix[row, np.arange(len(row))] = weight
    total = matrix.sum(axis=1, keepdims=True)
    # A group that no client trained keeps a row of zeros, and so its model.
    return np.divide(matrix, total, out=matrix, where=total > 0)


@dataclass(frozen=True)
class BySize:
    """Weights ``n_i / sum n_i`` over a group's participants (FedAvg, Alg. 1 l. 8)."""

    def weight_of(self, size: FloatArray) -> FloatArray:
        return size

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix:
        return shares(groups.k, updates.row, self.weight_of(updates.size))


@dataclass(frozen=True)
class Evenly:
    """Every participant of a group counts the same (IFCA, FeSEM, FedGSP)."""

    def weight_of(self, size: FloatArray) -> FloatArray:
        return np.ones_like(size)

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix:
        return shares(groups.k, updates.row, self.weight_of(updates.size))


by_size = BySize()
evenly = Evenly()

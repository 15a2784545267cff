"""How much each reply counts for each model, and how the weighted replies are combined: the slots
``weigh`` and ``aggregate``.

Weights are a matrix ``W [k, n]`` whose rows sum to 1, or to 0 if no client trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import Groups, Plan, Train, Updates, one_torch_thread
from coterie.core.arrays import BoolArray, FloatArray, IntArray, empty_mapping
from coterie.math.similarity import Matrix
from coterie.rules.training import is_large, train, train_by_blocks

Weigh = Callable[[Groups, Updates, Round], Matrix]


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


@dataclass(frozen=True, slots=True)
class WeighsAlone:
    """A weighing rule that computes the weight of a reply without the other replies.

    Large rounds can then be aggregated block by block, without storing all updates.

    Args:
        weight_of: the number of training samples behind each reply, float64 ``[n]`` -> its weight
            before the weights of each group are divided by their sum, ``[n]``.
    """

    weight_of: Callable[[FloatArray], FloatArray]

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix:
        return shares(groups.k, updates.row, self.weight_of(updates.size))


# Weights ``n_i / sum n_i`` over a group's participants (FedAvg, Alg. 1 l. 8).
by_size = WeighsAlone(np.positive)
# Every participant of a group counts the same (IFCA, FeSEM, FedGSP).
evenly = WeighsAlone(np.ones_like)


# --- what the weighted replies make together -----------------------------------------------------


class Aggregated(NamedTuple):
    """The combined replies of a round.

    Args:
        groups: the groups, with what the rule stores, and with unchanged models.
        total: float64 ``[k, d]``, the change of each model.
        trained: bool ``[k]``, the models for which replies count.
        notes: notes for the round's row.
    """

    groups: Groups
    total: Tensor
    trained: BoolArray
    notes: Mapping[str, Any] = empty_mapping()


Combine = Callable[[Groups, Updates, Matrix, Plan, Round], Aggregated]
Collect = Callable[[Train, Weigh, Groups, Plan, Round], Updates]


def side_by_side(local: Train, weigh: Weigh, groups: Groups, plan: Plan, round: Round) -> Updates:
    """The updates of a round, all of which are stored together."""
    return train(local, groups, plan, round)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """How the weighted replies of a round become one update of each model.

    Args:
        combine: ``(groups, updates, W [k, n], plan, round) -> Aggregated``: combines the replies.
            Its random draws use ``round.key``.
        collect: ``(local, weigh, groups, plan, round) -> Updates``: trains the clients of a plan.
            By default all updates are stored together.
        sums: whether the server uses only the sum of each group's weighted updates.
        every_round: whether models also change in a round without replies.

    Example:
        >>> def first(groups, updates, weights, plan, round):
        ...     total = updates.delta[:1].double().expand(groups.k, -1)
        ...     return Aggregated(groups, total, np.ones(groups.k, bool))
        >>> Aggregate(first).sums
        False
    """

    combine: Combine
    collect: Collect = side_by_side
    sums: bool = False
    every_round: bool = False


def mean() -> Aggregate:
    """The weighted mean of a group's replies, FedAvg's rule.

    If weights are known when a reply arrives (by samples, evenly), the updates of a large round are
    never stored together.
    """
    return Aggregate(_mean, _collect_means, sums=True)


def _mean(
    groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
) -> Aggregated:
    total = updates.summed
    if total is None:
        total = weighted_mean(weights, updates, groups.models)
    return Aggregated(groups, total, any_weight(weights))


@one_torch_thread()
def weighted_mean(weights: Matrix, updates: Updates, models: Tensor) -> Tensor:
    """How far the weighted replies move each model: ``sum_i W_ji (solution_i - w_j)``.

    The sums run in float64 and in client order, so that they have the same bits on every engine.
    For a client that started from ``w_j``, as all clients of hard groups do, the difference is the
    update itself.

    Args:
        weights: ``W [k, n]``, rows sum to 1 or are 0.
        updates: the replies.
        models: float32 ``[k, d]``, the models before aggregation.

    Returns:
        float64 ``[k, d]``.
    """
    total = torch.zeros(len(weights), models.shape[1], dtype=torch.float64)
    relative = updates.relative_to(models)
    counted_for = updates.counted_for(models)
    # Loops and no matrix product, whose order of summation depends on the machine and its threads.
    for j, row in enumerate(weights):
        for i in row.nonzero()[0]:
            moved = relative[i]
            if updates.row[i] != j:
                # The reply counts for another model, too, as in soft groups.
                moved = moved + (counted_for[int(updates.row[i])] - models[j])
            total[j].add_(moved, alpha=float(row[i]))
    return total


def any_weight(weights: Matrix) -> BoolArray:
    """The models for which at least one reply counts, bool ``[k]``."""
    return (weights != 0).any(axis=1)


def _collect_means(local: Train, weigh: Weigh, groups: Groups, plan: Plan, round: Round) -> Updates:
    """The updates of a round; where they are too large to be held together, their sums."""
    if is_large(local, groups, plan) and isinstance(weigh, WeighsAlone):
        return train_by_blocks(local, weigh.weight_of, groups, plan, round)
    return train(local, groups, plan, round)

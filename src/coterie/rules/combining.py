"""How the weighted replies of a round become one update of each model: the slot ``aggregate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.arrays import BoolArray, FloatArray, empty_mapping
from coterie.core.groups import Groups
from coterie.core.plan import Plan
from coterie.core.process import one_torch_thread
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.math.similarity import Matrix
from coterie.rules.training import train
from coterie.rules.weighing import Weigh, WeighsAlone

LARGE = 2**29  # bytes of updates above which a round is streamed
BLOCK = 2**27  # bytes of updates that are held at once


class Aggregated(NamedTuple):
    """What the replies of a round make together.

    Args:
        groups: with what the rule remembers, their models as they were.
        total: float64 ``[k, d]``, how far each model is moved.
        trained: bool ``[k]``, the models that replies count for.
        notes: for the round's row.
    """

    groups: Groups
    total: Tensor
    trained: BoolArray
    notes: Mapping[str, Any] = empty_mapping()


Combine = Callable[[Groups, Updates, Matrix, Plan, Round], Aggregated]
Collect = Callable[[Train, Weigh, Groups, Plan, Round], Updates]


def side_by_side(local: Train, weigh: Weigh, groups: Groups, plan: Plan, round: Round) -> Updates:
    """The updates of a round, all of which are held together."""
    return train(local, groups, plan, round)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """How the weighted replies of a round become one update of each model.

    Args:
        combine: ``(groups, updates, W [k, n], plan, round) -> Aggregated``: what the replies make
            together. Its random draws are of ``round.key``.
        collect: ``(local, weigh, groups, plan, round) -> Updates``: the clients of a plan train. By
            default all updates are held side by side.
        sums: whether the sum of each group's weighted updates is all that the server uses of them.
        every_round: whether models move in a round without replies, too.

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

    def __call__(
        self, groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
    ) -> Aggregated:
        return self.combine(groups, updates, weights, plan, round)


def mean() -> Aggregate:
    """The weighted mean of a group's replies, FedAvg's rule.

    The updates of a large round are never held together: each block of clients is added to its
    groups' sums and let go. That needs weights that are known when a reply arrives (by samples,
    evenly). The sums run in float64 and in client order, as those of a whole round do, but they are
    divided at their end, where a whole round weighs each update by its share. Results agree to about
    1e-15 before they are rounded to float32, so nearly always to the bit.
    """
    return _MEAN


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
    For a client that started from ``w_j``, which all clients of hard groups do, the difference is
    its update itself.

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
    """The models that some reply counts for, bool ``[k]``."""
    counted: BoolArray = (weights != 0).any(axis=1)
    return counted


# --- rounds whose updates are not held together ---------------------------------------------------


def _collect_means(local: Train, weigh: Weigh, groups: Groups, plan: Plan, round: Round) -> Updates:
    """The updates of a round; where they are too large to be held together, their sums."""
    if isinstance(weigh, WeighsAlone) and _is_large(local, groups, plan):
        return _streamed(local, weigh, groups, plan, round)
    return train(local, groups, plan, round)


def _is_large(local: Train, groups: Groups, plan: Plan) -> bool:
    """Whether clients train side by side and send more than can be held together."""
    one_by_one = plan.chain is None and plan.spent is None
    one_model = plan.mixtures is None and plan.shares is None
    whole_updates = local.upload is None and local.keep is None
    size = 4 * len(plan.ids) * groups.models.shape[1]
    return one_by_one and one_model and whole_updates and size > LARGE


def _streamed(
    local: Train, weigh: WeighsAlone, groups: Groups, plan: Plan, round: Round
) -> Updates:
    """The replies of a plan with their weighted means, and without the updates themselves."""
    k, d = groups.models.shape
    # Blocks of ascending clients, so that the sums run in client order.
    order = np.argsort(plan.ids)
    ids = plan.ids[order]
    rows = plan.row[order]
    block = max(1, BLOCK // (4 * d))
    total = torch.zeros(k, d, dtype=torch.float64)
    counted = np.zeros(k)
    parts: list[Updates] = []
    for at in range(0, len(ids), block):
        some = Plan(ids[at : at + block], rows[at : at + block])
        # The round's stream is the same for every block: training does not depend on the block.
        updates = train(local, groups, some, round)
        weight = weigh.weight_of(updates.size)
        _add(total, updates, weight)
        counted += np.bincount(updates.row, weight, k)
        parts.append(updates.without_values())
        # Before the next block is asked for, or two blocks would be held.
        del updates
    # Divided at the end, since the sum of the weights is known only then.
    divisor = torch.from_numpy(np.where(counted > 0, counted, 1.0))
    return Updates(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.row for part in parts]),
        torch.empty(sum(len(part) for part in parts), 0),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.loss for part in parts]),
        summed=total / divisor[:, None],
    )


@one_torch_thread()
def _add(total: Tensor, updates: Updates, weight: FloatArray) -> None:
    """Add a block's weighted updates to the sums of their groups, in client order."""
    for i, (j, share) in enumerate(zip(updates.row.tolist(), weight.tolist(), strict=True)):
        total[j].add_(updates.delta[i], alpha=share)


_MEAN = Aggregate(_mean, _collect_means, sums=True)

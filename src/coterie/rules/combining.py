"""How a weighing rule says what a group makes of its replies, in place of their mean.

`coterie.methods.step` asks every weighing rule that is a `Combines`. The rules of
`coterie.rules.robust` are made of the `RobustWeigh` here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.threads import one_torch_thread
from coterie.core.updates import Updates
from coterie.math.robust import bucket_means
from coterie.math.similarity import Matrix
from coterie.rules.weighing import Weigh, evenly

# Points [n, d] and their weights [n], which sum to 1 -> [d].
Average = Callable[[FloatArray, FloatArray], FloatArray]


@runtime_checkable
class Combines(Protocol):
    """A weighing rule that also says what the replies make together, in place of their mean."""

    def combine(
        self, groups: Groups, updates: Updates, weights: Matrix, key: Key
    ) -> tuple[Groups, Tensor]:
        """How far the replies move each model, float64 ``[k, d]``; the groups with what the rule
        remembers, their models as they were.

        Args:
            groups: before.
            updates: the replies.
            weights: ``W [k, n]``, from the rule itself.
            key: random stream.
        """
        ...


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies that count for one model.

    Args:
        ids: int64 ``[n]``, their clients.
        points: float64 ``[n, d]``, where they ended, seen from the model.
        share: float64 ``[n]``, how much each counts, positive.
    """

    ids: IntArray
    points: FloatArray
    share: FloatArray


def replies_by_group(
    models: Tensor, updates: Updates, weights: Matrix
) -> Iterator[tuple[int, Replies]]:
    """The model and the replies of each group that some reply counts for.

    Args:
        models: float32 ``[k, d]``, before.
        updates: the replies.
        weights: ``W [k, n]``.
    """
    relative = updates.relative_to(models)
    counted_for = updates.counted_for(models)
    for j, row in enumerate(weights):
        counted = np.flatnonzero(row)
        if not len(counted):
            continue
        which = torch.from_numpy(counted)
        # A reply may count for another model than it started from, as in soft groups.
        start = counted_for[torch.from_numpy(updates.row[counted])]
        points = (relative[which] + (start - models[j])).to(torch.float64).numpy()
        yield j, Replies(updates.ids[counted], points, row[counted])


@dataclass(frozen=True)
class RobustWeigh:
    """A weighing rule whose groups take a robust average of their replies.

    Args:
        average: of the replies that count for a model, with their shares.
        bucket: replies that are averaged in front of it.
        inner: which replies count for which model, and how much.
        one_vote: all replies that count for a model count the same for it, whatever ``inner`` says.
    """

    average: Average
    bucket: int = 1
    inner: Weigh = evenly
    one_vote: bool = False

    def of(self, inner: Weigh) -> RobustWeigh:
        """The same average of the replies that another rule weighs."""
        return replace(self, inner=inner)

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix:
        return self.inner(groups, updates, round)

    def votes(self, weights: Matrix) -> Matrix:
        """How much each reply counts in the average, float64 ``[k, n]``.

        An average that bears less than half of the weight is lost to a single client that has half of
        a round's samples.

        Args:
            weights: ``W [k, n]``, of the inner rule.
        """
        if not self.one_vote:
            return weights
        counted = (weights != 0).astype(np.float64)
        replies = counted.sum(axis=1, keepdims=True)
        return np.divide(counted, replies, out=counted, where=replies > 0)

    @one_torch_thread()
    def combine(
        self, groups: Groups, updates: Updates, weights: Matrix, key: Key
    ) -> tuple[Groups, Tensor]:
        """See `Combines`."""
        total = torch.zeros(groups.models.shape, dtype=torch.float64)
        for j, replies in replies_by_group(groups.models, updates, self.votes(weights)):
            points = replies.points
            share = replies.share
            # Drawn for each group and round, so that attackers cannot know who shares their bucket.
            if self.bucket > 1:
                points, share = bucket_means(points, share, self.bucket, key.client(j))
            total[j] = torch.from_numpy(self.average(points, share / share.sum()))
        return groups, total

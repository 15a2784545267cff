"""Robust rules for the slot ``aggregate``: how a group combines its replies if some of them may be
hostile. `WEIGHS` lists their names.

A mean follows whoever sends the largest update. The rules here replace it, group by group, and work
with every method whose groups are means of replies. They need all replies at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import FloatArray, Groups, IntArray, Plan, Updates, one_torch_thread
from coterie.errors import ConfigError
from coterie.math import robust
from coterie.math.similarity import Matrix
from coterie.rules.reputation import (
    ReputationMemory,
    reputation_memory,
    shortened,
    trust_of,
    with_replies,
)
from coterie.rules.weighing import Aggregate, Aggregated, Weigh, any_weight, by_size, evenly

# Points [n, d] and their weights [n], which sum to 1 -> [d].
Average = Callable[[FloatArray, FloatArray], FloatArray]

Share = Annotated[float, Field(ge=0, lt=0.5)]
Bucket = Annotated[int, Field(ge=1)]
Steps = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies that count for one model.

    Args:
        ids: int64 ``[n]``, their clients.
        points: float64 ``[n, d]``, where they ended, relative to the model.
        share: float64 ``[n]``, how much each counts, positive.
    """

    ids: IntArray
    points: FloatArray
    share: FloatArray


def replies_by_group(
    models: Tensor, updates: Updates, weights: Matrix
) -> Iterator[tuple[int, Replies]]:
    """The model and the replies of each group for which at least one reply counts.

    Args:
        models: float32 ``[k, d]``, the models before the round.
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
class RobustAverage:
    """Each group takes a robust average of its replies.

    Args:
        average: the average of the replies that count for a model, with their shares.
        bucket: number of replies that are averaged first.
        one_vote: whether all replies that count for a model have the same weight, regardless of the
            method's weighing rule. An average that tolerates less than half of the weight fails if
            a single hostile client has half of a round's samples.
    """

    average: Average
    bucket: int = 1
    one_vote: bool = False

    def votes(self, weights: Matrix) -> Matrix:
        """How much each reply counts in the average, float64 ``[k, n]``."""
        if not self.one_vote:
            return weights
        counted = (weights != 0).astype(np.float64)
        replies = counted.sum(axis=1, keepdims=True)
        return np.divide(counted, replies, out=counted, where=replies > 0)

    @one_torch_thread()
    def __call__(
        self, groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
    ) -> Aggregated:
        key = round.key.of("combine")
        total = torch.zeros(groups.models.shape, dtype=torch.float64)
        for j, replies in replies_by_group(groups.models, updates, self.votes(weights)):
            points = replies.points
            share = replies.share
            # Drawn for each group and round, so that attackers cannot know who shares their bucket.
            if self.bucket > 1:
                points, share = robust.bucket_means(points, share, self.bucket, key.client(j))
            total[j] = torch.from_numpy(self.average(points, share / share.sum()))
        return Aggregated(groups, total, any_weight(weights))


@dataclass(frozen=True)
class RememberingMedian(RobustAverage):
    """The geometric median, in which clients that go against their group count less.

    What a client has sent is compared with what all clients of its group have sent, see
    `coterie.rules.reputation`. Replies are limited to three times the typical length in the group's
    previous round. If no client goes against its group and no reply is that long, a round is
    bitwise identical to that of the plain rule.
    """

    @one_torch_thread()
    def __call__(
        self, groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
    ) -> Aggregated:
        memory = with_replies(reputation_memory(groups), groups.models, updates)
        total = torch.zeros(groups.models.shape, dtype=torch.float64)
        length = memory.length.copy()
        for j, replies in replies_by_group(groups.models, updates, self.votes(weights)):
            points = shortened(replies.points, float(memory.length[j]))
            share = replies.share * trust_of(replies.ids, j, memory)
            total[j] = torch.from_numpy(self.average(points, share / share.sum()))
            # Of the shortened ones, so that a hostile round makes it three times as long at most.
            length[j] = np.median(np.linalg.norm(points, axis=1))
        known = ReputationMemory(memory.sent, memory.group, length)
        return Aggregated(groups.remember(known), total, any_weight(weights))


def _of_share(share: float, n: int) -> int:
    """The wrong ones among ``n`` replies: rounded up, since chance may bring more than the share."""
    # A product such as 0.1 * 30 may be a little above the whole number that it is.
    return math.ceil(share * n - 1e-9)


@validated
def coordinate_median(bucket: Bucket = 1) -> Aggregate:
    """The median of each coordinate over a group's replies.

    It tolerates arbitrary values in fewer than half of the replies. All replies have the same
    weight.

    Args:
        bucket: number of replies that are first averaged, in random buckets.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates
    (2018).

    Example:
        >>> import numpy as np
        >>> coordinate_median().combine.average(np.array([[1.0], [2.0], [1e9]]), np.ones(3)).tolist()
        [2.0]
    """
    return Aggregate(
        RobustAverage(lambda points, share: robust.median_per_coordinate(points), bucket)
    )


@validated
def trimmed_mean(share: Share = 0.2, bucket: Bucket = 1) -> Aggregate:
    """The mean of each coordinate without its largest and its smallest values.

    Of ``n`` replies, ``ceil(share * n)`` values are removed on either side, but fewer than half.
    All replies have the same weight.

    Args:
        share: share of the replies that may be hostile.
        bucket: number of replies that are first averaged, in random buckets.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates
    (2018).

    Example:
        >>> import numpy as np
        >>> trimmed_mean().combine.average(np.array([[1.0], [2.0], [3.0], [4.0], [1e9]]), np.ones(5)).tolist()
        [3.0]
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        return robust.trimmed_mean_per_coordinate(points, _of_share(share, len(points)))

    return Aggregate(RobustAverage(average, bucket))


@validated
def krum(
    share: Share = 0.2, keep: Annotated[int, Field(ge=1)] | None = None, bucket: Bucket = 1
) -> Aggregate:
    """Multi-Krum: the mean of the replies that are nearest to their neighbours.

    A reply's score is the mean squared distance to its ``n - f - 1`` nearest neighbours, with
    ``f = ceil(share * n)``. The ``n - f`` replies with the lowest scores are averaged.

    Args:
        share: share of the replies that may be hostile.
        keep: number of replies that are averaged; 1 is Krum.
        bucket: number of replies that are first averaged, in random buckets.

    Source: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent
    (2017).

    Example:
        >>> import numpy as np
        >>> krum(keep=1).combine.average(np.array([[0.0], [0.1], [0.2], [9.0]]), np.full(4, 0.25)).tolist()
        [0.1]
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        chosen = robust.krum_selection(points, _of_share(share, len(points)), keep)
        return points[chosen].mean(axis=0)

    return Aggregate(RobustAverage(average, bucket))


@validated
def geometric_median(
    steps: Steps = 8,
    nu: Positive | None = None,
    bucket: Bucket = 1,
    remember: bool = False,
    evenly: bool = False,
) -> Aggregate:
    """RFA: the geometric median of a group's replies, by the smoothed Weiszfeld algorithm.

    ``argmin_z sum_i w_i |x_i - z|``. It tolerates arbitrary replies with less than half of the
    weight.

    Args:
        steps: number of steps of the algorithm.
        nu: smoothing: smaller distances are replaced by this value.
        bucket: number of replies that are first averaged, in random buckets.
        remember: clients that go against their group, round after round, count less
            (`coterie.rules.reputation`). The server then keeps 256 numbers for each client.
        evenly: give all replies the same weight instead of weighting them by samples: if sizes
            differ much, one client can have half of a round's samples.

    Raises:
        ConfigError: for ``remember`` with buckets, which hide who sent what.

    Source: Pillutla et al., Robust Aggregation for Federated Learning (2022).

    Example:
        >>> import numpy as np
        >>> points = np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0], [1e6, 1e6]])
        >>> geometric_median().combine.average(points, np.full(4, 0.25)).round(1).tolist()
        [1.0, 0.1]
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        return robust.smoothed_weiszfeld(points, weights, steps, nu)

    if not remember:
        return Aggregate(RobustAverage(average, bucket, evenly))
    if bucket > 1:
        what = "with buckets the sender of a reply is unknown"
        got = f"{bucket} with remember = true"
        raise ConfigError("in-conflict", "weigh.bucket", what, found=got, allowed="1")
    return Aggregate(RememberingMedian(average, one_vote=evenly))


@validated
def centred_clipping(
    steps: Steps = 5, tau: Positive | None = None, bucket: Bucket = 1
) -> Aggregate:
    """Centred clipping: the mean of the replies, after those far from the centre are moved towards
    it.

    ``v <- v + sum_i w_i (x_i - v) min(1, tau / |x_i - v|)`` from ``v = 0``.

    Args:
        steps: number of steps of the algorithm.
        tau: the radius; ``None``: the median distance from the centre.
        bucket: number of replies that are first averaged, in random buckets.

    Source: Karimireddy et al., Learning from History for Byzantine Robust Optimization (2021).

    Example:
        >>> import numpy as np
        >>> points = np.array([[1.0], [1.1], [0.9], [1e9]])
        >>> float(centred_clipping(steps=9).combine.average(points, np.full(4, 0.25))[0].round(2))
        1.05
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        return robust.clipped_mean(points, weights, steps, tau)

    return Aggregate(RobustAverage(average, bucket))


def mean_by_size() -> Weigh:
    """The mean of a group's replies by their numbers of samples, FedAvg's rule."""
    return by_size


def plain_mean() -> Weigh:
    """The mean of a group's replies, with equal weights."""
    return evenly


# The names of `[weigh]`. The first two say how much a reply counts and fill the slot `weigh`; the others
# say what the replies make together and fill `aggregate`.
WEIGHS: Mapping[str, Callable[..., Weigh | Aggregate]] = MappingProxyType(
    {
        "by_size": mean_by_size,
        "evenly": plain_mean,
        "coordinate_median": coordinate_median,
        "trimmed_mean": trimmed_mean,
        "krum": krum,
        "geometric_median": geometric_median,
        "centred_clipping": centred_clipping,
    }
)

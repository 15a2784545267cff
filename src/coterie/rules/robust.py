"""Robust rules for the slot ``weigh``, `WEIGHS` by name: what a group makes of its replies where
some of them may be hostile.

A mean follows whoever sends the largest update. The rules here replace it, group by group, and work
with every method whose groups are means of replies. They need the replies side by side. What they
have in common is in `coterie.rules.combining`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.arrays import FloatArray
from coterie.errors import ConfigError
from coterie.math import robust
from coterie.rules.combining import RobustWeigh
from coterie.rules.standing import RememberingMedian
from coterie.rules.weighing import BySize, Evenly, Weigh, by_size, evenly

Share = Annotated[float, Field(ge=0, lt=0.5)]
Bucket = Annotated[int, Field(ge=1)]
Steps = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


def _of_share(share: float, n: int) -> int:
    """The wrong ones among ``n`` replies: rounded up, since chance may bring more than the share."""
    # A product such as 0.1 * 30 may be a little above the whole number that it is.
    return math.ceil(share * n - 1e-9)


@validated
def coordinate_median(bucket: Bucket = 1) -> RobustWeigh:
    """The median of each coordinate over a group's replies.

    It bears any values of fewer than half of the replies. All replies count the same.

    Args:
        bucket: replies that are averaged in front of it, in random buckets.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates
    (2018).

    Example:
        >>> import numpy as np
        >>> coordinate_median().average(np.array([[1.0], [2.0], [1e9]]), np.ones(3)).tolist()
        [2.0]
    """
    return RobustWeigh(lambda points, share: robust.median_per_coordinate(points), bucket)


@validated
def trimmed_mean(share: Share = 0.2, bucket: Bucket = 1) -> RobustWeigh:
    """The mean of each coordinate without its largest and its smallest values.

    Of ``n`` replies ``ceil(share * n)`` values go on either side, but fewer than half. All replies
    count the same.

    Args:
        share: of the replies that may be hostile.
        bucket: replies that are averaged in front of it, in random buckets.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates
    (2018).

    Example:
        >>> import numpy as np
        >>> trimmed_mean().average(np.array([[1.0], [2.0], [3.0], [4.0], [1e9]]), np.ones(5)).tolist()
        [3.0]
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        return robust.trimmed_mean_per_coordinate(points, _of_share(share, len(points)))

    return RobustWeigh(average, bucket)


@validated
def krum(
    share: Share = 0.2, keep: Annotated[int, Field(ge=1)] | None = None, bucket: Bucket = 1
) -> RobustWeigh:
    """Multi-Krum: the mean of the replies that are nearest to their neighbours.

    A reply's score is the mean squared distance to its ``n - f - 1`` nearest neighbours, with ``f =
    ceil(share * n)``. Of those with the lowest scores ``n - f`` are averaged.

    Args:
        share: of the replies that may be hostile.
        keep: how many replies are averaged; 1 is Krum.
        bucket: replies that are averaged in front of it, in random buckets.

    Source: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent
    (2017).

    Example:
        >>> import numpy as np
        >>> krum(keep=1).average(np.array([[0.0], [0.1], [0.2], [9.0]]), np.full(4, 0.25)).tolist()
        [0.1]
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        chosen = robust.krum_selection(points, _of_share(share, len(points)), keep)
        mean: FloatArray = points[chosen].mean(axis=0)
        return mean

    return RobustWeigh(average, bucket)


@validated
def geometric_median(
    steps: Steps = 8,
    nu: Positive | None = None,
    bucket: Bucket = 1,
    remember: bool = False,
    evenly: bool = False,
) -> RobustWeigh:
    """RFA: the geometric median of a group's replies, by the smoothed Weiszfeld algorithm.

    ``argmin_z sum_i w_i |x_i - z|``. It bears replies of less than half of the weight.

    Args:
        steps: of the algorithm.
        nu: smoothing: no distance counts as smaller.
        bucket: replies that are averaged in front of it, in random buckets.
        remember: clients that go against their group, round after round, count less
            (`coterie.rules.standing`). The server then keeps 256 numbers for each client.
        evenly: all replies count the same, and not by samples: where sizes differ much, one client
            can have half of a round's samples.

    Raises:
        ConfigError: for ``remember`` with buckets, which hide who sent what.

    Source: Pillutla et al., Robust Aggregation for Federated Learning (2022).

    Example:
        >>> import numpy as np
        >>> points = np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0], [1e6, 1e6]])
        >>> geometric_median().average(points, np.full(4, 0.25)).round(1).tolist()
        [1.0, 0.1]
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        return robust.smoothed_weiszfeld(points, weights, steps, nu)

    if not remember:
        return RobustWeigh(average, bucket, one_vote=evenly)
    if bucket > 1:
        raise ConfigError(
            f"weigh.bucket: buckets hide who sent what, got {bucket} with remember = true; "
            "expected 1"
        )
    return RememberingMedian(average, one_vote=evenly)


@validated
def centred_clipping(
    steps: Steps = 5, tau: Positive | None = None, bucket: Bucket = 1
) -> RobustWeigh:
    """Centred clipping: the mean of the replies, those far from the centre moved towards it.

    ``v <- v + sum_i w_i (x_i - v) min(1, tau / |x_i - v|)`` from ``v = 0``.

    Args:
        steps: of the algorithm.
        tau: the radius; ``None``: the median distance from the centre.
        bucket: replies that are averaged in front of it, in random buckets.

    Source: Karimireddy et al., Learning from History for Byzantine Robust Optimization (2021).

    Example:
        >>> import numpy as np
        >>> points = np.array([[1.0], [1.1], [0.9], [1e9]])
        >>> float(centred_clipping(steps=9).average(points, np.full(4, 0.25))[0].round(2))
        1.05
    """

    def average(points: FloatArray, weights: FloatArray) -> FloatArray:
        return robust.clipped_mean(points, weights, steps, tau)

    return RobustWeigh(average, bucket)


def mean_by_size() -> BySize:
    """The mean of a group's replies by their numbers of samples, FedAvg's rule.

    Example:
        >>> mean_by_size() == by_size
        True
    """
    return by_size


def plain_mean() -> Evenly:
    """The mean of a group's replies, in which all count the same.

    Example:
        >>> plain_mean() == evenly
        True
    """
    return evenly


WEIGHS: Mapping[str, Callable[..., Weigh]] = MappingProxyType(
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

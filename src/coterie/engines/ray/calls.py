"""How the clients of a round are divided into calls of Ray's actors.

Used by `coterie.engines.ray.engine`. An actor trains the clients of one call after another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import IntArray

_SHORT = 0.2  # seconds of work for an actor, below which a round is cut into one call for each
_LEAST = 0.05  # seconds of work that are worth a call


@dataclass(slots=True)
class Pace:
    """How long a step takes an actor, measured in the round before.

    Args:
        seconds_per_step: infinite as long as nothing was measured.
    """

    seconds_per_step: float = math.inf

    def measured(self, seconds: float, steps: float) -> None:
        """Take over what a round took."""
        if steps:
            self.seconds_per_step = seconds / steps

    @property
    def least_steps(self) -> float:
        """Steps that are worth a call; any where nothing was measured."""
        if math.isinf(self.seconds_per_step):
            return 0.0
        return _LEAST / self.seconds_per_step

    def is_short(self, steps: float) -> bool:
        """Whether so many steps for an actor are little work."""
        return self.seconds_per_step * steps < _SHORT


def cut(steps: IntArray, actors: int, parts: int, pace: Pace) -> list[IntArray]:
    """The calls of a round, the longest clients first, each with a part of the steps left by then.

    A call costs milliseconds, ten and more where updates go through the object store. So each has
    work for several times that, and calls get shorter towards the end, so that actors end together.
    Where a round is short, an even share of the steps for each actor is better than a choice at the
    end.

    Args:
        steps: int64 ``[n]``, SGD steps of each client.
        actors: how many take calls.
        parts: a call has ``1 / parts`` of the steps that are left.
        pace: of the round before.

    Returns:
        the clients of each call, as places in ``steps``.

    Example:
        >>> [call.tolist() for call in cut(np.array([4, 1, 2, 1]), 1, 2, Pace())]
        [[0], [2], [1], [3]]
    """
    order = np.argsort(-steps, kind="stable")
    if pace.is_short(steps.sum() / actors):
        return even_shares(order, steps, actors)
    before = np.concatenate([[0], np.cumsum(steps[order])])
    calls = []
    at = 0
    while at < len(order):
        # A client is not divided. So a call ends with the last client that keeps it within its aim,
        # and has one client at least.
        aim = before[at] + max(pace.least_steps, (before[-1] - before[at]) / parts)
        to = max(at + 1, int(np.searchsorted(before, aim, side="right")) - 1)
        calls.append(order[at:to])
        at = to
    return calls


def even_shares(order: IntArray, steps: IntArray, count: int) -> list[IntArray]:
    """At most ``count`` even shares: each client, the longest first, goes to the share with the
    fewest steps.

    Example:
        >>> [share.tolist() for share in even_shares(np.array([2, 0, 1]), np.array([3, 2, 5]), 2)]
        [[2], [0, 1]]
    """
    mine: list[list[int]] = [[] for _ in range(count)]
    total = np.zeros(count)
    for place in order.tolist():
        least = int(total.argmin())
        mine[least].append(place)
        total[least] += max(1, steps[place])
    return [np.array(share, np.int64) for share in mine if share]

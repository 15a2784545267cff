"""Which clients are asked in a round, and how many replies make one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie.config.arguments import CheckedRecord
from coterie.config.schema import Count, Positive
from coterie.core import IntArray, Key

SamplerName = Literal["uniform", "cover_then_uniform", "poisson"]


@dataclass(frozen=True)
class Sampler:
    """Selects the clients of round ``t``.

    Args:
        kind: ``uniform``: drawn without replacement each round; ``cover_then_uniform``: in order of
            their numbers for the first ``ceil(N / K)`` rounds, so that each is selected once, then
            uniform (if clients come and go in these rounds, some are selected twice, and some only
            when they are drawn later); ``poisson``: each client with the probability `rate`,
            independently of the others, so the size of a cohort varies.
        clients: int64, the clients that can be selected (those with training samples).
        per_round: ``K``; with ``poisson`` on average.
        key: random stream.

    Example:
        >>> s = Sampler("cover_then_uniform", np.arange(5), 2, Key(0))
        >>> [s(t).tolist() for t in range(3)]
        [[0, 1], [2, 3], [4]]
    """

    kind: SamplerName
    clients: IntArray
    per_round: int
    key: Key

    @property
    def rate(self) -> float:
        """The average share of the clients that is selected in a round."""
        return min(1.0, self.per_round / max(1, len(self.clients)))

    def __call__(self, round: int, present: NDArray[np.bool_] | None = None) -> IntArray:
        """The cohort of a round, of those who are ``present`` (bool ``[N]``, default everybody)."""
        if self.kind == "poisson":
            last = int(self.clients.max(initial=-1))
            draws = self.key.of("sample").at(round).generator().random(last + 1)
            # By its number, so that neither the draw of a client nor its place in the cohort
            # depends on which others are present.
            chosen = np.sort(self.clients[draws[self.clients] < self.rate])
            if present is None:
                return chosen
            return chosen[present[chosen]]
        start = round * self.per_round
        # The opening rounds of FlexCFL's code, where accuracy counts once all clients have
        # a group. That code gives FedAvg another sampler; here all methods see the same
        # clients, so they compare.
        if self.kind == "cover_then_uniform" and start < len(self.clients):
            in_order = self._in_order
            if present is not None:
                in_order = in_order[present[in_order]]
            if start < len(in_order):
                return in_order[start : start + self.per_round]
        # By the round and not by what was drawn before: a resumed run, and another method,
        # draw the same.
        clients = self.clients
        if present is not None:
            clients = self.clients[present[self.clients]]
        rng = self.key.of("sample").at(round).generator()
        return np.sort(rng.choice(clients, min(self.per_round, len(clients)), replace=False))

    @cached_property
    def _in_order(self) -> IntArray:
        """The clients, ascending; found once, since to sort ten million takes as long as a round."""
        clients = self.clients
        if bool((clients[:-1] <= clients[1:]).all()):
            return clients
        return np.sort(clients)


@dataclass(frozen=True, slots=True)
class Quorum(CheckedRecord):
    """How many replies a round needs, and when a run with too few replies stops.

    Args:
        min_replies: with fewer updates than this the round is skipped, and the models do not
            change.
        max_skipped_rounds: after more than this many skipped rounds in a row the run stops.
        max_wait: after skipped rounds in a row that took more than this many seconds in total, the
            run stops; ``None``: no limit.

    Raises:
        ConfigError: for a value out of its range.
    """

    min_replies: Count = 1
    # A run without any reply must end by itself, and one bad minute must not end it.
    max_skipped_rounds: Annotated[int, Field(ge=0)] = 10
    # Checked by `coterie.runs.run.Run` and not by the loop over rounds: the time is that in the
    # rows, so that what passed before a run was resumed counts, too.
    max_wait: Positive | None = None

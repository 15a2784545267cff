"""Which clients are asked in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.core.keys import Key

SamplerName = Literal["uniform", "cover_then_uniform"]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which clients are asked in round ``t``.

    Args:
        kind: ``uniform``: drawn without replacement each round; ``cover_then_uniform``: in order of
            their numbers for the first ``ceil(N / K)`` rounds, so that each is met once, then
            uniform. Where clients come and go in these rounds, some are met twice and some only
            when they are drawn later.
        clients: int64, the clients that can be asked (those with training samples).
        per_round: ``K``.
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

    def __call__(self, round: int, present: NDArray[np.bool_] | None = None) -> IntArray:
        """The cohort of a round, of those who are ``present`` (bool ``[N]``, default everybody)."""
        clients = self.clients if present is None else self.clients[present[self.clients]]
        start = round * self.per_round
        # The opening rounds of FlexCFL's code, where accuracy counts once all clients have
        # a group. That code gives FedAvg another sampler; here all methods see the same
        # clients, so they compare.
        if self.kind == "cover_then_uniform" and start < len(clients):
            in_order = clients if bool((clients[:-1] <= clients[1:]).all()) else np.sort(clients)
            return in_order[start : start + self.per_round]
        # By the round and not by what was drawn before: a resumed run, and another method,
        # draw the same.
        rng = self.key.of("sample").at(round).generator()
        return np.sort(rng.choice(clients, min(self.per_round, len(clients)), replace=False))

"""How long the clients of a simulation take to answer: numbers that follow from the seed, so that who
is late is the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.config.arguments import CheckedFields
from coterie.core.arrays import FloatArray
from coterie.core.keys import Key


@dataclass(frozen=True, slots=True)
class ReplyTimes(CheckedFields):
    """The time from a request to a client's reply, in any unit.

        time(i, t) = median * exp(spread * z_i + noise * z_it)

    ``z_i`` is a standard normal number of the client, so slow clients stay slow; ``z_it`` is one of
    the client and the round.

    Args:
        median: median time over all clients and rounds.
        spread: how much clients differ; 0: they are equally fast.
        noise: how much the rounds of one client differ.
        deadline: time after which the server no longer waits; ``None``: it waits for all.

    Raises:
        ConfigError: for a value out of its range.

    Example:
        >>> times = ReplyTimes(median=2.0, spread=0.5, noise=0.0)
        >>> a = times.draw(3, Key(0).at(4))
        >>> b = times.draw(3, Key(0).at(5))
        >>> bool((a == b).all()), a.round(1).tolist()
        (True, [7.0, 3.1, 0.9])
    """

    median: Annotated[float, Field(gt=0)] = 1.0
    spread: Annotated[float, Field(ge=0, le=10)] = 0.5
    noise: Annotated[float, Field(ge=0, le=10)] = 0.25
    deadline: Annotated[float, Field(gt=0)] | None = None

    def draw(self, clients: int, key: Key) -> FloatArray:
        """The times of all clients in a round, float64 ``[N]``."""
        # All clients in one draw, by their numbers: a time does not depend on who else is asked.
        own = Key(key.seed).of("speed").generator().standard_normal(clients)
        of_round = Key(key.seed).of("reply time").at(key.round).generator().standard_normal(clients)
        return self.median * np.exp(self.spread * own + self.noise * of_round)

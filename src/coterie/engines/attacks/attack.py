"""The record of an attack: who attacks, what they train on, and what they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field
from torch import Tensor

from coterie.config.problems import Problem, refuse
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key

Share = Annotated[float, Field(ge=0, le=1)]
Ids = tuple[Annotated[int, Field(ge=0)], ...] | None
# Larger numbers are refused by the validation of replies, whatever the defences.
Factor = Annotated[float, Field(gt=0, le=1e14)]


class Forge(Protocol):
    """What attackers send in place of their updates."""

    def __call__(self, own: FloatArray, honest: FloatArray, keys: Sequence[Key]) -> FloatArray:
        """Forged updates, float64 ``[a, d]``.

        Args:
            own: float64 ``[a, d]``, what they would send honestly.
            honest: float64 ``[h, d]``, the updates of the honest clients that trained the same
                model in the same request; attackers are assumed to know them.
            keys: ``a`` random streams, one for each attacker.
        """
        ...


# Inputs and labels of an attacker's training samples -> those that it trains on.
Poison = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Attack:
    """Who attacks, and how.

    Args:
        share: of the clients that attack, rounded to the nearest number of clients.
        clients: their numbers in place of a share.
        forge: what they send in place of their updates; ``None``: what they have trained.
        poison: what they do to their training samples, with the number of classes as its third
            argument; ``None``: nothing.
        colludes: all of them hold the training data of one honest client, so that a method puts
            them into the same group.
    """

    share: float = 0.2
    clients: tuple[int, ...] | None = None
    forge: Forge | None = None
    poison: Poison | None = None
    colludes: bool = False

    def attackers(self, able: IntArray, population: int, key: Key) -> IntArray:
        """The clients that attack, int64, ascending.

        Every attack with the same seed and share has the same attackers, and a larger share has
        those of a smaller one among them.

        Args:
            able: int64, the clients with training samples.
            population: number of clients ``N``.
            key: of the run.

        Raises:
            ConfigError: for clients that are not there.
        """
        if self.clients is not None:
            if self.clients and max(self.clients) >= population:
                expected = f"numbers up to {population - 1}"
                refuse(Problem("attack.clients", "no such client", max(self.clients), expected))
            return np.unique(np.array(self.clients, np.int64))
        order = key.of("attackers").generator().permutation(able)
        return np.sort(order[: round(self.share * len(able))])

    @property
    def changes_data(self) -> bool:
        """Whether attackers train on other data than they hold."""
        return self.colludes or self.poison is not None

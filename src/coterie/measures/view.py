"""What a measure sees of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.clients.clients import Clients
from coterie.core.arrays import BoolArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.data.population import Population


@dataclass(frozen=True, slots=True)
class RoundView:
    """What a measure sees of a round.

    Args:
        clients: to be asked with ``clients.measure``, which counts as no traffic.
        population: who holds what in this round.
        groups: the state after the round.
        notes: what the round did; ``plan`` is who was to train, ``ids [n]`` and ``weights [k, n]``
            are the replies that counted, and how much.
        key: random stream.
        can_train: bool ``[N]``, who is present and holds training samples; ``None``: all.
    """

    clients: Clients
    population: Population
    groups: Groups
    notes: Mapping[str, Any]
    key: Key
    can_train: BoolArray | None = None


Measure = Callable[[RoundView], Mapping[str, Any]]

"""What a shift is, which clients it touches, and in which rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.snapshot import Event, FederationSnapshot, Mask
from coterie.errors import ConfigError, DataError

# Types of the shifts' options.
Pool = Literal["warm", "all"]
Probability = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Round = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]

# The round of draws that hold for the whole run.
BEFORE = -1

# The share of the clients in a wave where neither `count` nor `fraction` is set.
_FRACTION = 0.1


class Shift(Protocol):
    """What changes at the start of a round, before the cohort is sampled."""

    def __call__(
        self, snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key, /
    ) -> FederationSnapshot:
        """The federation of this round, from that of the round before and the population before any
        shift.

        Args:
            warm: bool ``[N]``, which clients have a group.
            key: the stream of this round. Draws that hold for the whole run come from
                ``key.at(BEFORE)``.
        """
        ...


def require_classes(name: str, population: Population) -> None:
    """Refuse a shift of labels where targets are no classes."""
    if not population.classes or population.y.ndim > 1:
        what = f"{name} changes class labels, but these targets are not classes"
        expected = "a classification, or another shift"
        raise DataError("does-not-fit", "shift.kind", what, allowed=expected)


def combined(shifts: Sequence[Shift]) -> Shift:
    """Several shifts, one after another in every round, each with a stream of its own."""

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        events: list[Event] = []
        changed: list[IntArray] = [np.empty(0, np.int64)]
        for place, one in enumerate(shifts):
            # Streams by place and not by kind: the same kind may stand in two tables.
            snapshot = one(snapshot, initial, round, warm, key.of(f"{place}"))
            events += snapshot.events
            changed.append(snapshot.changed)
        ids = np.unique(np.concatenate(changed))
        return FederationSnapshot(snapshot.population, snapshot.present, tuple(events), ids)

    return shift


@dataclass(frozen=True, slots=True)
class RoundSchedule:
    """Rounds ``start, start + every, ...`` before ``stop``, at most ``times`` of them."""

    start: int = 0
    stop: int | None = None
    every: int = 1
    times: int | None = None

    def __post_init__(self) -> None:
        if self.stop is not None and self.stop <= self.start:
            expected = f"more than {self.start}, the value of start"
            raise ConfigError("out-of-range", "shift.stop", found=self.stop, allowed=expected)

    def due(self, round: int) -> bool:
        """Whether something happens in this round."""
        since = round - self.start
        if since < 0 or since % self.every:
            return False
        if self.stop is not None and round >= self.stop:
            return False
        return self.times is None or since // self.every < self.times

    def wave(self, round: int) -> int:
        """Which of the scheduled times a round is, from 0."""
        return (round - self.start) // self.every


def eligible_clients(snapshot: FederationSnapshot, warm: Mask, pool: Pool) -> IntArray:
    """The clients that a shift chooses from: those present, or those of them with a group."""
    if pool == "warm":
        return np.flatnonzero(snapshot.present & warm)
    return np.flatnonzero(snapshot.present)


def random_pairs(clients: IntArray, p: float, key: Key) -> list[tuple[int, int]]:
    """Disjoint random pairs of clients, each chosen with probability ``p``.

    The clients are put in a random order; the ``i``-th pairs with the ``i``-th from the end, which
    makes ``floor(n / 2)`` pairs. Each is chosen independently. The paper can also be read as one
    pair a round with probability ``p``; its communication figures fit this reading alone.
    """
    rng = key.generator()
    order = rng.permutation(clients)
    half = len(order) // 2
    chosen = np.flatnonzero(rng.random(half) < p)
    return [(int(order[i]), int(order[len(order) - 1 - i])) for i in chosen]


def wave_size(count: int | None, fraction: float | None, clients: int) -> int:
    """How many of so many clients a wave touches: ``count``, or a share of them, at least one."""
    # Rounded to the nearest, and never to none: a wave without clients would be no shift.
    if count is not None:
        size = count
    else:
        share = _FRACTION if fraction is None else fraction
        size = max(1, round(clients * share))
    if size > clients:
        expected = f"at most {clients}, the number of clients"
        raise ConfigError("out-of-range", "shift.count", found=size, allowed=expected)
    return size


def refuse_both(count: int | None, fraction: float | None) -> None:
    """Refuse a number of clients together with a share of them."""
    if count is not None and fraction is not None:
        expected = "shift.count or shift.fraction, not both"
        raise ConfigError("in-conflict", "shift.fraction", found=fraction, allowed=expected)


def clients_event(shift: str, clients: IntArray) -> Event:
    """The event of a shift that touches clients one by one."""
    return {"shift": shift, "clients": np.sort(clients).tolist()}

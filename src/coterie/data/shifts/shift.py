"""What a shift is, and several of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.snapshot import Event, FederationSnapshot, Mask
from coterie.errors import DataError


class Shift(Protocol):
    """What changes at the start of a round, before the cohort is sampled."""

    def __call__(
        self,
        snapshot: FederationSnapshot,
        initial: Population,
        round: int,
        warm: Mask,
        key: Key,
        /,
    ) -> FederationSnapshot:
        """The federation of this round.

        Args:
            snapshot: of the round before.
            initial: the population before any shift.
            round: number of this round, from 0.
            warm: bool ``[N]``, which clients have a group.
            key: the stream of this round. Draws that hold for the whole run come from
                ``key.at(BEFORE)``.
        """
        ...


def require_classes(name: str, population: Population) -> None:
    """Refuse a shift of labels where targets are no classes.

    Raises:
        DataError: for such targets.
    """
    if not population.classes or population.y.ndim > 1:
        raise DataError(
            f"shift.kind: {name} changes the labels of classes, got targets that are none; "
            "expected a classification, or another shift"
        )


def combined(shifts: Sequence[Shift]) -> Shift:
    """Several shifts, one after another in every round, each with a stream of its own.

    Example:
        >>> import torch
        >>> from coterie.data.shifts import rotate_labels, swap_all
        >>> y = torch.tensor([0, 1])
        >>> p = Population(torch.zeros(2, 1), y, ([0], [1]), ([], []), classes=2)
        >>> both = combined([swap_all(1.0, "all"), rotate_labels(0, count=1)])
        >>> start = FederationSnapshot.start(p)
        >>> snapshot = both(start, p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> [event["shift"] for event in snapshot.events], snapshot.changed.tolist()
        (['swap_all', 'rotate_labels'], [0, 1])
    """

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

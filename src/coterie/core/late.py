"""Whose replies come too late for a round of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.core.arrays import BoolArray
from coterie.core.work import Train, Work


@dataclass(frozen=True, slots=True)
class Late:
    """The clients whose trainings do not count in a round.

    Args:
        missed: bool ``[N]``, those who miss the deadline.
        beyond: bool ``[N]``, these, and those who answer when the round has enough replies.
    """

    missed: BoolArray
    beyond: BoolArray

    def of(self, work: Work) -> BoolArray | None:
        """Whose replies to some work come too late, bool ``[N]``; ``None``: no client's."""
        if not isinstance(work, Train):
            return None
        # A training that only places clients has its own number of clients, and needs all of them.
        if work.trial:
            return self.missed
        return self.beyond

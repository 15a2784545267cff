"""Who of a simulation's clients can be asked in a round, and whose replies come too late for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.availability import Availability
from coterie.core.engine import Late
from coterie.core.keys import Key
from coterie.core.reply_times import ReplyTimes


@dataclass(frozen=True, slots=True)
class Participation:
    """Who can be asked, and who answers in time.

    Args:
        availability: which clients can be reached in which rounds; ``None``: always all.
        reply_times: how long clients take; ``None``: they answer at once.
        wanted: replies after which a round waits no longer; ``None``: it waits for all.
    """

    availability: Availability | None = None
    reply_times: ReplyTimes | None = None
    wanted: int | None = None

    def reachable(self, round: int, clients: int, key: Key) -> BoolArray | None:
        """Who of ``N`` clients can be reached in a round, bool ``[N]``; ``None``: all."""
        if self.availability is None:
            return None
        return self.availability.reachable(round, clients, key)

    def late(self, cohort: IntArray, clients: int, key: Key) -> Late | None:
        """Whose trainings come too late in a round of this cohort; ``None``: no client's."""
        if self.reply_times is None:
            return None
        times = self.reply_times.draw(clients, key)
        deadline = self.reply_times.deadline
        missed = np.zeros(clients, bool)
        if deadline is not None:
            missed = times > deadline
        beyond = missed.copy()
        beyond[self._beyond(cohort, times)] = True
        return Late(missed, beyond)

    def _beyond(self, cohort: IntArray, times: FloatArray) -> IntArray:
        """The clients of a cohort that answer when there are enough replies."""
        if self.wanted is None:
            return cohort[:0]
        # Equal times are in the order of the clients' numbers.
        order = cohort[np.lexsort((cohort, times[cohort]))]
        return order[self.wanted :]


def participation_of(
    availability: Availability | None,
    reply_times: ReplyTimes | None,
    over_selection: float,
    wanted: int,
) -> Participation:
    """Who can be asked, and who answers in time, where more clients may be asked than are needed.

    Args:
        over_selection: how many are asked for each reply.
        wanted: replies of a round.
    """
    if over_selection == 1:
        return Participation(availability, reply_times)
    # Who comes first has to follow from something: without the user's own times from the defaults.
    return Participation(availability, reply_times or ReplyTimes(), wanted)


def asked_clients(wanted: int, over_selection: float, clients: int) -> int:
    """How many clients are asked for so many wanted replies, so that enough of them answer soon.

    Example:
        >>> asked_clients(10, 1.3, 100), asked_clients(10, 1.25, 11), asked_clients(10, 1.0, 100)
        (13, 11, 10)
    """
    # Rounded first: 10 * 1.1 is a little more than 11.
    return min(math.ceil(round(wanted * over_selection, 9)), max(wanted, clients))

"""When a run does what: who is asked and answers in time, how data change, what is measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coterie.clients.cohort import Quorum
from coterie.config.arguments import check_returned
from coterie.core.arrays import BoolArray, IntArray
from coterie.core.availability import Availability
from coterie.core.engine import Late
from coterie.core.keys import Key
from coterie.core.reply_times import ReplyTimes
from coterie.data.population import Population
from coterie.data.shifts import FederationSnapshot, Shift
from coterie.experiment.records import Training
from coterie.measures.scoring import Evaluation
from coterie.privacy.accounting import Budget


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
        if self.wanted is not None:
            # Equal times are in the order of the clients' numbers.
            order = cohort[np.lexsort((cohort, times[cohort]))]
            beyond[order[self.wanted :]] = True
        return Late(missed, beyond)


def asked_clients(wanted: int, over_selection: float, clients: int) -> int:
    """How many clients are asked for so many wanted replies, so that enough of them answer soon."""
    # Rounded first: 10 * 1.1 is a little more than 11.
    return min(math.ceil(round(wanted * over_selection, 9)), max(wanted, clients))


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens in the rounds of a run in addition to the method's own step."""

    sampler: Callable[..., IntArray]
    train: Training
    key: Key
    shift: Shift | None = None
    evaluation: Evaluation = Evaluation()
    attackers: tuple[int, ...] = ()
    budget: Budget | None = None
    participation: Participation = Participation()
    quorum: Quorum = Quorum()

    @property
    def rounds(self) -> int:
        return self.train.rounds

    def honest(self, population: int) -> NDArray[np.bool_]:
        """The clients that do not attack, bool ``[N]``."""
        honest = np.ones(population, bool)
        honest[list(self.attackers)] = False
        return honest

    def evaluates(self, number: int) -> bool:
        """Whether the models are scored in a round: every so often, and in the last."""
        # The last round always, so that a run ends with a figure.
        return (number + 1) % self.train.evaluate_every == 0 or number == self.rounds - 1

    def evaluates_before(self, number: int) -> bool:
        """Whether a round scores the models that it begins with."""
        last = number == self.rounds - 1
        return self.evaluation.evaluate.order == "before" and self.evaluates(number) and not last

    def adapts(self, number: int) -> bool:
        """Whether clients are scored after adaptation, and unseen ones, in a round that is
        evaluated."""
        return self.evaluation.evaluate.rounds == "evaluated" or number == self.rounds - 1

    def first_snapshot(self, population: Population) -> FederationSnapshot:
        """Who holds which data before any shift; unseen clients are not present for training."""
        snapshot = FederationSnapshot.start(population)
        if not self.evaluation.unseen:
            return snapshot
        present = snapshot.present.copy()
        present[list(self.evaluation.unseen)] = False
        return replace(snapshot, present=present)

    def shifted(
        self, snapshot: FederationSnapshot, initial: Population, member: IntArray, number: int
    ) -> FederationSnapshot:
        """Who holds which data in a round, from who held which in the round before."""
        if self.shift is None:
            return snapshot
        key = self.key.at(number).of("shift")
        # FlexCFL's code swaps the data of clients with a group only; a shift may ask for that.
        shifted = self.shift(snapshot, initial, number, member >= 0, key)
        fits = isinstance(shifted, FederationSnapshot)
        check_returned("shift", shifted, fits, "a coterie.data.shifts.FederationSnapshot")
        return shifted

    @property
    def asks_with_present(self) -> bool:
        """Whether the sampler is told who can train in a round."""
        return self.shift is not None or self.participation.availability is not None

    def can_train(self, snapshot: FederationSnapshot, number: int) -> BoolArray:
        """Who holds training samples and can be reached in a round, bool ``[N]``. Methods that ask
        all clients ask these."""
        trainable = snapshot.trainable
        reachable = self.participation.reachable(number, len(trainable), self.key)
        if reachable is None:
            return trainable
        return trainable & reachable

"""The loop over rounds: train, evaluate, and write the round's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.clients.cohort import Quorum, Sampler
from coterie.clients.ledger import Block
from coterie.clients.round import Round
from coterie.config.arguments import check_returned
from coterie.core.arrays import BoolArray, IntArray
from coterie.core.engine import Reply
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.served import Served
from coterie.core.solver import Solver
from coterie.core.startup import start_up_seconds, work_clock
from coterie.data.population import Population
from coterie.data.shifts import FederationSnapshot
from coterie.errors import QuorumError
from coterie.methods.algorithm import Algorithm
from coterie.methods.first_models import InitialModels
from coterie.rules.assigning import Serve
from coterie.runs.round_row import (
    RoundEvaluation,
    counts_by_name,
    further_columns,
    round_row,
    round_seconds,
    shift_columns,
)
from coterie.runs.schedule import Schedule
from coterie.terminal import counted


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round left: ``serve`` says which model serves each client, ``scores`` is what real
    clients answered if they scored it."""

    round: int
    groups: Groups
    row: dict[str, Any]
    snapshot: FederationSnapshot
    serve: Serve
    blocks: tuple[Block, ...] = ()
    scores: Reply | None = None

    @property
    def served(self) -> Served:
        """Which model serves each client after the round; computed when it is asked for."""
        return self.serve(self.groups)


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a run begins or resumes.

    Args:
        state: the groups after the round before; ``None``: the run begins.
        snapshot: who held which data in that round; ``None``: the population before any shift.
        skipped: rounds skipped in a row before.
    """

    round: int = 0
    state: Groups | None = None
    snapshot: FederationSnapshot | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class _RoundSteps:
    """The steps of a round, for what all rounds of a run have in common."""

    algorithm: Algorithm
    population: Population
    schedule: Schedule
    evaluation: RoundEvaluation
    solver: Solver

    def move_data(
        self, clients: Clients, snapshot: FederationSnapshot, groups: Groups, number: int
    ) -> tuple[Clients, FederationSnapshot]:
        """Who holds which data in a round; the clients are given theirs."""
        if self.schedule.shift is None:
            return clients, snapshot
        snapshot = self.schedule.shifted(snapshot, self.population, groups.member, number)
        return clients.holding(snapshot.population), snapshot

    def ask_scores_before(
        self, round: Round, snapshot: FederationSnapshot, groups: Groups
    ) -> Callable[[], dict[str, Any]] | None:
        """The scores of the models that the round begins with, to be read when it is over; ``None``
        where these are not asked for."""
        if not self.schedule.evaluates_before(round.number):
            return None
        served = self.algorithm.serve(groups)
        return self.evaluation.post_scores(round, snapshot, served, groups)

    def begin(self, clients: Clients, snapshot: FederationSnapshot, number: int) -> Round:
        """The round, with the clients that are asked in it."""
        schedule = self.schedule
        key = schedule.key.at(number)
        can_train = schedule.can_train(snapshot, number)
        cohort = self._cohort(snapshot, can_train, number)
        late = schedule.participation.late(cohort, self.population.clients, key)
        if late is not None:
            clients = replace(clients, late=late)
        # Real clients' data change without a shift of ours; they report it.
        fixed_data = schedule.shift is None and not clients.are_real
        return Round(
            number,
            key,
            cohort,
            clients,
            self.solver,
            can_train=can_train,
            fixed_data=fixed_data,
            least_replies=schedule.quorum.min_replies,
        )

    def _cohort(self, snapshot: FederationSnapshot, can_train: BoolArray, number: int) -> IntArray:
        """The clients of a round: a sample, or for some methods all that can train."""
        schedule = self.schedule
        # FedGSP draws groups, not clients, so it has to know all who could be in one.
        if self.algorithm.samples_cohort:
            return np.flatnonzero(can_train)
        if schedule.asks_with_present:
            return self._sampled(schedule.sampler(number, can_train))
        cohort = self._sampled(schedule.sampler(number))
        if schedule.evaluation.unseen:
            # A sampler of the user's own may know nothing of them.
            return cohort[snapshot.present[cohort]]
        return cohort

    def _sampled(self, cohort: Any) -> IntArray:
        """What a sampler returned, which may be a user's own."""
        if isinstance(self.schedule.sampler, Sampler):
            return cohort
        clients = self.population.clients
        found = np.asarray(cohort)
        fits = found.ndim == 1 and (found.dtype.kind in "iu" or not found.size)
        if fits and found.size:
            fits = found.min() >= 0 and found.max() < clients and len(set(found)) == len(found)
        check_returned("train.sampler", cohort, fits, f"numbers of clients, 0 to {clients - 1}")
        return found.astype(np.int64)

    def step(self, groups: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """The method's round: the groups after it, and its notes."""
        groups, notes = self.algorithm.step(groups, round)
        unseen = self.schedule.evaluation.unseen
        if unseen:
            # FedAvg says that all clients are members of its one group.
            groups = groups.with_members(np.array(unseen), NO_GROUP)
        return groups, notes

    def evaluate(
        self,
        groups: Groups,
        notes: Mapping[str, Any],
        snapshot: FederationSnapshot,
        round: Round,
        scores_before: Callable[[], dict[str, Any]] | None,
    ) -> dict[str, Any]:
        """The scores of the round, or those of the models that it began with, and what is measured."""
        if scores_before is not None:
            found = scores_before()
        else:
            found = self._scores_after(groups, snapshot, round)
        if self.schedule.evaluation.evaluate.order == "before":
            found["scored"] = "after" if scores_before is None else "before"
        return found | self.evaluation.measured(round, snapshot, groups, notes)

    def _scores_after(
        self, groups: Groups, snapshot: FederationSnapshot, round: Round
    ) -> dict[str, Any]:
        """The scores after the round; none in a round that is not evaluated."""
        number = round.number
        if not self.schedule.evaluates(number):
            return {}
        adapts = self.schedule.adapts(number)
        served = self.algorithm.serve(groups)
        found = self.evaluation.scores(round, snapshot, served, groups, adapts=adapts)
        if adapts:
            found |= self.evaluation.unseen_scores(self.algorithm, groups, snapshot, round)
        return found


def simulate(
    algorithm: Algorithm,
    clients: Clients,
    population: Population,
    initial_models: InitialModels | Tensor,
    schedule: Schedule,
    *,
    solver: Solver | None = None,
    start: StartingPoint | None = None,
) -> Iterator[RoundResult]:
    """Run the rounds that are left and yield after each. ``population`` is that before any shift;
    ``initial_models``: ``j -> [d]``, or one vector ``w_0`` for all."""
    start = start or StartingPoint()
    evaluation = RoundEvaluation.of(schedule, population.clients)
    groups = _first_groups(algorithm, initial_models, start, schedule, population.clients)
    snapshot = start.snapshot or schedule.first_snapshot(population)
    # A resumed run, whose data have moved before.
    if snapshot.population is not population:
        clients = clients.holding(snapshot.population)
    steps = _RoundSteps(algorithm, population, schedule, evaluation, solver or Solver())
    skipped = start.skipped
    for number in range(start.round, schedule.rounds):
        began = work_clock()
        started_up = start_up_seconds()
        before = groups

        # Step 1: the clients' data change.
        clients, snapshot = steps.move_data(clients, snapshot, groups, number)

        # Step 2: some clients are sampled, and the method does its round with them. What is scored
        # before the round is asked first, so that it travels with the first request of the round.
        round = steps.begin(clients, snapshot, number)
        scores_before = steps.ask_scores_before(round, snapshot, groups)
        groups, notes = steps.step(groups, round)
        # To read the ledger empties it, so what scoring refuses and clips is counted apart, below.
        ledger = clients.ledger.read()
        row = round_row(number, before, groups, notes, ledger, evaluation.keys)
        if schedule.shift is not None:
            row |= shift_columns(snapshot, before, notes)

        # Step 3: the models are scored.
        evaluation_began = work_clock()
        row |= steps.evaluate(groups, notes, snapshot, round, scores_before)
        of_scoring = clients.ledger.read()
        clipped = ledger.clipped + of_scoring.clipped
        row |= further_columns(schedule, round, notes, clipped)

        # Step 4: what was refused and how long it took.
        row["refused"] = counts_by_name(ledger.refused + of_scoring.refused)
        row["seconds"] = round_seconds(ledger, notes, began, evaluation_began, started_up)
        blocks = tuple(ledger.blocks)
        serve = algorithm.serve
        yield RoundResult(number, groups, row, snapshot, serve, blocks, of_scoring.scores)
        # After the yield: the row of the round that ends the run is stored, and so is a checkpoint.
        skipped = skipped + 1 if row["skipped"] else 0
        _check_quorum(schedule.quorum, skipped, number)


def _first_groups(
    algorithm: Algorithm,
    initial_models: InitialModels | Tensor,
    start: StartingPoint,
    schedule: Schedule,
    clients: int,
) -> Groups:
    """The groups before the first of the rounds that are left."""
    groups = start.state
    if groups is None:
        by_number = initial_models if callable(initial_models) else lambda j: initial_models
        groups = algorithm.init(by_number, clients)
    # Clients without labels have no group; a resumed run had placed them after the round that was
    # its last one then.
    unlabelled = schedule.evaluation.unlabelled
    if unlabelled:
        groups = groups.with_members(np.array(unlabelled), NO_GROUP)
    return groups


def _check_quorum(quorum: Quorum, skipped: int, number: int) -> None:
    if skipped > quorum.max_skipped_rounds:
        what = f"{counted(skipped, 'round')} in a row had fewer than {quorum.min_replies} replies, the last of them round {number + 1}"
        raise QuorumError("too-few", "quorum", what, allowed=f"at most {quorum.max_skipped_rounds}")

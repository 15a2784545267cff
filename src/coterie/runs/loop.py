"""The loop over rounds: train, evaluate, and write the round's row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.clients.quorum import Quorum
from coterie.clients.round import Round
from coterie.clients.transfers import Block
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.served import Served
from coterie.core.solver import Solver
from coterie.core.task import headline_of
from coterie.data.population import Population
from coterie.data.shifts import FederationSnapshot
from coterie.errors import QuorumError
from coterie.headline import Keys
from coterie.measures.scoring import Scoring, agreement, post_scores, score_round
from coterie.measures.shares import share_error
from coterie.measures.unseen import score_unseen
from coterie.measures.view import Measure, RoundView
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import InitialModels
from coterie.rules.serving import Serve
from coterie.rules.soft_groups import known_shares
from coterie.runs.round_row import (
    attack_columns,
    counts_by_name,
    privacy_columns,
    round_row,
    round_seconds,
    secure_columns,
    shift_columns,
)
from coterie.runs.schedule import Schedule


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round left.

    Args:
        round: its number, from 0.
        groups: the state after it.
        row: its line in ``rounds.jsonl``.
        snapshot: who held which data in it.
        serve: the method's rule of which model serves each client.
        blocks: its transfers.
    """

    round: int
    groups: Groups
    row: dict[str, Any]
    snapshot: FederationSnapshot
    serve: Serve
    blocks: tuple[Block, ...] = ()

    @property
    def served(self) -> Served:
        """Which model serves each client after the round; computed when it is asked for."""
        return self.serve(self.groups)


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a run begins, or goes on.

    Args:
        round: the first round to run.
        state: the groups after the round before; ``None``: the run begins.
        snapshot: who held which data in that round; ``None``: the population before any shift.
        skipped: rounds skipped in a row before.
    """

    round: int = 0
    state: Groups | None = None
    snapshot: FederationSnapshot | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class RoundEvaluation:
    """What is measured after each round of a run.

    Args:
        clients: score the models.
        scoring: which clients, and by what.
        measures: what else to measure.
        honest: bool ``[N]``, the clients that do not attack.
        unseen: the clients that never train.
    """

    clients: Clients
    scoring: Scoring
    measures: Sequence[Measure]
    honest: NDArray[np.bool_]
    unseen: tuple[int, ...] = ()

    @classmethod
    def of(cls, schedule: Schedule, clients: Clients, population: int) -> RoundEvaluation:
        """What a schedule measures of ``population`` clients."""
        evaluation = schedule.evaluation
        scoring = evaluation.scoring(population, schedule.key)
        honest = schedule.honest(population)
        return cls(clients, scoring, evaluation.measures, honest, evaluation.unseen)

    @property
    def keys(self) -> Keys:
        """The names of the task's headline in a row."""
        return headline_of(self.scoring.task).keys

    def scores(
        self,
        snapshot: FederationSnapshot,
        served: Served,
        groups: Groups,
        key: Key,
        *,
        adapts: bool = True,
    ) -> dict[str, Any]:
        """The metrics of the models, each client scored with the one that serves it.

        Args:
            snapshot: who holds which data.
            served: which model serves each client.
            groups: after the round.
            key: of the round.
            adapts: whether clients are scored after adaptation, too, where the run says so.
        """
        # What the models do for attackers is no figure of the method.
        testable = snapshot.testable & self.honest
        scoring = self.scoring
        if not adapts:
            scoring = replace(scoring, adapt=None)
        return score_round(self.clients, testable, served, groups, key.of("evaluate"), scoring)

    def post_scores(
        self, snapshot: FederationSnapshot, served: Served, groups: Groups, key: Key
    ) -> Callable[[], dict[str, Any]]:
        """The same of the models before a round moves them, read after it: real clients score them
        in the exchange in which they train."""
        testable = snapshot.testable & self.honest
        stream = key.of("evaluate")
        return post_scores(self.clients, testable, served, groups, stream, self.scoring)

    def unseen_scores(
        self, algorithm: Algorithm, groups: Groups, snapshot: FederationSnapshot, round: Round
    ) -> dict[str, Any]:
        """The metrics of clients that never train; none where there are none.

        Args:
            algorithm: places them.
            groups: after the round.
            snapshot: who holds which data.
            round: whose number and solver count.
        """
        if not self.unseen:
            return {}
        ids = np.array(self.unseen)
        tested = ids[snapshot.population.sizes("test")[ids] > 0]
        trainable = np.flatnonzero(snapshot.population.sizes("train") > 0)
        of_unseen = replace(round, cohort=tested, key=round.key.of("unseen"))
        adapt = self.scoring.adapt
        return score_unseen(algorithm, groups, of_unseen, trainable, adapt, self.scoring.task)

    def measured(
        self, snapshot: FederationSnapshot, groups: Groups, notes: Mapping[str, Any], key: Key
    ) -> dict[str, Any]:
        """How well planted groups of honest clients were found, and what the measures find."""
        view = RoundView(self.clients, snapshot.population, groups, notes, key.of("measure"))
        found: dict[str, Any] = {}
        planted = snapshot.population.planted
        if planted is not None:
            found["agreement"] = agreement(groups.member[self.honest], planted[self.honest])
        shares = snapshot.population.planted_shares()
        if shares is not None:
            own = known_shares(groups)
            found["share_error"] = share_error(own[self.honest], shares[self.honest])
        for measure in self.measures:
            found |= measure(view)
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
    """Run the rounds that are left and yield after each.

    Args:
        algorithm: what runs.
        clients: reaches the clients.
        population: the clients' data before any shift.
        initial_models: the first models: ``j -> [d]``, or one vector ``w_0 [d]`` for all.
        schedule: who is asked in each round, how data change, what is measured.
        solver: the run's local solver, which rules may want to know.
        start: where the run goes on; ``None``: it begins.

    Raises:
        QuorumError: after more skipped rounds in a row than the quorum allows.
        ConfigError: for a shift of a population that is made lazily.
    """
    start = start or StartingPoint()
    schedule.check(population)
    evaluation = RoundEvaluation.of(schedule, clients, population.clients)
    # Real clients' data change without a shift of ours; they report it.
    clients.fixed_data = schedule.shift is None and clients.drift_reports is None
    groups = start.state
    if groups is None:
        groups = algorithm.init(_by_number(initial_models), population.clients)
    snapshot = _first_snapshot(start, clients, schedule, population)
    skipped = start.skipped
    for number in range(start.round, schedule.rounds):
        began = time.perf_counter()
        before = groups
        key = schedule.key.at(number)

        # Step 1: the clients' data change.
        if schedule.shift is not None:
            snapshot = schedule.shifted(snapshot, population, groups.member, number)
            clients.set_population(snapshot.population, snapshot.present)

        # Step 2: some clients are sampled, and the method does its round with them.
        scores = None
        if schedule.evaluates_before(number):
            scores = evaluation.post_scores(snapshot, algorithm.serve(groups), groups, key)
        cohort = _cohort(algorithm, schedule, snapshot, number, clients)
        clients.late = schedule.participation.late(cohort, population.clients, key)
        round = Round(number, key, cohort, clients, solver or Solver())
        groups, notes = algorithm.step(groups, round)
        if schedule.evaluation.unseen:
            # FedAvg says that all clients are members of its one group.
            groups = groups.with_members(np.array(schedule.evaluation.unseen), NO_GROUP)
        # To read the ledger empties it, so what scoring refuses is counted apart, below.
        ledger = clients.ledger.read()
        row = round_row(number, before, groups, notes, ledger, evaluation.keys)
        if schedule.shift is not None:
            row |= shift_columns(snapshot, before, notes)

        # Step 3: the models are scored.
        evaluation_began = time.perf_counter()
        if scores is not None:
            row |= scores()
        elif schedule.evaluates(number):
            adapts = schedule.adapts(number)
            served = algorithm.serve(groups)
            row |= evaluation.scores(snapshot, served, groups, key, adapts=adapts)
            if adapts:
                row |= evaluation.unseen_scores(algorithm, groups, snapshot, round)
        row |= evaluation.measured(snapshot, groups, notes, key)
        row |= attack_columns(ledger, schedule.attackers, cohort)
        row |= privacy_columns(schedule.budget, number, notes) | secure_columns(notes)

        if schedule.evaluation.order == "before":
            row["scored"] = "after" if scores is None else "before"

        # Step 4: what was refused and how long it took.
        row["refused"] = counts_by_name(ledger.refused + clients.ledger.read().refused)
        row["seconds"] = round_seconds(ledger, notes, began, evaluation_began)
        yield RoundResult(number, groups, row, snapshot, algorithm.serve, tuple(ledger.blocks))
        # After the yield: the row of the round that ends the run is stored, and so is a checkpoint.
        skipped = skipped + 1 if row["skipped"] else 0
        _check_quorum(clients.quorum, skipped, number)


def _first_snapshot(
    start: StartingPoint, clients: Clients, schedule: Schedule, population: Population
) -> FederationSnapshot:
    """Who holds which data before the first round to run; the clients are given theirs."""
    snapshot = start.snapshot or schedule.first_snapshot(population)
    # Methods that ask all clients ask those that can train.
    if schedule.evaluation.unseen:
        clients.able = np.flatnonzero(snapshot.trainable)
    # A resumed run, whose data have moved before.
    if snapshot.population is not population:
        clients.set_population(snapshot.population, snapshot.present)
    return snapshot


def _by_number(initial_models: InitialModels | Tensor) -> InitialModels:
    """One vector for all models as a function of the model's number."""
    if callable(initial_models):
        return initial_models
    vector = initial_models
    return lambda j: vector


def _cohort(
    algorithm: Algorithm,
    schedule: Schedule,
    snapshot: FederationSnapshot,
    number: int,
    clients: Clients,
) -> IntArray:
    """The clients of a round: a sample, or for some methods all that can train."""
    trainable = snapshot.trainable
    reachable = schedule.participation.reachable(number, len(trainable), schedule.key)
    if reachable is not None:
        trainable = trainable & reachable
        # Methods that ask all clients ask those that can be reached.
        clients.able = np.flatnonzero(trainable)
    # FedGSP draws groups, not clients, so it has to know all who could be in one.
    if algorithm.samples_cohort:
        return np.flatnonzero(trainable)
    if schedule.shift is not None or reachable is not None:
        return schedule.sampler(number, trainable)
    cohort = schedule.sampler(number)
    if schedule.evaluation.unseen:
        # A sampler of the user's own may know nothing of them.
        return cohort[snapshot.present[cohort]]
    return cohort


def _check_quorum(quorum: Quorum, skipped: int, number: int) -> None:
    if skipped > quorum.max_skipped_rounds:
        raise QuorumError(
            f"quorum: {skipped} rounds in a row had fewer than {max(1, quorum.min_replies)} "
            f"replies, the last was round {number}; expected at most {quorum.max_skipped_rounds}"
        )

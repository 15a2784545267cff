"""The loop over rounds: train, evaluate, and write the round's row."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.clients.ledger import Ledger
from coterie.clients.quorum import Quorum
from coterie.clients.round import Round
from coterie.clients.transfers import Block, flexcfl_models, transfer_totals
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.solver import Solver
from coterie.core.task import headline_of
from coterie.data.population import Population
from coterie.data.shifts import FederationSnapshot
from coterie.errors import QuorumError
from coterie.headline import Keys
from coterie.measures.scoring import agreement, score_round
from coterie.measures.view import Measure, RoundView
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import InitialModels
from coterie.rules.serving import Serve
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
    scoring = schedule.evaluation.scoring(population.clients, schedule.key)
    # What the models do for attackers is no figure of the method.
    honest = schedule.honest(population.clients)
    keys = headline_of(scoring.task).keys
    groups = start.state
    if groups is None:
        groups = algorithm.init(_by_number(initial_models), population.clients)
    snapshot = _first_snapshot(start, clients, population)
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
        cohort = _cohort(algorithm, schedule, snapshot, number)
        round = Round(number, key, cohort, clients, solver or Solver())
        groups, notes = algorithm.step(groups, round)
        # To read the ledger empties it, so what scoring refuses is counted apart, below.
        ledger = clients.ledger.read()
        row = _row(number, before, groups, notes, ledger, keys)
        if schedule.shift is not None:
            row |= _shifted(snapshot, before, notes)

        # Step 3: the models are scored.
        evaluation_began = time.perf_counter()
        if schedule.evaluates(number):
            testable = snapshot.testable & honest
            served = algorithm.serve(groups)
            row |= score_round(clients, testable, served, groups, key.of("evaluate"), scoring)
        view = RoundView(clients, snapshot.population, groups, notes, key.of("measure"))
        row |= _measured(view, schedule.evaluation.measures, honest)
        # Only where there is something to say, which without attackers is hardly ever.
        if ledger.clipped:
            row["clipped"] = _by_name(ledger.clipped)
        if schedule.attackers:
            row["attackers"] = int((~honest[cohort]).sum())

        # Step 4: what was refused and how long it took.
        row["refused"] = _by_name(ledger.refused + clients.ledger.read().refused)
        row["seconds"] = _seconds(ledger, notes, began, evaluation_began)
        yield RoundResult(number, groups, row, snapshot, algorithm.serve, tuple(ledger.blocks))
        # After the yield: the row of the round that ends the run is stored, and so is a checkpoint.
        skipped = skipped + 1 if row["skipped"] else 0
        _check_quorum(clients.quorum, skipped, number)


def _first_snapshot(
    start: StartingPoint, clients: Clients, population: Population
) -> FederationSnapshot:
    """Who holds which data before the first round to run; the clients are given theirs."""
    snapshot = start.snapshot or FederationSnapshot.start(population)
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
    algorithm: Algorithm, schedule: Schedule, snapshot: FederationSnapshot, number: int
) -> IntArray:
    """The clients of a round: a sample, or for some methods all that can train."""
    # FedGSP draws groups, not clients, so it has to know all who could be in one.
    if algorithm.samples_cohort:
        return np.flatnonzero(snapshot.trainable)
    if schedule.shift is not None:
        return schedule.sampler(number, snapshot.trainable)
    return schedule.sampler(number)


def _measured(
    view: RoundView, measures: Sequence[Measure], honest: NDArray[np.bool_]
) -> dict[str, Any]:
    """How well planted groups of honest clients were found, and what else is measured in a
    round."""
    found: dict[str, Any] = {}
    planted = view.population.planted
    if planted is not None:
        found["agreement"] = agreement(view.groups.member[honest], planted[honest])
    for measure in measures:
        found |= measure(view)
    return found


def _seconds(
    ledger: Ledger, notes: Mapping[str, Any], began: float, evaluation_began: float
) -> dict[str, float]:
    """Where the time of a round went."""
    now = time.perf_counter()
    of_method = notes.get("seconds", {})
    return {
        "training": ledger.training,
        "grouping": of_method.get("grouping", 0.0),
        "aggregation": of_method.get("aggregation", 0.0),
        "evaluation": now - evaluation_began,
        "total": now - began,
    }


def _check_quorum(quorum: Quorum, skipped: int, number: int) -> None:
    if skipped > quorum.max_skipped_rounds:
        raise QuorumError(
            f"quorum: {skipped} rounds in a row had fewer than {max(1, quorum.min_replies)} "
            f"replies, the last was round {number}; expected at most {quorum.max_skipped_rounds}"
        )


# Counts that have a column of their own in the row.
_COUNTS = ("newcomers", "cold_start", "drifted", "migrations", "same_group")
# Notes that are in the row elsewhere, or are too large for it.
_NOT_NOTES = (
    *_COUNTS,
    "loss",
    "discrepancy",
    "skipped",
    "seconds",
    "drifted_ids",
    "ids",
    "weights",
    "plan",
)


def _row(
    number: int,
    before: Groups,
    groups: Groups,
    notes: Mapping[str, Any],
    ledger: Ledger,
    keys: Keys,
) -> dict[str, Any]:
    """The row of a round before it is scored; its keys are in the order of the file."""
    return {
        "round": number,
        # Empty keys hold the places of the figures that scoring fills in.
        keys.value: None,
        keys.all: None,
        keys.mean: None,
        "clients_assigned": int((groups.member >= 0).sum()),
        keys.groups: None,
        keys.quantiles: None,
        "loss": notes.get("loss"),
        "discrepancy": notes.get("discrepancy"),
        "sizes": groups.sizes().tolist(),
        **{name: int(notes.get(name, 0)) for name in _COUNTS},
        "skipped": bool(notes.get("skipped", False)),
        "notes": {name: value for name, value in notes.items() if name not in _NOT_NOTES},
        "refused": _by_name(ledger.refused),
        # Counted twice: all that moved, and what FlexCFL's Fig. 6 counts, to compare with print.
        "transfers": {
            **transfer_totals(ledger.blocks),
            "flexcfl": flexcfl_models(ledger.blocks, notes),
        },
        "moves": moves(before.member, groups.member),
    }


def _by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts in the order of their names, so that equal rows are written alike."""
    return dict(sorted(counts.items()))


def moves(before: IntArray, after: IntArray) -> list[list[int]]:
    """Every client whose group changed, and its new one, ``-1`` for none.

    Example:
        >>> moves(np.array([-1, 0, 1]), np.array([1, 0, -1]))
        [[0, 1], [2, -1]]
    """
    changed = np.flatnonzero(before != after)
    return np.stack([changed, after[changed]], axis=1).tolist()


def _shifted(
    snapshot: FederationSnapshot, before: Groups, notes: Mapping[str, Any]
) -> dict[str, Any]:
    """What the shift did, and which changes of clients with a group the method did not see."""
    changed = snapshot.changed
    # A client without a group has nothing that drift could make wrong.
    had_group = changed[before.member[changed] >= 0]
    missed = np.setdiff1d(had_group, notes.get("drifted_ids", np.empty(0, np.int64)))
    return {"shift": list(snapshot.events), "changed": len(changed), "missed": len(missed)}

"""The row of a round in ``rounds.jsonl``: the scores of the models, and what it says in
addition to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.clients.ledger import Ledger, flexcfl_models, transfer_totals
from coterie.clients.round import Round
from coterie.config.arguments import check_returned
from coterie.core.arrays import BoolArray, IntArray
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.startup import start_up_seconds, work_clock
from coterie.core.task import headline_of
from coterie.data.shifts import FederationSnapshot
from coterie.headline import Keys
from coterie.measures.groups import agreement, share_error
from coterie.measures.optional import RoundView
from coterie.measures.sampling import EvaluationSample
from coterie.measures.scoring import Evaluation, post_scores, score_on_training, score_round
from coterie.measures.unseen import score_unseen
from coterie.methods.algorithm import Algorithm
from coterie.rules.soft_groups import known_shares
from coterie.runs.schedule import Schedule

# Counts that have a column of their own in the row.
_COUNTS = ("newcomers", "cold_start", "drifted", "migrations", "same_group")
# Notes that are in the row elsewhere, or are too large for it.
_NOT_NOTES = (
    *_COUNTS,
    "loss",
    "discrepancy",
    "privacy",
    "skipped",
    "seconds",
    "drifted_ids",
    "ids",
    "weights",
    "plan",
)


def round_row(
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
        "clients_assigned": groups.assigned,
        keys.groups: None,
        keys.quantiles: None,
        keys.fairness: None,
        "loss": notes.get("loss"),
        "discrepancy": notes.get("discrepancy"),
        "sizes": groups.sizes().tolist(),
        **{name: int(notes.get(name, 0)) for name in _COUNTS},
        "local_steps": ledger.steps,
        "skipped": bool(notes.get("skipped", False)),
        "notes": {name: value for name, value in notes.items() if name not in _NOT_NOTES},
        "refused": counts_by_name(ledger.refused),
        # Counted twice: all that moved, and what FlexCFL's Fig. 6 counts, to compare with print.
        "transfers": {
            **transfer_totals(ledger.blocks),
            "flexcfl": flexcfl_models(ledger.blocks, notes),
        },
        "moves": moves(before.member, groups.member),
    }


def counts_by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts in the order of their names, so that equal rows are written alike."""
    return dict(sorted(counts.items()))


def moves(before: IntArray, after: IntArray) -> list[list[int]]:
    """Every client whose group changed, and its new one, ``-1`` for none.

    Example:
        >>> moves(np.array([-1, 0, 1]), np.array([1, 0, -1]))
        [[0, 1], [2, -1]]
    """
    # Of ten million clients the comparison alone takes longer than the rest of the row.
    if before is after:
        return []
    changed = np.flatnonzero(before != after)
    return np.stack([changed, after[changed]], axis=1).tolist()


def shift_columns(
    snapshot: FederationSnapshot, before: Groups, notes: Mapping[str, Any]
) -> dict[str, Any]:
    """What the shift did, and which changes of clients with a group the method did not see."""
    changed = snapshot.changed
    # A client without a group has nothing that drift could make wrong.
    had_group = changed[before.member[changed] >= 0]
    missed = np.setdiff1d(had_group, notes.get("drifted_ids", np.empty(0, np.int64)))
    return {"shift": list(snapshot.events), "changed": len(changed), "missed": len(missed)}


def further_columns(
    schedule: Schedule, round: Round, notes: Mapping[str, Any], clipped: Mapping[str, int]
) -> dict[str, Any]:
    """What only some runs have: what the bounds cut down, by reason, how many clients of the round
    attacked, what the rounds so far spent of a budget, and what secure sums cost."""
    found: dict[str, Any] = {}
    if clipped:
        found["clipped"] = counts_by_name(clipped)
    if schedule.attackers:
        found["attackers"] = int(np.isin(round.cohort, schedule.attackers).sum())
    budget = schedule.budget
    if budget is not None:
        spent = {"epsilon": budget.epsilon(round.number + 1), "delta": budget.delta}
        found["privacy"] = {**spent, **notes.get("privacy", {})}
    if "secure" in notes:
        found["secure"] = notes["secure"]
    return found


def round_seconds(
    ledger: Ledger,
    notes: Mapping[str, Any],
    began: float,
    evaluation_began: float,
    started_up: float,
) -> dict[str, float]:
    """Where the time of a round went. The other times do not contain ``start_up``."""
    now = work_clock()
    of_method = notes.get("seconds", {})
    return {
        "training": ledger.training,
        "grouping": of_method.get("grouping", 0.0),
        "aggregation": of_method.get("aggregation", 0.0),
        "evaluation": now - evaluation_began,
        "total": now - began,
        "start_up": start_up_seconds() - started_up,
    }


@dataclass(frozen=True, slots=True)
class RoundEvaluation:
    """What is measured after each round of a run, of the ``honest`` clients alone."""

    evaluation: Evaluation
    honest: BoolArray

    @classmethod
    def of(cls, schedule: Schedule, population: int) -> RoundEvaluation:
        """What a schedule measures of ``population`` clients."""
        evaluation = schedule.evaluation
        size = schedule.train.evaluate_clients
        if size is not None:
            sample = EvaluationSample.of(size, population, schedule.key)
            evaluation = replace(evaluation, sample=sample)
        return cls(evaluation, schedule.honest(population))

    @property
    def keys(self) -> Keys:
        """The names of the task's headline in a row."""
        return headline_of(self.evaluation.task).keys

    def scores(
        self,
        round: Round,
        snapshot: FederationSnapshot,
        served: Served,
        groups: Groups,
        *,
        adapts: bool = True,
    ) -> dict[str, Any]:
        """The metrics of the models, each client scored with the model that serves it."""
        # What the models do for attackers is no figure of the method.
        testable = snapshot.testable & self.honest
        evaluation = self.evaluation
        if not adapts:
            evaluation = replace(evaluation, adapt=None)
        clients = round.clients
        stream = round.key.of("evaluate")
        able = round.trainable(len(groups.member))
        found = score_round(clients, testable, served, groups, stream, evaluation, able)
        if evaluation.evaluate.training:
            trainable = snapshot.trainable & self.honest
            stream = round.key.of("training")
            found |= score_on_training(clients, trainable, served, groups, stream, evaluation)
        return found

    def post_scores(
        self, round: Round, snapshot: FederationSnapshot, served: Served, groups: Groups
    ) -> Callable[[], dict[str, Any]]:
        """The same of the models before a round moves them, read after it: real clients score them
        in the exchange in which they train."""
        testable = snapshot.testable & self.honest
        stream = round.key.of("evaluate")
        return post_scores(round.clients, testable, served, groups, stream, self.evaluation)

    def unseen_scores(
        self, algorithm: Algorithm, groups: Groups, snapshot: FederationSnapshot, round: Round
    ) -> dict[str, Any]:
        """The metrics of clients that never train; none where there are none."""
        evaluation = self.evaluation
        if not evaluation.unseen:
            return {}
        ids = np.array(evaluation.unseen)
        tested = ids[snapshot.population.sizes("test")[ids] > 0]
        trainable = np.flatnonzero(snapshot.population.sizes("train") > 0)
        of_unseen = replace(round, cohort=tested, key=round.key.of("unseen"))
        return score_unseen(
            algorithm,
            groups,
            of_unseen,
            trainable,
            evaluation.adapt,
            evaluation.task,
            labels=not evaluation.unlabelled,
        )

    def measured(
        self, round: Round, snapshot: FederationSnapshot, groups: Groups, notes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """How well planted groups of honest clients were found, and what the measures find."""
        key = round.key.of("measure")
        population = snapshot.population
        view = RoundView(round.clients, population, groups, notes, key, round.can_train)
        found: dict[str, Any] = {}
        planted = population.planted
        if planted is not None:
            found["agreement"] = agreement(groups.member[self.honest], planted[self.honest])
        shares = population.planted_shares()
        if shares is not None:
            own = known_shares(groups)
            found["share_error"] = share_error(own[self.honest], shares[self.honest])
        for measure in self.evaluation.measures:
            measured = measure(view)
            fits = isinstance(measured, Mapping) and all(isinstance(one, str) for one in measured)
            check_returned("train.measures", measured, fits, "values by their names")
            found |= measured
        return found

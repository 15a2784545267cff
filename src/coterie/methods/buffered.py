"""An asynchronous round, in the manner of FedBuff: clients begin, others' updates come in, and
the round ends when a group's buffer is full and its model has moved."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.errors import ConfigError
from coterie.methods.aggregate import move_models, take_choices, training_notes
from coterie.methods.method import Method
from coterie.rules.buffering import Buffering, InFlight
from coterie.rules.training import train


def buffered_round(
    method: Method, rule: Buffering, state: Groups, round: Round
) -> tuple[Groups, dict[str, Any]]:
    """One move of one group's model.

    Args:
        method: its rules.
        rule: when a model moves.
        state: with the updates in flight.
        round: whose cohort are the clients that may begin.

    Returns:
        The new state, and notes for the round's row.

    Raises:
        ConfigError: if the method's plan is none of clients side by side.
    """
    flight = _in_flight(state)

    # Step 1: clients begin, with the models as they are now, until enough of them train.
    round = replace(round, cohort=_who_begins(flight, rule, round))
    groups, plan, updates, notes = _begin(method, state, round)
    flight = _with_groups(flight, groups.k)
    times = rule.times.draw(len(groups.member), round.key)
    flight = flight.with_updates(updates, times[updates.ids])

    # Step 2: updates come in until a buffer is full.
    flight, came, group = flight.until_full(rule.buffer)
    found = {"clock": flight.clock, "training": len(flight.training), "arrived": len(came)}
    notes["asynchronous"] = found
    if method.local.choose is not None:
        groups = take_choices(groups, _without_values(flight, came), notes)
    if group is None:
        notes["skipped"] = not len(came)
        nobody = np.zeros(groups.k, bool)
        return replace(groups, trained=nobody).remember(flight), notes

    # Step 3: the model of that group moves by what its buffer holds.
    begun = time.perf_counter()
    flight, buffered, staleness = flight.take(group)
    found |= {"group": group, "staleness": float(staleness.mean()), "oldest": int(staleness.max())}
    # Old updates make the step shorter, so the sum of the weights is not made 1 again.
    scale = torch.from_numpy(rule.scale(staleness)).to(torch.float32)
    buffered = replace(buffered, delta=buffered.delta * scale[:, None])
    groups, moved = move_models(method, groups, plan, buffered, round)
    notes["seconds"]["aggregation"] = time.perf_counter() - begun
    return groups.remember(flight), {**notes, **moved}


def _begin(
    method: Method, groups: Groups, round: Round
) -> tuple[Groups, Plan, Updates, dict[str, Any]]:
    """The clients of a round are placed, and train: the groups, the plan, what they will send, and
    notes."""
    nobody = round.cohort[:0]
    if not len(round.cohort):
        plan = Plan(nobody, nobody)
        nothing = groups.models[:0]
        none = np.empty(0)
        updates = Updates(nobody, nobody, nothing, none, none)
        return groups, plan, updates, {"replies": 0, "seconds": {}, "plan": plan}
    begun = time.perf_counter()
    groups, plan = method.assign(groups, round.of("assign"))
    _check_plan(plan)
    seconds = {"grouping": time.perf_counter() - begun - round.clients.ledger.training}
    # What they send is known at once, in a simulation; it comes in when they are done.
    updates = train(method.local, groups, plan, round.of("train"))
    groups, plan = plan.answered(groups)
    notes = {**training_notes(method, groups, plan, updates), "seconds": seconds}
    return groups, plan, updates, notes


def _in_flight(state: Groups) -> InFlight:
    """The updates that have not moved a model yet."""
    flight = state.memory.get(InFlight)
    if flight is None:
        return InFlight.none(state.k, state.models.shape[1])
    return flight


def _with_groups(flight: InFlight, k: int) -> InFlight:
    """The state for groups of which some are new; they have not moved."""
    new = k - len(flight.version)
    if new < 0:
        what = f"groups that go while clients train, got {-new} fewer"
        raise ConfigError(f"asynchronous: {what}; expected a method whose groups stay")
    return replace(flight, version=np.concatenate([flight.version, np.zeros(new, np.int64)]))


def _who_begins(flight: InFlight, rule: Buffering, round: Round) -> IntArray:
    """The clients of the cohort that begin, ascending: as many as there is room for."""
    idle = np.setdiff1d(round.cohort, flight.training)
    room = max(0, rule.concurrency - len(flight.training))
    # Not the first ones: those with low numbers would train more often.
    order = round.key.of("begin").generator().permutation(len(idle))
    return np.sort(idle[order[:room]])


def _check_plan(plan: Plan) -> None:
    if plan.chain is not None or plan.mixtures is not None or plan.shares is not None:
        what = "clients that train after one another, or from mixtures of models, got such a plan"
        raise ConfigError(f"asynchronous: {what}; expected clients side by side")


def _without_values(flight: InFlight, rows: IntArray) -> Updates:
    """Some updates in flight in the order of their clients, without their values."""
    at = rows[np.argsort(flight.ids[rows])]
    nothing = torch.empty(len(at), 0)
    return Updates(flight.ids[at], flight.row[at], nothing, flight.size[at], flight.loss[at])

"""Asynchronous rounds, in the manner of FedBuff: clients begin, others' updates come in when their
clients are done, and a round ends when a group's buffer is full and its model has moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import CheckedRecord
from coterie.config.schema import PYTHON_ONLY
from coterie.core import BoolArray, FloatArray, Groups, IntArray, Plan, Served, Updates
from coterie.core.groups import GrowingRecord
from coterie.core.reply_times import ReplyTimes
from coterie.core.startup import work_clock
from coterie.errors import ConfigError
from coterie.methods.first_models import InitialModels
from coterie.methods.method import Clustered, Method, move_models, training_notes
from coterie.rules.hooks import call
from coterie.rules.soft_groups import take_choices
from coterie.rules.training import train


@dataclass(frozen=True, slots=True)
class Buffering(CheckedRecord):
    """``[asynchronous]``: rounds that do not wait for all of their clients, separately for each
    group; see ``docs/asynchronous.md``.

    An update that began with version ``v`` of its group's model, and arrives after that model has
    changed ``s`` times, is multiplied by ``(1 + s)^-exponent``.

    Args:
        buffer: number of updates after which the models change; the paper's K.
        concurrency: largest number of clients that train at the same time.
        exponent: the exponent in ``1 / (1 + s)^exponent``, the weight of an update that is ``s``
            changes late. The paper uses the square root.
        times: how long clients take.

    Raises:
        ConfigError: for a value out of its range.

    Source: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation (AISTATS 2022),
    Alg. 1, and its section on the experiments for the square root.

    Example:
        >>> Buffering(buffer=2, concurrency=4).scale(np.array([0, 3])).tolist()
        [1.0, 0.5]
    """

    buffer: Annotated[int, Field(ge=1)] = 10
    concurrency: Annotated[int, Field(ge=1)] = field(default=20, metadata=PYTHON_ONLY)
    exponent: Annotated[float, Field(ge=0)] = 0.5
    times: ReplyTimes = field(default=ReplyTimes(), metadata=PYTHON_ONLY)

    def scale(self, staleness: IntArray) -> FloatArray:
        """How much of itself each update counts, float64 ``[n]``, by how often its model moved since
        its client was sent it."""
        return np.power(1.0 + staleness.astype(np.float64), -self.exponent)


@dataclass(frozen=True)
class InFlight(GrowingRecord):
    """The updates that have not moved a model yet, and the clock.

    Args:
        clock: the time, in the unit of the reply times.
        version: int64 ``[k]``, how often each group's model has moved.
        ids: int64 ``[m]``, the clients.
        row: int64 ``[m]``, the group that each update counts for.
        began: int64 ``[m]``, the version of its group's model that each began with.
        due: float64 ``[m]``, when each comes in.
        arrived: bool ``[m]``, those that are in their group's buffer.
        delta: float32 ``[m, d]``, the updates.
        size: float64 ``[m]``, training samples behind them.
        loss: float64 ``[m]``, mean training loss of the last local epoch.
    """

    record_name: ClassVar[str] = "in_flight"
    # It has no row for each client of the federation.
    newcomer: ClassVar[Mapping[str, float]] = {}

    clock: float
    version: IntArray
    ids: IntArray
    row: IntArray
    began: IntArray
    due: FloatArray
    arrived: BoolArray
    delta: Tensor
    size: FloatArray
    loss: FloatArray

    @classmethod
    def none(cls, k: int, d: int) -> InFlight:
        """No client has begun, at time 0, of ``k`` groups with models of ``d`` values."""
        ids = np.empty(0, np.int64)
        numbers = np.empty(0)
        nothing = torch.empty(0, d)
        version = np.zeros(k, np.int64)
        arrived = np.empty(0, bool)
        return cls(0.0, version, ids, ids, ids, numbers, arrived, nothing, numbers, numbers)

    @property
    def training(self) -> IntArray:
        """The clients that are not done yet."""
        return self.ids[~self.arrived]

    def with_updates(self, updates: Updates, times: FloatArray) -> InFlight:
        """The same with clients that begin now; ``times`` says how long each takes."""
        return replace(
            self,
            ids=np.concatenate([self.ids, updates.ids]),
            row=np.concatenate([self.row, updates.row]),
            began=np.concatenate([self.began, self.version[updates.row]]),
            due=np.concatenate([self.due, self.clock + times]),
            arrived=np.concatenate([self.arrived, np.zeros(len(updates), bool)]),
            delta=torch.cat([self.delta, updates.delta]),
            size=np.concatenate([self.size, updates.size]),
            loss=np.concatenate([self.loss, updates.loss]),
        )

    def until_full(self, buffer: int) -> tuple[InFlight, IntArray, int | None]:
        """Let updates come in, one after another, until a group has a full buffer: the state then,
        the rows that came in, and the group, ``None`` if no buffer is full."""
        waiting = np.flatnonzero(~self.arrived)
        # Those that come at the same time come in the order of their clients' numbers.
        order = waiting[np.lexsort((self.ids[waiting], self.due[waiting]))]
        counts = np.bincount(self.row[self.arrived], minlength=len(self.version))
        arrived = self.arrived.copy()
        clock = self.clock
        for number, at in enumerate(order.tolist(), 1):
            arrived[at] = True
            clock = float(self.due[at])
            counts[self.row[at]] += 1
            if counts[self.row[at]] >= buffer:
                state = replace(self, arrived=arrived, clock=clock)
                return state, order[:number], int(self.row[at])
        return replace(self, arrived=arrived, clock=clock), order, None

    def take(self, group: int) -> tuple[InFlight, Updates, IntArray]:
        """Empty the buffer of a group, whose model moves: the state without it, its updates in
        client order, and how often the model has moved since each began, ``[n]``."""
        taken = np.flatnonzero(self.arrived & (self.row == group))
        # A client may be in it twice; its older update comes first.
        taken = taken[np.lexsort((self.due[taken], self.ids[taken]))]
        updates = Updates(
            self.ids[taken], self.row[taken], self.delta[taken], self.size[taken], self.loss[taken]
        )
        staleness = self.version[group] - self.began[taken]
        version = self.version.copy()
        version[group] += 1
        left = np.setdiff1d(np.arange(len(self.ids)), taken)
        rest = InFlight(
            self.clock,
            version,
            self.ids[left],
            self.row[left],
            self.began[left],
            self.due[left],
            self.arrived[left],
            self.delta[left],
            self.size[left],
            self.loss[left],
        )
        return rest, updates, staleness


@dataclass(frozen=True, slots=True)
class Buffered:
    """A ``Method`` as an ``Algorithm`` with asynchronous rounds."""

    method: Method
    rule: Buffering

    @property
    def samples_cohort(self) -> bool:
        return False

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        return Clustered(self.method).init(initial_models, clients)

    def serve(self, state: Groups) -> Served:
        return Clustered(self.method).serve(state)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """One move of one group's model; the cohort are the clients that may begin."""
        method = self.method
        flight = _in_flight(state)

        # Step 1: clients begin, with the models as they are now, until enough of them train.
        cohort = _who_begins(flight, self.rule, round)
        round = replace(round, cohort=cohort, local=method.local)
        groups, plan, updates, notes = _begin(method, state, round)
        flight = _with_groups(flight, groups.k)
        times = self.rule.times.draw(len(groups.member), round.key)
        flight = flight.with_updates(updates, times[updates.ids])

        # Step 2: updates come in until a buffer is full.
        flight, came, group = flight.until_full(self.rule.buffer)
        found = {"clock": flight.clock, "training": len(flight.training), "arrived": len(came)}
        notes["asynchronous"] = found
        if method.local.choose is not None:
            # In the order of their clients; a choice needs no values.
            at = came[np.argsort(flight.ids[came])]
            nothing = torch.empty(len(at), 0)
            chosen = Updates(
                flight.ids[at], flight.row[at], nothing, flight.size[at], flight.loss[at]
            )
            groups = take_choices(groups, chosen, notes)
        if group is None:
            notes["skipped"] = not len(came)
            untrained = np.zeros(groups.k, bool)
            return replace(groups, trained=untrained).remember(flight), notes

        # Step 3: the model of that group moves by what its buffer holds.
        begun = work_clock()
        flight, buffered, staleness = flight.take(group)
        found |= {"group": group, "staleness": float(staleness.mean())}
        found["oldest"] = int(staleness.max())
        # Old updates make the step shorter, so the sum of the weights is not made 1 again.
        scale = torch.from_numpy(self.rule.scale(staleness)).to(torch.float32)
        buffered = replace(buffered, delta=buffered.delta * scale[:, None])
        groups, moved = move_models(method, groups, plan, buffered, round)
        notes["seconds"]["aggregation"] = work_clock() - begun
        return groups.remember(flight), {**notes, **moved}


def _begin(
    method: Method, groups: Groups, round: Round
) -> tuple[Groups, Plan, Updates, dict[str, Any]]:
    """The clients of a round are placed, and train: the groups, the plan, what they will send, and
    notes."""
    empty = round.cohort[:0]
    if not len(round.cohort):
        plan = Plan(empty, empty)
        nothing = groups.models[:0]
        none = np.empty(0)
        updates = Updates(empty, empty, nothing, none, none)
        return groups, plan, updates, {"replies": 0, "seconds": {}, "plan": plan}
    begun = work_clock()
    groups, plan = call("assign", method.assign, groups, round.of("assign"))
    if plan.chain is not None or plan.mixtures is not None or plan.shares is not None:
        what = "the method trains clients in sequence, or on mixtures of models"
        expected = "a method whose clients train in parallel"
        raise ConfigError("does-not-fit", "asynchronous", what, allowed=expected)
    seconds = {"grouping": work_clock() - begun - round.clients.ledger.training}
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
        what = "the method removed groups while clients were training"
        got = f"{-new} fewer"
        expected = "a method that keeps its groups"
        raise ConfigError("does-not-fit", "asynchronous", what, found=got, allowed=expected)
    return replace(flight, version=np.concatenate([flight.version, np.zeros(new, np.int64)]))


def _who_begins(flight: InFlight, rule: Buffering, round: Round) -> IntArray:
    """The clients of the cohort that begin, ascending: as many as there is room for."""
    idle = np.setdiff1d(round.cohort, flight.training)
    room = max(0, rule.concurrency - len(flight.training))
    # Not the first ones: those with low numbers would train more often.
    order = round.key.of("begin").generator().permutation(len(idle))
    return np.sort(idle[order[:room]])

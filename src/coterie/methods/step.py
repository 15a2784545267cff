"""One round of a method made of slots."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.served import Served
from coterie.core.updates import Updates
from coterie.errors import ConfigError
from coterie.math.similarity import Matrix
from coterie.methods.discrepancy import discrepancy
from coterie.methods.method import InitialModels, Method
from coterie.methods.streaming import stream, streamable
from coterie.methods.training import train
from coterie.rules.robust import Combines
from coterie.rules.server import any_weight, combine


@dataclass(frozen=True, slots=True)
class Clustered:
    """A ``Method`` as an ``Algorithm``.

    Args:
        method: its slots.
    """

    method: Method

    @property
    def samples_cohort(self) -> bool:
        """Whether the method samples its clients itself."""
        return self.method.samples_cohort

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        """The first models, and no client has a group yet.

        Args:
            initial_models: ``j -> [d]``, the ``j``-th initialisation of the network.
            clients: number of clients ``N``.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        k = self.method.groups
        if self.method.at_most_clients:
            k = min(k, clients)
        if clients < k:
            raise ConfigError(
                f"algorithm.groups: more groups than clients, got {k}; expected 1 to {clients}"
            )
        which = range(k) if self.method.distinct_init else [0] * k
        models = torch.stack([initial_models(j).to(torch.float32) for j in which])
        trained = np.zeros(k, bool)
        # w_0 is kept apart from the models: newcomers of FedGroup and FlexCFL train from it later.
        return Groups(models, np.full(clients, NO_GROUP), start=models[0], trained=trained)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """One round; an empty cohort changes nothing.

        Returns:
            The new state, and notes for the round's row.
        """
        if not len(round.cohort):
            return state, {}
        method = self.method
        # Sorted: sums run in client order, whatever order a sampler gives.
        round = replace(round, cohort=np.sort(round.cohort), local=method.local)
        # The grouping rules draw from one stream, so that a rule with two halves can share a draw.
        grouping = round.of("assign")

        # Step 1: who trains from which model, and after whom?
        begun = time.perf_counter()
        groups, plan = method.assign(state, grouping)
        # Some rules train clients only to place them; that time counts as training.
        seconds = {"grouping": time.perf_counter() - begun - round.clients.ledger.training}

        # Step 2: the clients train.
        total, updates = _train(method, groups, plan, round.of("train"))
        notes = {**_training_notes(method, groups, plan, updates), "seconds": seconds}
        if method.local.choose is not None:
            groups = _take_choices(groups, updates, notes)

        # Step 3: do the replies change the groups? A rule hears of a round that does not count, too.
        begun = time.perf_counter()
        too_few = len(updates) < round.least_replies
        if too_few:
            updates = updates.first(0)
        if method.recluster is not None:
            groups, updates = method.recluster(groups, updates, grouping)
        if too_few:
            return groups, {**notes, "exchange": 0, "skipped": True}

        # Step 4: how much does each reply count, and how do the models move?
        # After the reclustering: a rule of it may have split or opened groups, whose rows
        # count here.
        before = groups.models
        weights = method.weigh(groups, updates, grouping)
        key = round.key.of("combine")
        groups = _move_models(method, groups, updates, weights, total, key)
        seconds["aggregation"] = time.perf_counter() - begun
        notes["loss"] = float(np.average(updates.loss, weights=updates.size))
        # Streamed updates are gone by now.
        notes["discrepancy"] = None
        if total is None:
            notes["discrepancy"] = discrepancy(before, groups.models, updates)
        return groups, {**notes, "ids": updates.ids, "weights": weights}

    def serve(self, state: Groups) -> Served:
        """Which model serves each client."""
        return self.method.serve(state)


def _train(
    method: Method, groups: Groups, plan: Plan, round: Round
) -> tuple[Tensor | None, Updates]:
    """The updates of a plan, and their weighted sum where they are too large to be held together.

    Returns:
        float64 ``[k, d]``, or ``None`` where the updates themselves are there; and the updates.
    """
    # A rule that clusters replies needs all of them side by side.
    if method.recluster is None and streamable(method.local, method.weigh, plan, groups):
        return stream(method.local, method.weigh, groups, plan, round)
    return None, train(method.local, groups, plan, round)


def _training_notes(method: Method, groups: Groups, plan: Plan, updates: Updates) -> dict[str, Any]:
    """What is known of a round once its clients have trained."""
    # Fig. 6 of FlexCFL counts one exchange per group and round with an inter-group step.
    exchange = groups.k
    if method.inter_group is None:
        exchange = 0
    return {**plan.notes, "replies": len(updates), "exchange": exchange, "plan": plan}


def _take_choices(groups: Groups, updates: Updates, notes: dict[str, Any]) -> Groups:
    """The clients are members of the groups that they chose; ``notes`` counts newcomers."""
    newcomers = int((groups.member[updates.ids] < 0).sum())
    notes["newcomers"] = int(notes.get("newcomers", 0)) + newcomers
    # Who did not answer keeps its group: nothing is known of what it chose.
    return groups.with_members(updates.ids, updates.row)


def _move_models(
    method: Method,
    groups: Groups,
    updates: Updates,
    weights: Matrix,
    total: Tensor | None,
    key: Key,
) -> Groups:
    """Each model moved by its weighted replies, then pulled by the others.

    Args:
        method: its server and inter-group rules.
        groups: before.
        updates: the replies.
        weights: float64 ``[k, n]``, how much each reply counts for each model.
        total: float64 ``[k, d]``, the weighted sum of the replies where it is known already.
        key: random stream of a robust rule.
    """
    if total is None and isinstance(method.weigh, Combines):
        total = method.weigh.combine(weights, updates, groups.models, key)
    elif total is None:
        total = combine(weights, updates, groups.models)
    trained = any_weight(weights)
    groups = method.server(groups, total, torch.from_numpy(trained))
    if method.inter_group is not None:
        groups = method.inter_group(groups)
    return replace(groups, trained=trained)

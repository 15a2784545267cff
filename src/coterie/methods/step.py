"""One round of a method made of slots."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keep import Keep
from coterie.core.own_model import serves_as_sent
from coterie.core.process import one_torch_thread
from coterie.core.served import Served
from coterie.methods.aggregate import move_models, take_choices, take_shares, training_notes
from coterie.methods.method import InitialModels, Method
from coterie.rules.combining import side_by_side
from coterie.rules.soft_groups import with_label_prior


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
        return "all_clients" in (self.method.needs or ())

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        """The first models, and no client has a group yet.

        Args:
            initial_models: ``j -> [d]``, the ``j``-th initialisation of the network.
            clients: number of clients ``N``.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        models = self.method.first.make(initial_models, clients)
        stays = self.method.local.keep
        if isinstance(stays, Keep):
            # A client that changes its group takes along what it keeps. So all models begin with
            # the same values there, and differ only in what is shared.
            kept = torch.from_numpy(stays.kept())
            models[:, kept] = models[0, kept]
        trained = np.zeros(len(models), bool)
        # w_0 is kept apart from the models: newcomers of FedGroup and FlexCFL train from it later.
        return Groups(models, np.full(clients, NO_GROUP), start=models[0], trained=trained)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """One round; an empty cohort changes nothing, unless its models move in every round.

        Returns:
            The new state, and notes for the round's row.
        """
        method = self.method
        # Sorted: sums run in client order, whatever order a sampler gives.
        round = replace(round, cohort=np.sort(round.cohort), local=method.local)
        if not len(round.cohort) and not method.aggregate.every_round:
            return state, {}
        # The grouping rules draw from one stream, so that a rule with two halves can share a draw.
        grouping = round.of("assign")

        # Step 1: who trains from which model, and after whom?
        begun = time.perf_counter()
        groups, plan = method.assign(state, grouping)
        # Some rules train clients only to place them; that time counts as training.
        seconds = {"grouping": time.perf_counter() - begun - round.clients.ledger.training}

        # Step 2: the clients train.
        # A rule that clusters replies needs all of them side by side.
        collect = side_by_side if method.recluster else method.aggregate.collect
        updates = collect(method.local, method.weigh, groups, plan, round.of("train"))
        groups, plan = plan.answered(groups)
        notes = {**training_notes(method, groups, plan, updates), "seconds": seconds}
        if method.local.choose is not None:
            groups = take_choices(groups, updates, notes)
        if updates.shares is not None:
            groups = take_shares(groups, updates.shares, notes)
        if updates.label_sums is not None:
            groups = with_label_prior(groups, updates.label_sums)

        # Step 3: do the replies change the groups? A rule hears of a round that does not count, too.
        begun = time.perf_counter()
        too_few = updates.replies < round.least_replies and not method.aggregate.every_round
        if too_few:
            updates = updates.first(0)
        if method.recluster is not None:
            groups, updates = method.recluster(groups, updates, grouping)
        if too_few:
            return groups, {**notes, "exchange": 0, "skipped": True}

        # Step 4: how much does each reply count, and how do the models move?
        groups, found = move_models(method, groups, plan, updates, round)
        seconds["aggregation"] = time.perf_counter() - begun
        return groups, {**notes, **found}

    @one_torch_thread()
    def serve(self, state: Groups) -> Served:
        """Which model serves each client."""
        served = self.method.serve(state)
        if serves_as_sent(self.method.local.own_model):
            return served
        return replace(served, personal=self.method.local)

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
from coterie.core.arrays import BoolArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keep import Keep
from coterie.core.keys import Key
from coterie.core.mixtures import ClientShares
from coterie.core.own_model import serves_as_sent
from coterie.core.plan import Plan
from coterie.core.served import Served
from coterie.core.updates import Updates
from coterie.errors import ConfigError
from coterie.math.similarity import Matrix
from coterie.methods.discrepancy import discrepancy
from coterie.methods.method import InitialModels, Method
from coterie.methods.streaming import stream, streamable
from coterie.methods.training import train
from coterie.rules.combining import Combines
from coterie.rules.inter_group import InterGroup
from coterie.rules.server import any_weight, combine
from coterie.rules.soft_groups import with_label_prior, with_shares
from coterie.rules.weighing import WeighsAlone


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
        stays = self.method.local.keep
        if isinstance(stays, Keep):
            # A client that changes its group takes along what it keeps. So all models begin with
            # the same values there, and differ only in what is shared.
            kept = torch.from_numpy(stays.kept())
            models[:, kept] = models[0, kept]
        trained = np.zeros(k, bool)
        # w_0 is kept apart from the models: newcomers of FedGroup and FlexCFL train from it later.
        return Groups(models, np.full(clients, NO_GROUP), start=models[0], trained=trained)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """One round; an empty cohort changes nothing, unless its sums are private.

        Returns:
            The new state, and notes for the round's row.
        """
        method = self.method
        # That nobody was asked is something about the clients: private sums have noise even then.
        if not len(round.cohort) and method.private is None:
            return state, {}
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
        groups, plan = plan.answered(groups)
        notes = {**_training_notes(method, groups, plan, updates), "seconds": seconds}
        if method.local.choose is not None:
            groups = _take_choices(groups, updates, notes)
        if updates.shares is not None:
            groups = _take_shares(groups, updates.shares, notes)
        if updates.label_sums is not None:
            groups = with_label_prior(groups, updates.label_sums)

        # Step 3: do the replies change the groups? A rule hears of a round that does not count, too.
        begun = time.perf_counter()
        too_few = updates.replies < round.least_replies and method.private is None
        if too_few:
            updates = updates.first(0)
        if method.recluster is not None:
            groups, updates = method.recluster(groups, updates, grouping)
        if too_few:
            return groups, {**notes, "exchange": 0, "skipped": True}

        # Step 4: how much does each reply count, and how do the models move?
        groups, found = _aggregate(method, groups, plan, updates, total, round)
        seconds["aggregation"] = time.perf_counter() - begun
        return groups, {**notes, **found}

    def serve(self, state: Groups) -> Served:
        """Which model serves each client."""
        served = self.method.serve(state)
        if serves_as_sent(self.method.local.own_model):
            return served
        return replace(served, personal=self.method.local)


def _train(
    method: Method, groups: Groups, plan: Plan, round: Round
) -> tuple[Tensor | None, Updates]:
    """The updates of a plan, and their weighted sum where they are too large to be held together.

    Returns:
        float64 ``[k, d]``, or ``None`` where the updates themselves are there; and the updates.
    """
    # A rule that clusters replies needs all of them side by side, and so do sums that are clipped.
    summed = method.private is not None or method.secure is not None
    together = method.recluster is not None or summed
    if not together and streamable(method.local, method.weigh, plan, groups):
        return stream(method.local, method.weigh, groups, plan, round)
    local = method.local
    # Real clients send no longer update than counts; the server clips those of the others.
    if method.private is not None and round.clients.clip:
        local = replace(local, clip=method.private.clip_in(groups))
    return None, train(local, groups, plan, round)


def _training_notes(method: Method, groups: Groups, plan: Plan, updates: Updates) -> dict[str, Any]:
    """What is known of a round once its clients have trained."""
    # Fig. 6 of FlexCFL counts one exchange per group and round with an inter-group step.
    exchange = groups.k
    if method.inter_group is None:
        exchange = 0
    return {**plan.notes, "replies": updates.replies, "exchange": exchange, "plan": plan}


def _take_choices(groups: Groups, updates: Updates, notes: dict[str, Any]) -> Groups:
    """The clients are members of the groups that they chose; ``notes`` counts newcomers."""
    newcomers = int((groups.member[updates.ids] < 0).sum())
    notes["newcomers"] = int(notes.get("newcomers", 0)) + newcomers
    # Who did not answer keeps its group: nothing is known of what it chose.
    return groups.with_members(updates.ids, updates.row)


def _take_shares(groups: Groups, told: ClientShares, notes: dict[str, Any]) -> Groups:
    """The shares that clients found when they trained; ``notes`` counts newcomers."""
    newcomers = int((groups.member[told.ids] < 0).sum())
    notes["newcomers"] = int(notes.get("newcomers", 0)) + newcomers
    return with_shares(groups, told.ids, told.shares)


def _aggregate(
    method: Method,
    groups: Groups,
    plan: Plan,
    updates: Updates,
    total: Tensor | None,
    round: Round,
) -> tuple[Groups, dict[str, Any]]:
    """The groups with models moved by the replies, and notes for the round's row.

    Args:
        method: its weighing, server and inter-group rules.
        groups: after the reclustering, which may have split or opened groups.
        plan: who was asked.
        updates: the replies.
        total: float64 ``[k, d]``, the weighted sum of the replies where it is known already.
        round: its streams.
    """
    before = groups.models
    weights = method.weigh(groups, updates, round.of("assign"))
    trained = any_weight(weights)
    notes: dict[str, Any] = {"ids": updates.ids, "weights": weights}
    notes["loss"] = None
    if len(updates):
        notes["loss"] = float(np.average(updates.loss, weights=updates.size))
    # Streamed updates are gone by now.
    held = total is None and len(updates) > 0
    if method.private is not None:
        groups, total, notes["privacy"] = method.private(groups, updates, round)
        # Which groups had replies is something about the clients, too.
        trained = np.ones(groups.k, bool)
    elif method.secure is not None:
        assert isinstance(method.weigh, WeighsAlone)
        weight = method.secure.weight(updates.size, method.weigh)
        key = round.key.of("secure")
        total, trained, notes["secure"] = method.secure(groups.k, updates, weight, plan, key)
    elif total is None:
        groups, total = _combined(method, groups, updates, weights, round.key.of("combine"))
    groups = _move_models(method, groups, total, trained)
    notes["discrepancy"] = None
    if held:
        notes["discrepancy"] = discrepancy(before, groups.models, updates, plan.mixtures)
    return groups, notes


def _combined(
    method: Method, groups: Groups, updates: Updates, weights: Matrix, key: Key
) -> tuple[Groups, Tensor]:
    """How far the weighted replies move each model, float64 ``[k, d]``; the groups with what a
    robust rule remembers.

    Args:
        method: whose weighing rule may combine them in its own way.
        groups: before.
        updates: the replies.
        weights: float64 ``[k, n]``, how much each reply counts for each model.
        key: random stream of a robust rule.
    """
    if isinstance(method.weigh, Combines):
        return method.weigh.combine(groups, updates, weights, key)
    return groups, combine(weights, updates, groups.models)


def _move_models(method: Method, groups: Groups, total: Tensor, trained: BoolArray) -> Groups:
    """Each model moved by what its replies make together, then pulled by the others.

    Args:
        method: its server and inter-group rules.
        groups: before.
        total: float64 ``[k, d]``.
        trained: bool ``[k]``, the models that replies count for.
    """
    groups = method.server(groups, total, torch.from_numpy(trained))
    if method.inter_group is not None:
        groups = _pulled(method.inter_group, method.local.stays, groups)
    return replace(groups, trained=trained)


def _pulled(pull: InterGroup, stays: Keep | None, groups: Groups) -> Groups:
    """The models after they pulled on each other, in the coordinates that they share with clients."""
    if stays is None:
        return pull(groups)
    shared = torch.from_numpy(stays.shared(groups.models.shape[1]))
    models = groups.models.clone()
    models[:, shared] = pull(replace(groups, models=groups.models[:, shared])).models
    return replace(groups, models=models)

"""What the replies of clients make of groups: members, models, and notes for the round's row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.arrays import BoolArray
from coterie.core.groups import Groups
from coterie.core.keep import Keep
from coterie.core.keys import Key
from coterie.core.mixtures import ClientShares
from coterie.core.plan import Plan
from coterie.core.threads import one_torch_thread
from coterie.core.updates import Updates
from coterie.math.similarity import Matrix
from coterie.methods.discrepancy import discrepancy
from coterie.methods.method import Method
from coterie.rules.combining import Combines
from coterie.rules.inter_group import InterGroup
from coterie.rules.server import any_weight, combine
from coterie.rules.soft_groups import with_shares
from coterie.rules.weighing import WeighsAlone


def training_notes(method: Method, groups: Groups, plan: Plan, updates: Updates) -> dict[str, Any]:
    """What is known of a round once its clients have trained."""
    # Fig. 6 of FlexCFL counts one exchange per group and round with an inter-group step.
    exchange = groups.k
    if method.inter_group is None:
        exchange = 0
    return {**plan.notes, "replies": updates.replies, "exchange": exchange, "plan": plan}


def take_choices(groups: Groups, updates: Updates, notes: dict[str, Any]) -> Groups:
    """The clients are members of the groups that they chose; ``notes`` counts newcomers."""
    newcomers = int((groups.member[updates.ids] < 0).sum())
    notes["newcomers"] = int(notes.get("newcomers", 0)) + newcomers
    # Who did not answer keeps its group: nothing is known of what it chose.
    return groups.with_members(updates.ids, updates.row)


def take_shares(groups: Groups, told: ClientShares, notes: dict[str, Any]) -> Groups:
    """The shares that clients found when they trained; ``notes`` counts newcomers."""
    newcomers = int((groups.member[told.ids] < 0).sum())
    notes["newcomers"] = int(notes.get("newcomers", 0)) + newcomers
    return with_shares(groups, told.ids, told.shares)


@one_torch_thread()
def aggregate(
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

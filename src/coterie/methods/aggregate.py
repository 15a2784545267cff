"""What the replies of clients make of groups: members, models, and notes for the round's row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keep import Keep
from coterie.core.plan import ClientShares, Plan
from coterie.core.process import one_torch_thread
from coterie.core.updates import Updates
from coterie.methods.discrepancy import discrepancy
from coterie.methods.method import Method
from coterie.rules.inter_group import InterGroup
from coterie.rules.soft_groups import with_shares


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
def move_models(
    method: Method, groups: Groups, plan: Plan, updates: Updates, round: Round
) -> tuple[Groups, dict[str, Any]]:
    """The groups with models moved by the replies, and notes for the round's row.

    Args:
        method: its rules.
        groups: after the reclustering, which may have split or opened groups.
        plan: who was asked.
        updates: the replies.
        round: its streams.
    """
    before = groups.models
    weights = method.weigh(groups, updates, round.of("assign"))
    notes: dict[str, Any] = {"ids": updates.ids, "weights": weights}
    notes["loss"] = None
    if len(updates):
        notes["loss"] = float(np.average(updates.loss, weights=updates.size))
    groups, total, trained, found = method.aggregate(groups, updates, weights, plan, round)
    groups = method.server(groups, total, torch.from_numpy(trained))
    if method.inter_group is not None:
        groups = _pulled(method.inter_group, method.local.stays, groups)
    groups = replace(groups, trained=trained)
    notes["discrepancy"] = None
    if len(updates) and updates.summed is None:
        notes["discrepancy"] = discrepancy(before, groups.models, updates, plan.mixtures)
    return groups, {**notes, **found}


def _pulled(pull: InterGroup, stays: Keep | None, groups: Groups) -> Groups:
    """The models after they pulled on each other, in the coordinates that they share with clients."""
    if stays is None:
        return pull(groups)
    shared = torch.from_numpy(stays.shared(groups.models.shape[1]))
    models = groups.models.clone()
    models[:, shared] = pull(replace(groups, models=groups.models[:, shared])).models
    return replace(groups, models=models)

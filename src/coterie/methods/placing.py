"""Where a method puts clients that never train, with labels and without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.methods.algorithm import Algorithm, method_of
from coterie.rules.hooks import call
from coterie.rules.newcomers import PlacesUnlabelled, unlabelled_rule
from coterie.rules.training import train


def place(algorithm: Algorithm, state: Groups, round: Round) -> Groups:
    """The groups with the cohort of a round placed as the method places newcomers.

    The method's own assign rule is asked, as in a round whose cohort these clients are: it looks at
    their directions, signatures or histograms. Where clients choose their group while they train
    (IFCA), or are placed by what they trained (FeSEM), they train for that. No model moves, so the
    state is to be used for serving alone.

    Args:
        round: whose cohort is to be placed; its clients should be on trial (``Clients.on_trial``).

    Returns:
        The state as it was for an algorithm with a step of its own, and before any client has a
        group: clients that were never placed have no group then.
    """
    method = method_of(algorithm)
    if method is None or not (state.member >= 0).any():
        return state
    round = replace(round, cohort=np.sort(round.cohort), local=method.local)
    # Streams of the same names as in a round of the method.
    groups, plan = call("assign", method.assign, state, round.of("assign"))
    ungrouped = bool((groups.member[round.cohort] < 0).any())
    chooses = method.local.choose is not None
    if not chooses and (method.recluster is None or not ungrouped):
        return groups
    updates = train(method.local, groups, plan, round.of("train"))
    if chooses:
        groups = groups.with_members(updates.ids, updates.row)
    if method.recluster is None:
        return groups
    found, _ = call("recluster", method.recluster, groups, updates, round.of("assign"))
    # Newcomers alone are no reason to split a group.
    if found.k == groups.k:
        return found
    return groups


def rule_without_labels(algorithm: Algorithm) -> PlacesUnlabelled | None:
    """How an algorithm places clients without labels; ``None`` where it has no rule for them."""
    method = method_of(algorithm)
    if method is None:
        return None
    return unlabelled_rule(method.assign)


def place_unlabelled(algorithm: Algorithm, state: Groups, round: Round) -> Groups:
    """The groups with the cohort of a round placed by their inputs alone.

    Each client describes its inputs once, and the method's rule for clients without labels reads
    this. One model serves all clients, so no client is asked.

    Returns:
        The state as it was for a method without such a rule, and before it has found groups. A client
        that did not answer has no group.
    """
    ids = np.sort(round.cohort)
    if state.k == 1:
        return state.with_members(ids, 0)
    rule = rule_without_labels(algorithm)
    asked = None
    if rule is not None:
        asked = call("ask_unlabelled", rule.ask_unlabelled, state)
    if rule is None or asked is None or not len(ids):
        return state
    work, model = asked
    # No model is sent for a statistic of the inputs as they are.
    sent = None
    if work.needs_model:
        sent = model
    reply = round.clients.run(work, ids, sent, key=round.key)
    rows = torch.from_numpy(reply.fields[work.statistic])
    if not len(reply.ids):
        return state
    found = call("place_unlabelled", rule.place_unlabelled, state, rows)
    return state.with_members(reply.ids, found)

"""The local training of a round: clients side by side, or in chains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.core.work import Train


def train(local: Train, groups: Groups, plan: Plan, door: Clients, key: Key) -> Updates:
    """What the clients of a plan make of the models they are given, together or in chains."""
    if plan.chain is None and plan.spent is None:
        reply = door.run(local, plan.ids, groups.models, plan.row, key=key)
        row = plan.row[_places(plan.ids, reply.ids)]
        return Updates(
            reply.ids,
            row,
            torch.from_numpy(reply.fields["delta"]),
            reply.fields["size"],
            reply.fields["loss"],
        )
    return _train_in_waves(local, groups, plan, door, key)


def _train_in_waves(local: Train, groups: Groups, plan: Plan, door: Clients, key: Key) -> Updates:
    """Waves of chains: the first client of every chain, then the second from where the first ended,
    and so on.

    A client that does not answer is skipped, and its chain goes on from the last model that came
    home.
    """
    n = len(plan.ids)
    chain = np.arange(n) if plan.chain is None else plan.chain
    spent = np.zeros(n, np.int64) if plan.spent is None else plan.spent
    links, head, where = np.unique(chain, return_index=True, return_inverse=True)
    hop = _hops(where)
    row = plan.row[head]
    start = groups.models.numpy()[row]
    moved = np.zeros_like(start)
    last = np.full(len(links), -1)
    size = np.zeros(len(links))
    loss = np.zeros(len(links))
    for wave in range(int(hop.max(initial=-1)) + 1):
        for budget in np.unique(spent[hop == wave]):
            asked = np.flatnonzero((hop == wave) & (spent == budget))
            work = replace(local, spent=int(budget))
            at = key.of(str(wave)) if wave else key
            reply = door.run(
                work, plan.ids[asked], torch.from_numpy(start + moved), where[asked], key=at
            )
            spot = where[asked[_places(plan.ids[asked], reply.ids)]]
            moved[spot] += reply.fields["delta"]
            last[spot] = reply.ids
            size[spot] = size[spot] + reply.fields["size"]
            loss[spot] += reply.fields["loss"] * reply.fields["size"]
    came = np.flatnonzero(last >= 0)
    came = came[np.argsort(last[came])]
    return Updates(
        last[came], row[came], torch.from_numpy(moved[came]), size[came], loss[came] / size[came]
    )


def _places(ids: IntArray, some: IntArray) -> IntArray:
    """Where each of ``some`` stands in ``ids``."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], some)]


def _hops(chain: IntArray) -> IntArray:
    """How many clients of the same chain come before each one."""
    order = np.argsort(chain, kind="stable")
    first = np.searchsorted(chain[order], chain[order], side="left")
    hops = np.empty_like(chain)
    hops[order] = np.arange(len(chain)) - first
    return hops

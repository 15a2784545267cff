"""Grouping by recursive bipartition: CFL's rule, and the tree of splits that newcomers descend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.math.clustering import agglomerate, between
from coterie.math.similarity import Matrix, cosine

Halving = Literal["single", "complete"]
NEVER = -1


def bipartition(similarity: Matrix, linkage: Halving = "single") -> tuple[NDArray[np.bool_], float]:
    """Two halves with the least ``alpha_cross = max_{i in c1, k in c2} S(D_i, D_k)``.

    Single linkage on ``1 - S`` finds the optimum: it merges the most alike until two are left, as
    Kruskal's algorithm. ``complete`` linkage, which the released code has, need not.

    Args:
        similarity: ``[n, n]``, ``n >= 2``.
        linkage: which.

    Returns:
        bool ``[n]``, the half without the first client; and ``alpha_cross``.

    Source: Sattler et al., Clustered Federated Learning (2020), Alg. 1.

    Example:
        >>> s = np.array([[1.0, 0.9, -0.2], [0.9, 1.0, 0.1], [-0.2, 0.1, 1.0]])
        >>> half, cross = bipartition(s)
        >>> half.tolist(), cross
        ([False, False, True], 0.1)
    """
    half: NDArray[np.bool_] = agglomerate(1 - similarity, linkage, count=2).labels == 1
    return half, float(similarity[~half][:, half].max())


@dataclass(frozen=True)
class Bipartition:
    """Both halves of CFL: the assign rule before training, ``recluster`` after it.

    A cluster splits in two when its participants' mean update is short and one of them is long:
    ``|sum p_i D_i| < eps1`` with ``p_i = n_i / sum n``, and ``max |D_i| > eps2``. Its model is then
    near a stationary point of the cluster's objective, and not of some members' own. Both children
    start from the parent's model, and the averaging of that same round is theirs.

    Norms are those of a round's participants; the split itself is of all members, by the latest
    update of each. Remembered:

    - ``latest [N, d]``, ``asof [N]``: each client's latest update and its round (-1: none); ``here
      [N]``, ``round``;
    - ``split_model [s, d]``: the parent's model at each split; ``split_child [s, 2]``: a group, or
      ``-1 - t`` for split ``t``; ``split_delta``, ``split_of``, ``split_half``: the members'
      updates that made it, and each one's side.

    A client that comes when the tree has split trains from the model of the first split, goes to
    the half it is more like (by the same linkage), and so on down to a group.

    Args:
        objective: what newcomers minimise on their way down.
        eps1: the mean update is short below this.
        eps2: the longest update is long above this.
        after: rounds at the start in which nothing splits.
        linkage: of ``bipartition``.
        gamma_max: with a number, split only if ``sqrt((1 - alpha_cross) / 2) > gamma_max``.
        max_age: with a number, split only when every member that is there has a latest update, not
            older than so many rounds.

    Source: Sattler et al., Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
    Optimization under Privacy Constraints (2020).
    """

    objective: Objective
    eps1: float = 0.4
    eps2: float = 1.6
    after: int = 20
    linkage: Halving = "single"
    gamma_max: float | None = None
    max_age: int | None = None

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        """Everybody stays; newcomers join the one cluster there is, or descend the tree."""
        groups = _begun(groups, door, key)
        new = cohort[groups.member[cohort] < 0]
        groups = _forget(groups, new)
        if len(groups.memory["split_model"]):
            groups = self._descend(groups, new, door, key)
        else:
            member = groups.member.copy()
            member[new] = 0
            groups = replace(groups, member=member)
        ids = cohort[groups.member[cohort] >= 0]
        lost = int((groups.member[new] < 0).sum())
        notes = {"newcomers": len(new) - lost, **({"unplaced": lost} if lost else {})}
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def recluster(self, groups: Groups, updates: Updates) -> tuple[Groups, Updates]:
        """Remember the updates, and split the clusters that have come to rest while their members
        have not."""
        groups = _remember(groups, updates)
        if int(groups.memory["round"]) >= self.after:
            for row in np.unique(updates.row):
                if self._ready(groups, updates, int(row)):
                    groups, updates = self._split(groups, updates, int(row))
        return groups, updates

    def _ready(self, groups: Groups, updates: Updates, row: int) -> bool:
        mine = np.flatnonzero(updates.row == row)
        delta = updates.delta[torch.from_numpy(mine)].to(torch.float64)
        weight = torch.from_numpy(updates.size[mine] / updates.size[mine].sum())
        at_rest = float((weight[:, None] * delta).sum(dim=0).norm()) < self.eps1
        restless = float(delta.norm(dim=1).max()) > self.eps2
        return at_rest and restless and len(_members(groups, row)) > 2 and self._fresh(groups, row)

    def _fresh(self, groups: Groups, row: int) -> bool:
        if self.max_age is None:
            return True
        asof = groups.memory["asof"].numpy()[(groups.member == row) & groups.memory["here"].numpy()]
        return bool(((asof >= 0) & (int(groups.memory["round"]) - asof <= self.max_age)).all())

    def _split(self, groups: Groups, updates: Updates, row: int) -> tuple[Groups, Updates]:
        members = _members(groups, row)
        delta = groups.memory["latest"][torch.from_numpy(members)]
        half, cross = bipartition(cosine(delta, delta), self.linkage)
        if self.gamma_max is not None and np.sqrt((1 - cross) / 2) <= self.gamma_max:
            return groups, updates
        child = groups.k
        split = len(groups.memory["split_model"])
        member = groups.member.copy()
        silent = np.setdiff1d(np.flatnonzero(member == row), np.union1d(members, updates.ids))
        member[silent] = NO_GROUP
        member[members[half]] = child
        m = groups.memory
        child_of = m["split_child"].clone()
        child_of[child_of == row] = -1 - split
        return replace(groups.taking([*range(child), row]), member=member).remember(
            split_model=torch.cat([m["split_model"], groups.models[row : row + 1]]),
            split_child=torch.cat([child_of, torch.tensor([[row, child]])]),
            split_delta=torch.cat([m["split_delta"], delta]),
            split_of=torch.cat([m["split_of"], torch.full((len(members),), split)]),
            split_half=torch.cat([m["split_half"], torch.from_numpy(half)]),
        ), replace(updates, row=np.where(np.isin(updates.ids, members[half]), child, updates.row))

    def _descend(self, groups: Groups, new: IntArray, door: Clients, key: Key) -> Groups:
        """From the first split to a group, one local training a level; who does not answer stays
        without a group."""
        m = groups.memory
        work = Train(self.objective)
        member = groups.member.copy()
        latest = m["latest"].clone()
        asof = m["asof"].clone()
        at = np.zeros(len(new), np.int64)
        level = 0
        while len(new):
            step = key.of(f"level{level}").of("newcomers")
            reply = door.run(work, new, m["split_model"], at, key=step)
            usable = (reply.fields["delta"] != 0).any(axis=1)
            at = at[np.searchsorted(new, reply.ids[usable])]
            new = reply.ids[usable]
            delta = torch.from_numpy(reply.fields["delta"][usable])
            half = np.zeros(len(new), np.int64)
            for split in np.unique(at):
                here = np.flatnonzero(at == split)
                there = m["split_of"] == split
                apart = 1 - cosine(delta[torch.from_numpy(here)], m["split_delta"][there])
                side = m["split_half"][there].numpy().astype(np.int64)
                half[here] = between(apart, np.empty((0, 0)), side, 2, self.linkage).argmin(axis=1)
            where = m["split_child"].numpy()[at, half]
            home = where >= 0
            member[new[home]] = where[home]
            placed = torch.from_numpy(new[home])
            latest[placed] = delta[torch.from_numpy(home)].to(torch.float32)
            asof[placed] = key.round
            new = new[~home]
            at = -1 - where[~home]
            level = level + 1
        return replace(groups, member=member).remember(latest=latest, asof=asof)


def _begun(groups: Groups, door: Clients, key: Key) -> Groups:
    """The memory of the first round, and in every round its number and who is there."""
    clients = len(groups.member)
    d = groups.models.shape[1]
    here = torch.zeros(clients, dtype=torch.bool)
    here[torch.from_numpy(np.arange(clients) if door.able is None else door.able)] = True
    groups = groups.remember(round=torch.tensor(key.round), here=here)
    if "latest" in groups.memory:
        return groups
    return groups.remember(
        latest=torch.zeros(clients, d),
        asof=torch.full((clients,), NEVER),
        split_model=torch.zeros(0, d),
        split_child=torch.zeros(0, 2, dtype=torch.int64),
        split_delta=torch.zeros(0, d),
        split_of=torch.zeros(0, dtype=torch.int64),
        split_half=torch.zeros(0, dtype=torch.bool),
    )


def _forget(groups: Groups, new: IntArray) -> Groups:
    """What a client without a group once sent says nothing of its data now."""
    asof = groups.memory["asof"].clone()
    asof[torch.from_numpy(new)] = NEVER
    return groups.remember(asof=asof)


def _remember(groups: Groups, updates: Updates) -> Groups:
    """Each participant's update, unless it is zero and so has no direction."""
    told = (updates.delta != 0).any(dim=1)
    ids = torch.from_numpy(updates.ids)[told]
    latest = groups.memory["latest"].clone()
    asof = groups.memory["asof"].clone()
    latest[ids] = updates.delta[told]
    asof[ids] = groups.memory["round"]
    return groups.remember(latest=latest, asof=asof)


def _members(groups: Groups, row: int) -> IntArray:
    """The members of a cluster of whom an update is known."""
    return np.flatnonzero((groups.member == row) & (groups.memory["asof"].numpy() >= 0))

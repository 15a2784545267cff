"""CFL: Sattler et al., Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization (2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import NO_GROUP, BoolArray, Groups, GrowingRecord, IntArray, Plan, Updates
from coterie.math.clustering import agglomerate, linkage_distance
from coterie.math.similarity import Matrix, cosine
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.cold_start import has_direction
from coterie.rules.migration import Detector, Migration, migrating

Halving = Literal["single", "complete"]
NEVER = -1


def bipartition(similarity: Matrix, linkage: Halving = "single") -> tuple[BoolArray, float]:
    """Two halves of two or more updates with the least
    ``alpha_cross = max_{i in c1, k in c2} S(D_i, D_k)``.

    Single linkage on ``1 - S`` finds the optimum: it merges the most alike until two clusters are
    left, as Kruskal's algorithm. ``complete`` linkage, which the released code has, need not.

    Returns:
        bool ``[n]``, the half without the first client; and ``alpha_cross``.

    Source: Sattler et al., Clustered Federated Learning (2020), Alg. 1.
    """
    half: BoolArray = agglomerate(1 - similarity, linkage, count=2).labels == 1
    return half, float(similarity[~half][:, half].max())


@dataclass(frozen=True, slots=True)
class SplitMemory(GrowingRecord):
    """What CFL remembers: the clients' latest updates, and the tree of splits.

    Args:
        last_update: float32 ``[N, d]``, the latest update of each client.
        updated_in_round: int64 ``[N]``, the round of that update, -1 for none.
        present: bool ``[N]``, the clients that could train in the last round.
        split_model: float32 ``[s, d]``, the parent's model at each split.
        split_child: int64 ``[s, 2]``, the children of each split: a group, or ``-1 - t`` for split
            ``t``.
        split_delta: float32 ``[m, d]``, the members' updates that made the splits.
        split_of: int64 ``[m]``, the split that each of these updates made.
        split_half: bool ``[m]``, the half of it that each update is in.
    """

    record_name: ClassVar[str] = "splits"
    newcomer: ClassVar[Mapping[str, float]] = {
        "last_update": 0.0,
        "updated_in_round": -1,
        "present": False,
    }
    last_update: Tensor
    updated_in_round: IntArray
    present: BoolArray
    split_model: Tensor
    split_child: Tensor
    split_delta: Tensor
    split_of: Tensor
    split_half: Tensor

    @property
    def splits(self) -> int:
        """Number of splits so far."""
        return len(self.split_model)

    @classmethod
    def empty(cls, clients: int, d: int) -> SplitMemory:
        """One cluster, and no update yet."""
        return cls(
            last_update=torch.zeros(clients, d),
            updated_in_round=np.full(clients, NEVER),
            present=np.zeros(clients, bool),
            split_model=torch.zeros(0, d),
            split_child=torch.zeros(0, 2, dtype=torch.int64),
            split_delta=torch.zeros(0, d),
            split_of=torch.zeros(0, dtype=torch.int64),
            split_half=torch.zeros(0, dtype=torch.bool),
        )

    def with_present(self, ids: IntArray) -> SplitMemory:
        """These clients, and no others, can train in this round."""
        present = np.zeros(len(self.present), bool)
        present[ids] = True
        return replace(self, present=present)

    def without_updates(self, ids: IntArray) -> SplitMemory:
        """The updates of these clients no longer count."""
        updated_in_round = self.updated_in_round.copy()
        updated_in_round[ids] = NEVER
        return replace(self, updated_in_round=updated_in_round)

    def with_updates(self, ids: IntArray, delta: Tensor, number: int) -> SplitMemory:
        """The latest updates of these clients, made in this round."""
        last_update = self.last_update.clone()
        last_update[torch.from_numpy(ids)] = delta.to(torch.float32)
        updated_in_round = self.updated_in_round.copy()
        updated_in_round[ids] = number
        return replace(self, last_update=last_update, updated_in_round=updated_in_round)

    def with_split(
        self, row: int, child: int, model: Tensor, delta: Tensor, half: BoolArray
    ) -> SplitMemory:
        """One more split.

        Args:
            child: the group of the other half.
            half: bool ``[m]``, which of them are in the new group.
        """
        split_child = self.split_child.clone()
        # Where the tree had this group at its end, it now has the split.
        split_child[split_child == row] = -1 - self.splits
        return replace(
            self,
            split_model=torch.cat([self.split_model, model[None]]),
            split_child=torch.cat([split_child, torch.tensor([[row, child]])]),
            # Kept: a newcomer trains the parent's model and is compared with the updates that split
            # it.
            split_delta=torch.cat([self.split_delta, delta]),
            split_of=torch.cat([self.split_of, torch.full((len(delta),), self.splits)]),
            split_half=torch.cat([self.split_half, torch.from_numpy(half)]),
        )

    def halves(self, split: IntArray, delta: Tensor, linkage: Halving) -> IntArray:
        """The half of its split that each newcomer is more similar to, int64 ``[n]``.

        Args:
            split: int64 ``[n]``, where each newcomer stands.
        """
        half = np.zeros(len(split), np.int64)
        for number in np.unique(split):
            newcomers = np.flatnonzero(split == number)
            members = self.split_of == number
            distance = 1 - cosine(delta[torch.from_numpy(newcomers)], self.split_delta[members])
            side = self.split_half[members].numpy().astype(np.int64)
            to_halves = linkage_distance(distance, np.empty((0, 0)), side, 2, linkage)
            half[newcomers] = to_halves.argmin(axis=1)
        return half


@dataclass(frozen=True)
class Bipartition(PlacesClients):
    """Both halves of CFL: ``assign`` before training, ``recluster`` after it; its fields are the
    arguments of `cfl`.

    A cluster splits in two when its participants' mean update is short and one of them is long:
    ``|sum p_i D_i| < eps1`` with ``p_i = n_i / sum n``, and ``max |D_i| > eps2``. Its model is then
    near a stationary point of the cluster's objective, but not of some members' own objectives.
    Both children start from the parent's model, and this round's average is already theirs.

    Norms are those of a round's participants. The split itself is of all members, by the latest
    update of each. A client that arrives when the tree has split trains from the model of the first
    split, goes to the half that it is more similar to (by the same linkage), and so on down to a
    group.
    """

    eps1: float = 0.4
    eps2: float = 1.6
    after: int = 20
    linkage: Halving = "single"
    gamma_max: float | None = None
    max_age: int | None = None

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        """Clients stay in their cluster. Newcomers join the one cluster there is, or descend the
        tree."""
        groups = _prepared(groups, round)
        new = round.cohort[groups.member[round.cohort] < 0]
        # An update that a client sent before it lost its group says nothing of its data now.
        groups = groups.remember(_memory(groups).without_updates(new))
        if _memory(groups).splits:
            groups = self._descend(groups, new, round)
        else:
            groups = groups.with_members(new, 0)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        unplaced = int((groups.member[new] < 0).sum())
        notes = {"newcomers": len(new) - unplaced}
        if unplaced:
            notes["unplaced"] = unplaced
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """Remember the updates, and split the clusters that are at rest while a member is not."""
        # A zero update has no direction.
        directed = (updates.delta != 0).any(dim=1)
        ids = updates.ids[directed.numpy()]
        memory = _memory(groups).with_updates(ids, updates.delta[directed], round.number)
        groups = groups.remember(memory)
        if round.number >= self.after:
            for row in np.unique(updates.row):
                if self._ready(groups, updates, int(row), round):
                    groups, updates = self._split(groups, updates, int(row))
        return groups, updates

    def _ready(self, groups: Groups, updates: Updates, row: int, round: Round) -> bool:
        """Whether a cluster splits (Alg. 1 of the paper, its two conditions)."""
        mine = np.flatnonzero(updates.row == row)
        # Of the participants alone: PACFL's copy of CFL averages stale and zero updates of absent
        # members, too, which makes every mean look short.
        delta = updates.delta[torch.from_numpy(mine)].to(torch.float64)
        # By samples as the paper has it; its released code counts all members alike.
        weight = torch.from_numpy(updates.size[mine] / updates.size[mine].sum())
        converged = float((weight[:, None] * delta).sum(dim=0).norm()) < self.eps1
        far_apart = float(delta.norm(dim=1).max()) > self.eps2
        # Two members cannot be separated further.
        enough_members = len(_members(groups, row)) > 2
        return converged and far_apart and enough_members and self._fresh(groups, row, round)

    def _fresh(self, groups: Groups, row: int, round: Round) -> bool:
        """Whether every member that is present has sent an update lately."""
        if self.max_age is None:
            return True
        memory = _memory(groups)
        updated = memory.updated_in_round[(groups.member == row) & memory.present]
        age = round.number - updated
        return bool(((updated != NEVER) & (age <= self.max_age)).all())

    def _split(self, groups: Groups, updates: Updates, row: int) -> tuple[Groups, Updates]:
        """Divide the members of a cluster; one half keeps its number, the other gets a new one."""
        members = _members(groups, row)
        memory = _memory(groups)
        # All members and not only the cohort: a split is for good, and half of a cluster
        # may be absent.
        delta = memory.last_update[torch.from_numpy(members)]
        half, cross = bipartition(cosine(delta, delta), self.linkage)
        if self.gamma_max is not None and np.sqrt((1 - cross) / 2) <= self.gamma_max:
            return groups, updates
        child = groups.k
        # Members that never sent an update belong to no half; they come back as newcomers.
        silent = np.setdiff1d(
            np.flatnonzero(groups.member == row), np.union1d(members, updates.ids)
        )
        moved = members[half]
        memory = memory.with_split(row, child, groups.models[row], delta, half)
        # The new child begins as a copy of its parent, with the parent's server moments.
        groups = groups.select([*range(child), row])
        groups = groups.with_members(silent, NO_GROUP).with_members(moved, child)
        # Both children are the parent's model, so an update stays what it was for either.
        new_row = np.where(np.isin(updates.ids, moved), child, updates.row)
        return groups.remember(memory), replace(updates, row=new_row)

    def _descend(self, groups: Groups, new: IntArray, round: Round) -> Groups:
        """From the first split to a group, one local training a level.

        A client that does not answer stays without a group.
        """
        memory = _memory(groups)
        placed: list[IntArray] = [new[:0]]
        sent: list[Tensor] = [memory.last_update[:0]]
        # The training that the members' updates came from, so that lengths and directions compare.
        work = round.trial()
        split = np.zeros(len(new), np.int64)
        level = 0
        while len(new):
            key = round.key.of(f"level{level}").of("newcomers")
            reply = round.clients.run(work, new, memory.split_model, split, key=key)
            # A zero update is equally far from both halves.
            usable = has_direction(reply)
            split = split[np.searchsorted(new, reply.ids[usable])]
            new = reply.ids[usable]
            delta = reply.rows(usable).delta
            half = memory.halves(split, delta, self.linkage)
            child = memory.split_child.numpy()[split, half]
            arrived = child >= 0
            groups = groups.with_members(new[arrived], child[arrived])
            placed.append(new[arrived])
            sent.append(delta[torch.from_numpy(arrived)])
            new = new[~arrived]
            split = -1 - child[~arrived]
            level += 1
        memory = memory.with_updates(np.concatenate(placed), torch.cat(sent), round.number)
        return groups.remember(memory)


def _memory(groups: Groups) -> SplitMemory:
    memory = groups.memory.get(SplitMemory)
    assert memory is not None, "the first assignment prepares the memory"
    return memory


def _prepared(groups: Groups, round: Round) -> Groups:
    """The memory of the first round, and in every round who is present."""
    clients = len(groups.member)
    memory = groups.memory.get(SplitMemory)
    if memory is None:
        memory = SplitMemory.empty(clients, groups.models.shape[1])
    return groups.remember(memory.with_present(round.trainable(clients)))


def _members(groups: Groups, row: int) -> IntArray:
    """The members of a cluster of whom an update is known."""
    known = _memory(groups).updated_in_round != NEVER
    return np.flatnonzero((groups.member == row) & known)


@validated
def cfl(
    # The values of the authors' demonstration, found with a learning rate of 0.1.
    eps1: Annotated[float, Field(ge=0)] = 0.4,
    eps2: Annotated[float, Field(ge=0)] = 1.6,
    after: Annotated[int, Field(ge=0)] = 20,
    # Optimal for the printed criterion. The released code has "complete", which is not.
    linkage: Halving = "single",
    gamma_max: Annotated[float, Field(ge=0, le=1)] | None = None,
    max_age: Annotated[int, Field(ge=0)] | None = None,
    migration: Detector | Migration = "none",
) -> Method:
    """CFL: starts with one group, and splits a group whose updates disagree.

    A group splits in two while its mean update is short and single updates are long. Its parts
    split in the same way.

    It splits if ``|sum p_i D_i| < eps1`` and ``max |D_i| > eps2``, into the halves with the
    smallest maximum cosine between them.

    Args:
        eps1: the length below which a cluster's mean update is short; it scales with the learning
            rate and the epochs.
        eps2: the length above which the longest update is long.
        after: number of initial rounds in which no group splits.
        linkage: ``single`` is the optimal bipartition (the paper), ``complete`` the released code.
        gamma_max: if set, split only if ``sqrt((1 - alpha_cross) / 2) > gamma_max``.
        max_age: if set, split only if every member that is present has sent an update in the last
            ``max_age`` rounds.
        migration: with a detector, clients whose data drifted descend the tree of splits again.

    Models: one per group; their number is determined by two thresholds.

    Source: Sattler et al., Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
    Optimization under Privacy Constraints (2020).

    Example:
        >>> cfl(eps1=0.1).groups
        1
    """
    rule = Bipartition(eps1, eps2, after, linkage, gamma_max, max_age)
    return Method(migrating(rule, migration), recluster=rule.recluster, needs=("newcomers",))

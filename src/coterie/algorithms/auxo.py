"""Auxo: Liu et al., Auxo: Efficient Federated Learning via Scalable Client Clustering (2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import BoolArray, FloatArray, Groups, GrowingRecord, IntArray, Key, Plan, Updates
from coterie.math.clustering import kmeans
from coterie.math.distances import l2
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients

Share = Annotated[float, Field(gt=0, lt=1)]
Above = Annotated[float, Field(gt=0)]
# Of a client that a cohort knows nothing of. One that is known as a member has more.
UNKNOWN = 1.0
# Fewer updates of a cohort do not show where its centre is.
LEAST = 5


@dataclass(frozen=True, slots=True)
class CohortAffinity(GrowingRecord):
    """What Auxo remembers.

    Args:
        reward: float64 ``[N, k]``, ``R``: how near each client's updates were to each cohort's.
        half: int64 ``[N, k]``, the half of a cohort that a client is nearer to: -1, 1, or 0 where
            nothing is known.
    """

    record_name: ClassVar[str] = "auxo"
    newcomer: ClassVar[Mapping[str, float]] = {"reward": UNKNOWN, "half": 0}
    reward: FloatArray
    half: IntArray


def affinity_rewards(update: Tensor, known: BoolArray, most: float) -> FloatArray:
    """How much nearer clients are to a cohort's centre than is usual, ``[n]``, times what is known.

    ``(R_0 - R_0 d_i / (mean d + std d)) * known / n``, where ``d_i`` is the distance of an update to
    the mean of those of known members.

    Args:
        known: bool ``[n]``, the known members, at least one.
        most: ``R_0``, the reward of a client in the centre.

    Example:
        >>> update = torch.tensor([[0.0], [2.0], [7.0]])
        >>> affinity_rewards(update, np.array([True, True, False]), 6.0).round(2).tolist()
        [3.2, 3.2, -0.78]
    """
    centre = update[torch.from_numpy(known)].to(torch.float64).mean(dim=0, keepdim=True)
    distance = l2(update, centre)[:, 0]
    usual = distance.mean() + distance.std()
    # Where all are in the centre, no client is far from it.
    far = distance
    if usual > 0:
        far = distance / usual
    return most * (1 - far) * known.mean()


def halves(direction: Tensor, half: IntArray, key: Key) -> IntArray:
    """The half of each client, with those that nothing is known of by the nearest that are known.

    Args:
        half: int64 ``[n]``, -1, 1 or 0. If all are 0, k-means finds the halves.

    Example:
        >>> direction = torch.tensor([[0.0], [1.0], [8.0], [9.0]])
        >>> halves(direction, np.array([0, 1, -1, 0]), Key(0)).tolist()
        [1, 1, -1, -1]
    """
    known = half != 0
    if not known.any():
        return 2 * kmeans(direction.numpy(), 2, key) - 1
    distance = l2(direction, direction[torch.from_numpy(known)])
    nearest = half[known][distance.argmin(axis=1)]
    if len(np.unique(half[known])) == 1:
        # The other half is not in this round: only the nearest quarter is taken to be of this one.
        near = distance.min(axis=1)
        nearest = np.where(near <= np.quantile(near, 0.25), nearest, 0)
    return np.where(known, half, nearest)


@dataclass(frozen=True)
class FormsCohorts(PlacesClients):
    """The rules `assign` and `recluster` of Auxo; its fields are the arguments of `auxo`."""

    share: float
    participants: int
    reward: float

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        clients = len(groups.member)
        memory = groups.memory.get(CohortAffinity)
        if memory is None:
            nothing = np.zeros((clients, 1), np.int64)
            memory = CohortAffinity(np.full((clients, 1), UNKNOWN), nothing)
        ids = round.cohort
        new = groups.member[ids] < 0
        # Nothing is known of a client that is new, so any cohort may be its own.
        key = round.key.of("newcomers")
        tried = [key.client(client).generator().integers(groups.k) for client in ids.tolist()]
        row = np.where(new, tried, memory.reward[ids].argmax(axis=1))
        notes = {"newcomers": int(new.sum()), "groups": groups.k}
        return groups.remember(memory).with_members(ids, row), Plan(ids, row, notes=notes)

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """Each cohort rewards its participants and looks for halves; who has both may split."""
        for j in np.unique(updates.row):
            mine = updates.row == j
            if mine.sum() >= LEAST:
                update = updates.delta[torch.from_numpy(mine)]
                key = round.key.of(f"halves{j}")
                groups = self._observe(groups, int(j), updates.ids[mine], update, key)
        cohort = _affinity(groups).reward.argmax(axis=1)
        for j in range(groups.k):
            members = np.flatnonzero(cohort == j)
            enough = len(round.cohort) * len(members) >= self.participants * len(cohort)
            if enough and self._has_halves(_affinity(groups).half[members, j], groups):
                groups, updates = _split(groups, updates, j)
        known = np.flatnonzero(groups.member >= 0)
        return groups.with_members(known, _affinity(groups).reward[known].argmax(axis=1)), updates

    def _observe(self, groups: Groups, j: int, ids: IntArray, update: Tensor, key: Key) -> Groups:
        """What the updates of a cohort's participants show."""
        memory = _affinity(groups)
        # While there is one cohort everybody is of it.
        member = (memory.reward[ids, j] > UNKNOWN) | (groups.k == 1)
        if member.sum() < 2:
            return groups
        centred = update - update.mean(dim=0)
        direction = torch.nn.functional.normalize(centred[torch.from_numpy(member)])
        reward = memory.reward.copy()
        half = memory.half.copy()
        half[ids[member], j] = halves(direction, half[ids[member], j], key)
        if groups.k > 1:
            rewards = affinity_rewards(centred, member, self.reward)
            reward[ids, j] += rewards
            half[ids[rewards < 0], j] = 0
        return groups.remember(CohortAffinity(reward, half))

    def _has_halves(self, half: IntArray, groups: Groups) -> bool:
        """Whether so much is known of both halves of a cohort that it splits."""
        counts = [int((half < 0).sum()), int((half > 0).sum())]
        least = self.share * len(groups.member) * 0.9 ** (groups.k - 1)
        # The first cohort may have few clients of another kind, a later one has them by mistake.
        balanced = groups.k == 1 or max(counts) < 2 * min(counts)
        return min(counts) > least and balanced


def _affinity(groups: Groups) -> CohortAffinity:
    memory = groups.memory.get(CohortAffinity)
    assert memory is not None, "the first assignment prepares the memory"
    return memory


def _split(groups: Groups, updates: Updates, j: int) -> tuple[Groups, Updates]:
    """A cohort in two: the half of 1 is a new one, whose model is made of its own updates."""
    memory = _affinity(groups)
    half = memory.half[:, j]
    reward = np.column_stack([memory.reward, memory.reward[:, j] + (half > 0)])
    reward[:, j] += half < 0
    nothing = np.zeros((len(half), 1), np.int64)
    kept = memory.half.copy()
    kept[:, j] = 0
    moved = (updates.row == j) & (half[updates.ids] > 0)
    updates = replace(updates, row=np.where(moved, groups.k, updates.row))
    groups = groups.select([*range(groups.k), j])
    return groups.remember(CohortAffinity(reward, np.column_stack([kept, nothing]))), updates


@validated
def auxo(share: Share = 0.05, participants: Count = 10, reward: Above = 5.0) -> Method:
    """Auxo: a cohort splits when its clients' updates form two clusters, and clients move by
    rewards.

    Each cohort gives a participant the reward ``(R_0 - R_0 d_i / (mean d + std d)) * known / n``,
    where ``d_i`` is the distance of its update to those of known members. A client trains with the
    cohort that gave it the largest reward. The directions of the updates form two clusters, the
    halves of a cohort, and a client belongs to the half of its nearest neighbour. When enough
    clients of both halves are known, the cohort splits.

    Args:
        share: a cohort splits when more than this share of all clients is known in each half; the
            share decreases by a tenth for each existing cohort.
        participants: average number of participants that a cohort must have in a round to split.
        reward: ``R_0``, the reward of a client in the centre of a cohort.

    Models: one per group; their number is determined by two thresholds.

    Source: Liu et al., Auxo: Efficient Federated Learning via Scalable Client Clustering (2023).

    Example:
        >>> auxo(share=0.2).assign.share
        0.2
    """
    rule = FormsCohorts(share, participants, reward)
    return Method(rule, recluster=rule.recluster, needs=())

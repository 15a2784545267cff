"""SR-FCA: Vardhan, Ghosh, Mazumdar, An Improved Federated Clustering Algorithm with Model-based
Clustering (2024)."""

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
from coterie.config.schema import Count
from coterie.core import NO_GROUP, Groups, GrowingRecord, IntArray, Plan
from coterie.math.clustering import pivot_clusters
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.cold_start import Outliers
from coterie.rules.migration import previous_group
from coterie.rules.model_distances import group_distances, mean_losses, near_clusters, to_groups
from coterie.rules.model_means import keep_groups, merge_groups
from coterie.rules.newcomers import least_loss_groups
from coterie.rules.robust import Share, trimmed_mean
from coterie.rules.weighing import evenly


@dataclass(frozen=True, slots=True)
class RefinementMemory(GrowingRecord):
    """What SR-FCA remembers of the start.

    Args:
        clients: int64 ``[n]``, who took part in it, ascending.
        loss: float64 ``[n, n]``, ``L_ij``: the mean loss of client ``i``'s own model on ``j``'s data.
        threshold: ``lambda``, the distance up to which clients or groups are one group.
        rounds: trained since the groups were last refined.
        refined: how often they were.
    """

    record_name: ClassVar[str] = "sr_fca"
    newcomer: ClassVar[Mapping[str, float]] = {}
    clients: IntArray
    loss: Tensor
    threshold: float
    rounds: int
    refined: int


@dataclass(frozen=True)
class SuccessiveRefinement(PlacesClients):
    """The assign rule of SR-FCA; its fields are the arguments of `sr_fca`."""

    threshold: float | Literal["auto"]
    steps_alone: int
    every: int
    times: int
    least: int
    outliers: Outliers

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(RefinementMemory)
        notes: dict[str, float] = {}
        if memory is None:
            groups, left_out = self._one_shot(groups, round)
            notes = {"cold_start": int((groups.member >= 0).sum()), "groups": groups.k}
            if left_out:
                notes["outliers"] = left_out
        elif memory.rounds == self.every and memory.refined < self.times:
            groups = self._refine(groups, memory, round.of("refine"))
            notes = {"groups": groups.k}
        memory = groups.memory.get(RefinementMemory)
        if memory is None:
            return groups, Plan(round.cohort[:0], round.cohort[:0], notes={"unclustered": 1})
        new = round.cohort[groups.member[round.cohort] < 0]
        if not memory.refined:
            # Clients of small clusters wait for the first refinement; drifted ones do not.
            waiting = np.isin(new, memory.clients) & (previous_group(groups)[new] < 0)
            new = new[~waiting]
        if len(new):
            groups = groups.with_members(new, least_loss_groups(groups, new, round))
            notes["newcomers"] = len(new)
        groups = groups.remember(replace(memory, rounds=memory.rounds + 1))
        ids = round.cohort[groups.member[round.cohort] >= 0]
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def _one_shot(self, groups: Groups, round: Round) -> tuple[Groups, int]:
        """ONE_SHOT: clients train alone; those that do well with each other's models are a group.
        And how many clients were left out."""
        asked = round.trainable(len(groups.member))
        work = round.trial(steps=self.steps_alone)
        trained = round.clients.run(work, asked, groups.models[0], key=round.key.of("alone"))
        own = groups.models[0] + trained.delta
        ids, of_own, _ = mean_losses(trained.ids, own, round.of("cross"))
        if len(ids) < max(2, round.least_replies):
            return groups, 0
        # A client that did not score the others' models has no distance to them.
        scored = np.searchsorted(trained.ids, ids)
        own = own[torch.from_numpy(scored)]
        loss = of_own[:, scored].T
        clusters = max(1, len(ids) // self.least)
        key = round.key.of("pivots")
        label, threshold = near_clusters(loss, self.threshold, self.outliers, clusters, key)
        left_out = int((label == NO_GROUP).sum())
        label = self._without_small(label)
        count = int(label.max()) + 1
        models = torch.stack([_mean(own[torch.from_numpy(label == j)]) for j in range(count)])
        memory = RefinementMemory(ids, torch.from_numpy(loss), threshold, 0, 0)
        groups = replace(groups.select([0] * count), models=models)
        return groups.with_members(ids, label).remember(memory), left_out

    def _without_small(self, label: IntArray) -> IntArray:
        """Clients of clusters of fewer than ``least`` no longer have one; the others are renumbered.

        Where all are that small, the largest stay.
        """
        size = np.bincount(label[label >= 0])
        large = np.flatnonzero(size >= min(self.least, int(size.max())))
        return np.where(np.isin(label, large), np.searchsorted(large, label), NO_GROUP)

    def _refine(self, groups: Groups, memory: RefinementMemory, round: Round) -> Groups:
        """REFINE: each client joins its nearest group, then groups that are near are merged."""
        memory = replace(memory, rounds=0, refined=memory.refined + 1)
        groups = groups.remember(memory)
        ids, of_groups, _ = mean_losses(memory.clients, groups.models, round.of("losses"))
        if not len(ids):
            return groups
        place = np.searchsorted(memory.clients, ids)
        of_own = memory.loss.numpy()[np.ix_(place, place)]
        distance = to_groups(of_groups, of_own, groups.member[ids])
        chosen = self._without_small(distance.argmin(axis=1))
        left = np.setdiff1d(np.arange(groups.k), distance.argmin(axis=1)[chosen >= 0])
        distance[:, left] = np.inf
        kept, member = np.unique(distance.argmin(axis=1), return_inverse=True)
        near = group_distances(of_groups[:, kept], member) <= memory.threshold
        merged = pivot_clusters(near, round.key.of("pivots"))
        groups = merge_groups(keep_groups(groups, kept), merged, np.bincount(member))
        return groups.with_members(ids, merged[member])


def _mean(models: Tensor) -> Tensor:
    # In float64, so that the mean of equal values, as of layers that stay with clients, is that value.
    return models.to(torch.float64).mean(dim=0).to(torch.float32)


@validated
def sr_fca(
    threshold: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto",
    # That many in the released configuration for rotated MNIST.
    steps_alone: Count = 250,
    refine_every: Count = 10,
    refinements: Count = 2,
    least: Count = 3,
    trim: Share = 0.15,
    outliers: Outliers = "leave_out",
) -> Method:
    """SR-FCA: groups clients whose models perform well on each other's data, and refines the
    groups.

    With ``L_ij`` the mean loss of client ``i``'s own model on ``j``'s data, clients are near if
    ``(L_ij + L_ji) / 2 <= threshold``. Correlation clustering of this graph forms the first groups.
    Then, after some rounds of training, each client joins the nearest group, and near groups are
    merged. A group's updates are combined by a trimmed mean.

    Args:
        threshold: ``lambda``; ``auto``: by the largest gap between merges of average linkage.
        steps_alone: mini-batch steps of each client alone. With too few, its model is not yet
            better on its own data than on those of other groups, and all clients look similar.
        refine_every: rounds of training before each refinement.
        refinements: number of refinements.
        least: smallest number of clients in a cluster; smaller ones are dissolved.
        trim: the share of values that is left out on either side of each coordinate, ``beta``.
        outliers: ``leave_out`` excludes clients whose losses are far from all others, or contradict
            them, from the first groups and from the threshold. They wait for the first refinement.
            With ``keep``, a single such client can merge all groups.

    Models: one per group; their number is determined by a threshold.

    Source: Vardhan, An Improved Federated Clustering Algorithm with Model-based Clustering (2024).

    Example:
        >>> sr_fca(threshold=0.5, refinements=1).assign.times
        1
    """
    rule = SuccessiveRefinement(threshold, steps_alone, refine_every, refinements, least, outliers)
    return Method(rule, weigh=evenly, aggregate=trimmed_mean(trim), needs=("start", "statistics"))

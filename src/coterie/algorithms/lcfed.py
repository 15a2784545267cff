"""LCFed: Zhang et al., LCFed: An Efficient Clustered Federated Learning Framework for Heterogeneous
Data (2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import CheckedFields, validated
from coterie.config.schema import Count
from coterie.core import NO_GROUP, Groups, GrowingRecord, Plan, Train, Updates, WithOwnModel
from coterie.core.own_model import LastPassLoss, LocalTraining, Own, OwnTrained
from coterie.math.clustering import kmeans
from coterie.math.similarity import cosine
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients, everyone

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class LowRank(GrowingRecord):
    """What LCFed remembers.

    Args:
        joint: float32 ``[d]``, the mean of all clients' models, whose embedding is ``Phi``.
        start: float32 ``[d]``, the model that the first clients began with.
        directions: float32 ``[d, D]``, the projection ``M``.
    """

    record_name: ClassVar[str] = "lcfed"
    newcomer: ClassVar[Mapping[str, float]] = {}
    joint: Tensor
    start: Tensor
    directions: Tensor


def principal_directions(points: Tensor, count: int) -> Tensor:
    """The first right singular vectors of the centred rows, float32 ``[d, min(count, n)]``.

    Example:
        >>> principal_directions(torch.tensor([[0.0, 1.0], [4.0, 1.0]]), 1).abs().tolist()
        [[1.0], [0.0]]
    """
    centred = points.to(torch.float64) - points.to(torch.float64).mean(dim=0)
    _, _, rows = np.linalg.svd(centred.numpy(), full_matrices=False)
    return torch.from_numpy(rows[:count].T.astype(np.float32))


@dataclass(frozen=True, slots=True)
class PulledTwice(CheckedFields):
    """A client's training: its model is pulled to that of its cluster, its embedding to the joint
    one."""

    mu: Weight = 0.1
    lam: Weight = 0.1
    head_layers: Count = 1
    plain_sgd = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {}

    def first(self, sent: Tensor) -> Own:
        return {}

    def second_vector(self, groups: Groups) -> Tensor:
        memory = groups.memory.get(LowRank)
        # Before there are clusters their one model is the joint one.
        if memory is None:
            return groups.models[0]
        return memory.joint

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        cluster, joint = training.received
        pull = torch.full_like(cluster, self.lam)
        pull[training.layout.last_layers(self.head_layers)] = 0.0
        w = cluster
        loss = LastPassLoss()
        for batch in training.batches():
            # The gradient of F_i(w) + mu/2 |w - Omega_k|^2 + lambda/2 |phi - Phi|^2.
            gradient, batch_loss = training.gradient(w, batch)
            gradient = gradient + self.mu * (w - cluster) + pull * (w - joint)
            w = w.add(gradient, alpha=-training.solver.lr)
            loss.add(batch_loss, batch)
        return OwnTrained(w - cluster, loss.mean, {})


@dataclass(frozen=True)
class NearestLowRank(PlacesClients):
    """The rules `assign` and `recluster` of LCFed; its fields are the arguments of `lcfed`."""

    groups: int
    rank: int

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if groups.memory.get(LowRank) is None:
            return everyone(groups, round)
        ids = round.cohort
        row = groups.member[ids]
        new = row < 0
        # A newcomer has no model yet that could be compared: it begins with the mean of all.
        row = np.where(new, groups.k, row)
        mean = np.full((1, groups.k), 1 / groups.k)
        return groups, Plan(ids, row, notes={"newcomers": int(new.sum())}, mixtures=mean)

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """Each client joins the cluster whose model is most like its own, in few dimensions."""
        solutions = updates.solutions(groups.models)
        memory = groups.memory.get(LowRank)
        if memory is None and len(updates) < self.groups:
            return groups, updates
        if memory is None:
            return self._begin(groups, updates, solutions, round)
        # Seen from where training began: compared with the first model all differences are small.
        ours = (solutions - memory.start) @ memory.directions
        theirs = (groups.models - memory.start) @ memory.directions
        row = cosine(ours, theirs).argmax(axis=1)
        groups = groups.remember(replace(memory, joint=_mean(solutions, updates)))
        return groups.with_members(updates.ids, row), replace(updates, row=row)

    def _begin(
        self, groups: Groups, updates: Updates, solutions: Tensor, round: Round
    ) -> tuple[Groups, Updates]:
        """The projection, and the first clusters, from what the first clients trained."""
        start = groups.models[0]
        directions = principal_directions(solutions, self.rank)
        points = ((solutions - start) @ directions).numpy().astype(np.float64)
        row = kmeans(points, self.groups, round.key.of("clusters"))
        counted = replace(updates, row=row, started=updates.row, starts=groups.models)
        no_members = np.full_like(groups.member, NO_GROUP)
        groups = replace(groups.select([0] * self.groups), member=no_members)
        groups = groups.with_members(updates.ids, row)
        memory = LowRank(_mean(solutions, updates), start, directions)
        return groups.remember(memory), counted


def _mean(solutions: Tensor, updates: Updates) -> Tensor:
    weight = torch.from_numpy(updates.size / updates.size.sum())
    return (weight @ solutions.to(torch.float64)).to(torch.float32)


@validated
def lcfed(
    groups: Count = 3,
    mu: Weight = 0.1,
    lam: Weight = 0.1,
    rank: Count = 50,
    head_layers: Count = 1,
) -> Method:
    """LCFed: clusters low-dimensional projections of the models; all clients share an embedding.

    A client minimises ``F_i(w) + mu/2 |w - Omega_k|^2 + lambda/2 |phi - Phi|^2``, where ``Omega_k``
    is the model of its cluster, ``phi`` the embedding part of ``w``, and ``Phi`` the mean of all
    clients' embeddings. After training it joins ``argmax_k cos(M' w_i, M' Omega_k)``, where the
    columns of ``M`` are principal directions of clients' models.

    Args:
        groups: number of models ``K``.
        mu: weight of the pull towards the cluster's model.
        lam: weight ``lambda`` of the pull towards the joint embedding.
        rank: dimensions ``D`` in which models are compared.
        head_layers: number of last layers, which do not belong to the embedding.

    Models: one per group; their number is set.

    Source: Zhang et al., LCFed: An Efficient Clustered Federated Learning Framework for Heterogeneous
    Data (2025).

    Example:
        >>> lcfed(groups=4).assign.groups
        4
    """
    rule = NearestLowRank(groups, rank)
    local = Train(how=WithOwnModel(PulledTwice(mu, lam, head_layers)))
    return Method(rule, local=local, recluster=rule.recluster, needs=())

"""CFL-GP: Kim et al., Clustered Federated Learning via Gradient-based Partitioning (2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import Groups, GrowingRecord, IntArray, Plan
from coterie.core.process import threads
from coterie.math.clustering import kmeans
from coterie.math.labellings import numbered_as_before
from coterie.math.similarity import Matrix
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.newcomers import least_loss_groups


@dataclass(frozen=True, slots=True)
class GradientFeatures(GrowingRecord):
    """What CFL-GP remembers.

    Args:
        feature: float32 ``[N, d]``, the mean of the updates that each client made of the first model.
        times: int64 ``[N]``, of how many.
        partitions: how often clients were clustered.
    """

    record_name: ClassVar[str] = "cfl_gp"
    newcomer: ClassVar[Mapping[str, float]] = {"feature": 0.0, "times": 0}
    feature: Tensor
    times: IntArray
    partitions: int


def leading_coordinates(feature: Tensor, m: int) -> Matrix:
    """The rows seen along their ``m`` leading singular directions, float64 ``[n, m]``.

    With ``G^T = U S V^T`` of singular values in falling order it is ``G^T V_m = U_m S_m``.

    Args:
        feature: float32 ``[n, d]``, the rows ``G^T``.
    """
    with threads(1):
        # Of the products of clients, which are few, and not of the coordinates, which are many.
        rows = feature.to(torch.float64)
        values, vectors = np.linalg.eigh((rows @ rows.T).numpy())
    leading = slice(None, -m - 1, -1)
    # Rounding leaves small negative values in place of zero.
    return vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))


@dataclass(frozen=True)
class GradientPartition(PlacesClients):
    """The assign rule of CFL-GP; its fields are the arguments of `cfl_gp`."""

    every: int
    partitions: int

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(GradientFeatures)
        notes: dict[str, int] = {}
        if memory is None:
            feature = torch.zeros(len(groups.member), groups.models.shape[1])
            memory = GradientFeatures(feature, np.zeros(len(feature), np.int64), 0)
        due = round.number % self.every == 0 and memory.partitions < self.partitions
        if due or not memory.partitions:
            groups = self._partition(groups, memory, round.of("partition"))
        new = round.cohort[groups.member[round.cohort] < 0]
        clustered = groups.memory.get(GradientFeatures)
        if len(new) and clustered is not None and clustered.partitions:
            groups = groups.with_members(new, least_loss_groups(groups, new, round))
            notes["newcomers"] = len(new)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def _partition(self, groups: Groups, memory: GradientFeatures, round: Round) -> Groups:
        """All clients show an update of the first model, and are clustered by the means of theirs."""
        asked = round.trainable(len(groups.member))
        reply = round.clients.run(round.trial(), asked, groups.models[0], key=round.key)
        ids = reply.ids
        if len(ids) < max(groups.k, round.least_replies):
            return groups
        times = memory.times.copy()
        times[ids] += 1
        at = torch.from_numpy(ids)
        # g_c <- (1 - beta) g_c + beta delta, so that g_c is the mean of all that were sent.
        beta = torch.from_numpy(1 / times[ids]).to(torch.float32)[:, None]
        delta = reply.delta
        mean = torch.lerp(memory.feature[at], delta, beta)
        feature = memory.feature.index_copy(0, at, mean)
        label = kmeans(leading_coordinates(mean, groups.k), groups.k, round.key.of("kmeans"))
        member = numbered_as_before(label, groups.member[ids], groups.k)
        groups = groups.with_members(ids, member)
        return groups.remember(GradientFeatures(feature, times, memory.partitions + 1))


@validated
def cfl_gp(groups: Count = 3, every: Count = 2, partitions: Count = 5) -> Method:
    """CFL-GP: clusters clients repeatedly by the mean of their updates of one model.

    Every client ``c`` trains the first model, and ``g_c`` is the mean of its updates so far. k-means finds
    ``k`` clusters in the ``k`` leading singular directions of ``G = [g_1 ... g_N]``. Clusters are
    numbered so that most clients keep their group.

    Args:
        groups: number of models ``k``.
        every: number of rounds between two clusterings.
        partitions: number of clusterings.

    Models: one per group; their number is set.

    Source: Kim et al., Clustered Federated Learning via Gradient-based Partitioning (2024).

    Example:
        >>> cfl_gp(groups=4).groups
        4
    """
    rule = GradientPartition(every, partitions)
    return Method(rule, first=FirstModels(groups), needs=("start", "newcomers", "statistics"))

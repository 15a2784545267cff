"""FedGWC: Licciardi et al., Interaction-Aware Gaussian Weighting for Clustered Federated Learning
(2025)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import FloatArray, Groups, IntArray, Plan, Score
from coterie.math.clustering import best_partition
from coterie.math.similarity import Matrix
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.newcomers import least_loss_groups

Above = Annotated[float, Field(gt=0)]
# A group whose members' matrix was never updated; any change is less.
UNSETTLED = 1.0


@dataclass(frozen=True, slots=True)
class InteractionMemory:
    """What FedGWC remembers.

    Args:
        weight: float64 ``[N, N]``, the interaction matrix ``P``: how near the loss of ``i`` was to the mean
            of those in the round, in the rounds in which ``j`` was there, too.
        change: float64 ``[k]``, the moving mean of how much the matrix of a group changes.
        settled: int64 ``[k]``, rounds in a row in which it changed less than ``eps``.
    """

    record_name: ClassVar[str] = "fedgwc"
    weight: FloatArray
    change: FloatArray
    settled: IntArray


def gaussian_rewards(loss: FloatArray, size: FloatArray) -> FloatArray:
    """How near each client's loss is to the mean of all: ``exp(-(l_i - m)^2 / (2 s^2))``, ``[n]``.

    Args:
        size: float64 ``[n]``, numbers of samples, by which the mean ``m`` and the variance ``s^2`` weigh.

    Example:
        >>> gaussian_rewards(np.array([1.0, 3.0]), np.array([5.0, 5.0])).round(3).tolist()
        [0.607, 0.607]
    """
    share = size / size.sum()
    square = (loss - share @ loss) ** 2
    # The released code's guard for clients that all have the same loss.
    return np.exp(-square / (2 * (share @ square + 1e-16)))


def affinity(weight: Matrix, gamma: float) -> Matrix:
    """How alike two clients of a group are rewarded compared with all others:
    ``exp(-gamma |v_i - v_j|^2)``, ``[n, n]``.

    ``v_i`` is the row of client ``i``, scaled to 0..1 over the whole matrix. The columns of ``i`` and
    ``j`` themselves are left out of the distance. The diagonal is 0.

    Args:
        weight: float64 ``[n, n]``, the interaction matrix of a group.

    Example:
        >>> weight = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
        >>> affinity(weight, 1.0).round(2).tolist()
        [[0.0, 1.0, 0.37], [1.0, 0.0, 0.37], [0.37, 0.37, 0.0]]
    """
    view = weight - weight.min()
    view = view / max(view.max(), 1e-8)
    square = np.maximum(
        (view**2).sum(axis=1)[:, None] + (view**2).sum(axis=1) - 2 * view @ view.T, 0
    )
    own = (view.diagonal()[:, None] - view.T) ** 2
    alike: Matrix = np.exp(-gamma * np.maximum(square - own - own.T, 0))
    np.fill_diagonal(alike, 0.0)
    return alike


@dataclass(frozen=True)
class SplitsByLosses(PlacesClients):
    """The assign rule of FedGWC; its fields are the arguments of `fedgwc`."""

    gamma: float
    eps: float
    most: int

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(InteractionMemory)
        clients = len(groups.member)
        if memory is None:
            weight = np.full((clients, clients), 1 / clients**2)
            memory = InteractionMemory(weight, np.array([UNSETTLED]), np.zeros(1, np.int64))
        new = round.cohort[groups.member[round.cohort] < 0]
        if len(new):
            # With one group no client has to choose.
            joined = 0 if groups.k == 1 else least_loss_groups(groups, new, round)
            groups = groups.with_members(new, joined)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        key = round.key.of("losses")
        own = groups.member[ids]
        reply = round.clients.run(Score("train"), ids, groups.models, own[:, None], key=key)
        size = reply.size
        loss = reply.loss[:, 0] / size
        groups = groups.remember(memory)
        for j in np.unique(groups.member[reply.ids]):
            mine = groups.member[reply.ids] == j
            rewards = gaussian_rewards(loss[mine], size[mine])
            groups = self._observe(groups, int(j), reply.ids[mine], rewards, round)
        notes = {"newcomers": len(new), "groups": groups.k}
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def _observe(
        self, groups: Groups, j: int, ids: IntArray, rewards: FloatArray, round: Round
    ) -> Groups:
        """The matrix after a group's clients reported their losses; if it is settled, the group splits."""
        memory = groups.memory.get(InteractionMemory)
        assert memory is not None
        members = np.flatnonzero(groups.member == j)
        alpha = len(ids) / len(members)
        together = np.ix_(ids, ids)
        before = memory.weight[together]
        after = (1 - alpha) * before + alpha * (rewards / rewards.sum())[:, None]
        weight = memory.weight.copy()
        weight[together] = after
        change = memory.change.copy()
        change[j] = (1 - alpha) * change[j] + alpha * ((after - before) ** 2).mean()
        settled = memory.settled.copy()
        settled[j] = settled[j] + 1 if change[j] < self.eps else 0
        groups = groups.remember(InteractionMemory(weight, change, settled))
        # As many rounds as it takes to meet all members.
        if settled[j] < max(1, np.round(len(members) / len(ids))):
            return groups
        # Groups that are smaller than a cohort do not split any more.
        most = min(self.most, len(members) // len(round.cohort))
        labels = None
        if most > 1 and len(members) > len(round.cohort):
            alike = affinity(weight[np.ix_(members, members)], self.gamma)
            labels = best_partition(alike, most, round.key.of(f"split{j}"))
        if labels is None:
            labels = np.zeros(len(members), np.int64)
        return self._split(groups, j, members, labels)

    def _split(self, groups: Groups, j: int, members: IntArray, labels: IntArray) -> Groups:
        """The group in parts, each of which has to settle again; one label is the group itself."""
        memory = groups.memory.get(InteractionMemory)
        assert memory is not None
        k = groups.k
        parts = int(labels.max()) + 1
        # The first part keeps the number of the group.
        number = np.array([j, *range(k, k + parts - 1)])
        groups = groups.select([*range(k), *[j] * (parts - 1)])
        groups = groups.with_members(members, number[labels])
        change = np.append(memory.change, np.full(parts - 1, UNSETTLED))
        settled = np.append(memory.settled, np.zeros(parts - 1, np.int64))
        change[j] = UNSETTLED
        settled[j] = 0
        return groups.remember(replace(memory, change=change, settled=settled))


@validated
def fedgwc(
    gamma: Above = 0.1,
    eps: Above = 1e-5,
    most: Annotated[int, Field(ge=2)] = 4,
) -> Method:
    """FedGWC: clients whose losses stay near the round's mean when they are sampled together form a
    group.

    The reward of client ``i`` in a round is ``exp(-(l_i - m)^2 / (2 s^2))``, with mean and variance
    of the losses of its group's clients in the round. ``P_ij`` is the moving mean of the share of
    ``i`` in the rewards of rounds in which ``j`` also took part. When ``P`` has settled, spectral
    clustering splits the group, and each part is treated in the same way.

    Args:
        gamma: parameter of the kernel ``exp(-gamma |v_i - v_j|^2)`` of two clients' rows of ``P``.
        eps: the matrix has settled when the moving mean of its squared changes is below this.
        most: largest number of parts into which a group splits at once.

    Models: one per group; their number is determined by a threshold.

    Source: Licciardi et al., Interaction-Aware Gaussian Weighting for Clustered Federated Learning
    (2025).

    Example:
        >>> fedgwc(gamma=0.5).assign.gamma
        0.5
    """
    return Method(SplitsByLosses(gamma, eps, most), needs=("statistics",))

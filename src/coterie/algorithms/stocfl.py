"""StoCFL: Zeng et al., Stochastic Clustered Federated Learning (2023)."""

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
from coterie.core import NO_GROUP, Groups, GrowingRecord, IntArray, Plan, Train, WithOwnModel
from coterie.core.own_model import LocalTraining, Own, OwnTrained
from coterie.math.similarity import cosine
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.cold_start import Outliers
from coterie.rules.merged_clusters import merged_clusters
from coterie.rules.weighing import evenly

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class SeenClients(GrowingRecord):
    """What the server of StoCFL remembers.

    Args:
        omega: float32 ``[d]``, the global model.
        sent: float32 ``[d]``, what it was at the start of the round, which clients are pulled to.
        psi: float32 ``[N, d]``, what each client's data make of the anchor; zero for one not yet seen.
    """

    record_name: ClassVar[str] = "stocfl"
    newcomer: ClassVar[Mapping[str, float]] = {"psi": 0.0}
    omega: Tensor
    sent: Tensor
    psi: Tensor


@dataclass(frozen=True)
class MergesSampled(PlacesClients):
    """The assign rule of StoCFL: a client seen for the first time is a cluster; like ones are
    merged. Its fields are arguments of `stocfl`."""

    tau: float
    epochs: int | None
    outliers: Outliers

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(SeenClients)
        # The first model is the anchor and the first global model; it is that of no cluster.
        k = 0
        if memory is not None:
            k = groups.k
        if memory is None:
            psi = torch.zeros(len(groups.member), groups.models.shape[1])
            memory = SeenClients(groups.first_model, groups.first_model, psi)
        new = round.cohort[groups.member[round.cohort] < 0]
        ids, delta = _train(
            groups.first_model, new, round.trial(epochs=self.epochs), round, "anchor"
        )
        if k == 0 and not len(ids):
            return groups, Plan(ids, ids)
        psi = memory.psi.index_copy(0, torch.from_numpy(ids), delta)
        groups = groups.with_members(ids, k + np.arange(len(ids)))
        groups = self._merge(groups, replace(memory, sent=memory.omega, psi=psi), k, round.cohort)
        notes = {"newcomers": len(ids), "groups": groups.k}
        ids = round.cohort[groups.member[round.cohort] >= 0]
        return _train_global(groups, ids, round), Plan(ids, groups.member[ids], notes=notes)

    def _merge(self, groups: Groups, memory: SeenClients, k: int, cohort: IntArray) -> Groups:
        """Merge the clusters of the cohort; numbers from ``k`` on are clusters without a model yet."""
        member = groups.member
        active = np.unique(member[cohort[member[cohort] >= 0]])
        if not len(active):
            return groups.remember(memory)
        # Of all members that were ever seen: the mean of those of one round varies more.
        centre = [memory.psi[torch.from_numpy(member == j)].mean(dim=0) for j in active]
        size = np.bincount(member[member >= 0])
        into = np.arange(max(k, len(size)))
        similarity = cosine(torch.stack(centre), torch.stack(centre))
        merged = merged_clusters(similarity, size[active], self.tau, self.outliers)
        into[active] = active[merged]
        left = np.unique(into)
        number = np.append(np.searchsorted(left, into), NO_GROUP)
        # A cluster that is new starts from the global model. Of those that are merged it is never
        # the largest, unless all are new, so rows of clusters with a model come first.
        groups = groups.select(left[left < k])
        fresh = memory.omega.repeat(int((left >= k).sum()), 1)
        models = torch.cat([groups.models, fresh])
        return replace(groups, models=models, member=number[member]).remember(memory)


def _train(
    model: Tensor, ids: IntArray, work: Train, round: Round, stream: str
) -> tuple[IntArray, Tensor]:
    """Who replied, and the update of each from this model, float32 ``[n, d]``."""
    reply = round.clients.run(work, ids, model, key=round.key.of(stream))
    return reply.ids, reply.delta


def _train_global(groups: Groups, ids: IntArray, round: Round) -> Groups:
    """The clients of the round train the global model, too."""
    memory = groups.memory.get(SeenClients)
    assert memory is not None
    replied, delta = _train(memory.omega, ids, round.trial(), round, "global")
    if not len(replied):
        return groups
    omega = memory.omega.to(torch.float64) + delta.to(torch.float64).mean(dim=0)
    return groups.remember(replace(memory, omega=omega.to(torch.float32)))


@dataclass(frozen=True, slots=True)
class PulledToGlobal(CheckedFields):
    """A client's training of its cluster's model ``theta``, which is pulled to the global
    ``omega``."""

    lam: Weight = 0.05
    plain_sgd = False

    def lengths(self, d: int) -> Mapping[str, int]:
        return {}

    def first(self, sent: Tensor) -> Own:
        return {}

    def second_vector(self, groups: Groups) -> Tensor:
        memory = groups.memory.get(SeenClients)
        if memory is None:
            return groups.first_model
        return memory.sent

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        theta, omega = training.received
        update, loss = training.run(theta, anchor=omega, mu=self.lam)
        return OwnTrained(update, loss, {})


@validated
def stocfl(
    tau: Annotated[float, Field(ge=-1, le=1)] = 0.5,
    lam: Weight = 0.05,
    epochs: Annotated[int, Field(ge=1)] | None = None,
    outliers: Outliers = "leave_out",
) -> Method:
    """StoCFL: every client begins as a cluster, and similar clusters merge as their clients are
    drawn.

    ``Psi_i`` is the update of client ``i`` to a fixed model, the anchor. Clusters with clients in
    the round are merged if ``cos(mean Psi of A, mean Psi of B) >= tau``. Clients train the model
    ``theta`` of their cluster to minimise ``F_i(theta) + lambda/2 |theta - omega|^2``, and the
    global model ``omega`` to minimise ``F_i(omega)``.

    Args:
        tau: lowest cosine at which clusters are merged; with -1 all of them are.
        lam: weight ``lambda`` of the pull towards the global model.
        epochs: local epochs for which the anchor is trained; ``None``: the run's.
        outliers: with ``leave_out`` no cluster alone joins others that are as large as itself, but
            only the one that it is most similar to; with ``keep``, as in the released code, it
            joins all that are similar to it.

    Models: one per group; their number is determined by a threshold.

    Source: Zeng et al., Stochastic Clustered Federated Learning (2023).

    Example:
        >>> stocfl(tau=0.3).assign.tau
        0.3
    """
    return Method(
        MergesSampled(tau, epochs, outliers),
        local=Train(how=WithOwnModel(PulledToGlobal(lam))),
        # As the released code has it.
        weigh=evenly,
        needs=("start", "newcomers"),
    )

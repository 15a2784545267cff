"""CORNFLQS: Ben Ali et al., A Robust Clustered Federated Learning Approach for Non-IID Data with
Quantity Skew (2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import NO_GROUP, BoolArray, Groups, GrowingRecord, Plan, Updates
from coterie.math.clustering import agglomerate
from coterie.math.distances import l2
from coterie.math.labellings import numbered_as_before
from coterie.math.similarity import Matrix
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients, everyone
from coterie.rules.newcomers import least_loss_groups
from coterie.rules.weighing import by_size, evenly

# Who decides the groups: the server by models and the clients by losses, the clients alone, nobody.
COORDINATED, BY_LOSS, SETTLED = range(3)


@dataclass(frozen=True, slots=True)
class Coordination(GrowingRecord):
    """What CORNFLQS remembers.

    Args:
        stage: who decides the groups.
        agreed: bool ``[N]``, whether a client chose the group that it had, when it last chose in this
            stage.
    """

    record_name: ClassVar[str] = "cornflqs"
    newcomer: ClassVar[Mapping[str, float]] = {"agreed": 0}
    stage: int
    agreed: BoolArray


@dataclass(frozen=True)
class CoordinatesClusters(PlacesClients):
    """The rules `assign` and `recluster` of CORNFLQS; its fields are the arguments of `cornflqs`."""

    groups: int
    together: int

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(Coordination)
        if memory is None and round.number == 0:
            return everyone(groups, round)
        if memory is None:
            # The models of the groups begin as the joint one, and no client has chosen yet.
            no_members = np.full_like(groups.member, NO_GROUP)
            groups = replace(groups.select([0] * self.groups), member=no_members)
            groups = groups.remember(Coordination(COORDINATED, np.zeros(len(no_members), bool)))
            return groups, Plan(round.cohort, np.zeros_like(round.cohort))
        before = groups.member[round.cohort]
        asked = round.cohort
        if memory.stage == SETTLED:
            asked = asked[before < 0]
        chosen = np.full(len(asked), NO_GROUP)
        if len(asked):
            chosen = least_loss_groups(groups, asked, round)
        # Who does not tell its losses keeps its group.
        answered = chosen >= 0
        agreed = memory.agreed.copy()
        agreed[asked[answered]] = chosen[answered] == groups.member[asked[answered]]
        groups = groups.with_members(asked[answered], chosen[answered])
        memory = replace(memory, agreed=agreed)
        groups = groups.remember(self._stage_after(memory, groups, round.number))
        ids = round.cohort[groups.member[round.cohort] >= 0]
        moved = (before >= 0) & (groups.member[round.cohort] != before)
        notes = {"newcomers": int((before < 0).sum()), "moved": int(moved.sum())}
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def _stage_after(self, memory: Coordination, groups: Groups, number: int) -> Coordination:
        """The next stage, once all clients that have a group chose it, or time is up."""
        if memory.stage == SETTLED:
            return memory
        known = groups.member >= 0
        time_is_up = memory.stage == COORDINATED and number > self.together
        if not (time_is_up or memory.agreed[known].all()):
            return memory
        return Coordination(memory.stage + 1, np.zeros_like(memory.agreed))

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """While the server takes part: it clusters the models that clients have trained."""
        memory = groups.memory.get(Coordination)
        if memory is None or memory.stage != COORDINATED or len(updates) < self.groups:
            return groups, updates
        found = agglomerate(l2(updates.solutions(groups.models)), "ward", count=self.groups)
        row = numbered_as_before(found.labels, groups.member[updates.ids], groups.k)
        # A reply counts for its cluster, whatever model it started from.
        moved = replace(updates, row=row, started=updates.row, starts=groups.models)
        return groups.with_members(updates.ids, row), moved


def evenly_at_first(groups: Groups, updates: Updates, round: Round) -> Matrix:
    """Clients count the same in the joint model, so that large ones do not decide where it is, and by
    their samples in their group."""
    if groups.k == 1:
        return evenly(groups, updates, round)
    return by_size(groups, updates, round)


@validated
def cornflqs(groups: Count = 3, together: Annotated[int, Field(ge=1)] = 10) -> Method:
    """CORNFLQS: the server clusters trained models, clients choose by loss, until both agree.

    The first round is FedAvg with equal weights. In each later round the server clusters the
    trained models by Ward's linkage, and averages each cluster. A client then starts from the model
    with its lowest loss. When all clients choose the cluster to which the server assigned them,
    only losses are used from then on. When all choose the group that they already had, the groups
    are fixed.

    Args:
        groups: number of models ``k``.
        together: largest number of rounds in which the server clusters.

    Models: one per group; their number is set.

    Source: Ben Ali et al., A Robust Clustered Federated Learning Approach for Non-IID Data with
    Quantity Skew (2025).

    Example:
        >>> cornflqs(groups=4).assign.groups
        4
    """
    rule = CoordinatesClusters(groups, together)
    return Method(rule, recluster=rule.recluster, weigh=evenly_at_first, needs=("statistics",))

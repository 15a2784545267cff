"""FeSEM: Xie et al., Multi-Center Federated Learning (2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, IntArray, Plan, Updates
from coterie.math.group_count import GroupCount, Most
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.migration import Detector, Migration, migrating, previous_group
from coterie.rules.starts import count_if_auto
from coterie.rules.weighing import evenly

Order = Literal["train_then_assign", "flexcfl"]


@dataclass(frozen=True, slots=True)
class SolutionMemory:
    """What FeSEM remembers in the order of the reference code.

    Args:
        solution: float32 ``[N, d]``, the last local solution of each client, ``w_0`` for a client
            that never trained.
    """

    record_name: ClassVar[str] = "fesem"
    solution: Tensor


def nearest_centre(solutions: Tensor, centres: Tensor) -> IntArray:
    """``argmin_j |w_i - c_j|_2`` for each row, int64 ``[n]``; of equals the lowest centre.

    Example:
        >>> nearest_centre(torch.tensor([[0.9], [4.0]]), torch.tensor([[0.0], [1.0], [5.0]])).tolist()
        [1, 2]
    """
    # In float64: `cdist` may subtract large squares to get a small distance.
    distance = torch.cdist(solutions.to(torch.float64), centres.to(torch.float64))
    return distance.argmin(dim=1).numpy()


@dataclass(frozen=True)
class TrainThenAssign(PlacesClients):
    """FeSEM as its paper has it: clients train from their centre, then the E-step moves each to the
    centre nearest to its local solution.

    A newcomer has no centre yet and trains from the mean of all centres.
    """

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        member = groups.member[round.cohort]
        newcomers = int((member < 0).sum())
        # A client whose data drifted trains from the centre it had: the E-step after training needs
        # no data and moves it anyway.
        previous = previous_group(groups)[round.cohort]
        member = np.where(member < 0, previous, member)
        # The row after the last model is the mean of all models.
        row = np.where(member < 0, groups.k, member)
        # Not from w_0, as FlexCFL's code has it: all newcomers would fall into the one centre
        # nearest to w_0, which the FlexCFL paper then reports as a fault of FeSEM (sec. 5.2).
        mean = np.full((1, groups.k), 1 / groups.k)
        return groups, Plan(round.cohort, row, notes={"newcomers": newcomers}, mixtures=mean)

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """E-step: ``r(i) = argmin_j |w_i - c_j|_2``."""
        row = nearest_centre(updates.solutions(groups.models), groups.models)
        # The reply counts for the new centre, though its client started from the old one.
        return groups.with_members(updates.ids, row), replace(updates, row=row)


@dataclass(frozen=True)
class AssignThenTrain(PlacesClients):
    """FeSEM as FlexCFL's reference code has it: the E-step comes first and uses each client's last
    local solution, which is the common ``w_0`` for a client that has never trained."""

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        cohort = round.cohort
        newcomers = int((groups.member[cohort] < 0).sum())
        memory = groups.memory.get(SolutionMemory)
        if memory is None:
            memory = SolutionMemory(groups.first_model.repeat(len(groups.member), 1))
            groups = groups.remember(memory)
        row = nearest_centre(memory.solution[torch.from_numpy(cohort)], groups.models)
        groups = groups.with_members(cohort, row)
        return groups, Plan(cohort, row, notes={"newcomers": newcomers})

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """Remember where each client ended; the groups stay."""
        memory = groups.memory.get(SolutionMemory)
        assert memory is not None, "the first assignment prepares the memory"
        solution = memory.solution.clone()
        solution[torch.from_numpy(updates.ids)] = updates.solutions(groups.models)
        return groups.remember(SolutionMemory(solution)), updates


@validated
def fesem(
    groups: GroupCount = 3,
    order: Order = "train_then_assign",
    migration: Detector | Migration = "none",
    max_groups: Most = 8,
) -> Method:
    """FeSEM: each client joins the group model nearest to its own trained model.

    E-step ``r(i) = argmin_j |w_i - c_j|_2``, M-step ``c_j = mean of w_i`` over this round's
    participants. The centres start from different initialisations.

    Args:
        groups: number of centres ``m``, or ``auto``: estimated in a cold start.
        order: ``train_then_assign``, or ``flexcfl``: the E-step comes before training, as in the
            reference code.
        migration: with a detector this is FeSEM-MIG (the distance test needs no data, so nothing
            changes).
        max_groups: largest number that ``auto`` finds.

    Models: one per group; their number is set or estimated.

    Source: Xie et al., Multi-Center Federated Learning (2020).

    Example:
        >>> fesem(groups=4).groups
        4
    """
    rule = TrainThenAssign() if order == "train_then_assign" else AssignThenTrain()
    assign, first_models = count_if_auto(rule, groups, max_groups)
    return Method(
        migrating(assign, migration),
        recluster=rule.recluster,
        # "We still use simply averaging", FlexCFL sec. 5.1. Its code keeps the first client's
        # update alone, which is `coterie.studies.reproduce.faults`.
        weigh=evenly,
        # From equal centres the E-step would put every client into centre 0.
        first=FirstModels(first_models, distinct=True, at_most_clients=groups == "auto"),
        needs=("start",) if groups == "auto" else (),
    )

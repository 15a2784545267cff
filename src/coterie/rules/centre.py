"""Grouping by distance of the local solution to the centres: FeSEM's E-step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates

Order = Literal["train_then_assign", "flexcfl"]


def nearest_centre(solutions: Tensor, centres: Tensor) -> IntArray:
    """``argmin_j |w_i - c_j|_2`` for each row, int64 ``[n]``; ties go to the lowest centre.

    Example:
        >>> nearest_centre(torch.tensor([[0.9], [4.0]]), torch.tensor([[0.0], [1.0], [5.0]])).tolist()
        [1, 2]
    """
    distance = torch.cdist(solutions.to(torch.float64), centres.to(torch.float64))
    nearest: IntArray = distance.argmin(dim=1).numpy()
    return nearest


@dataclass(frozen=True)
class ByCentre:
    """Both halves of FeSEM: ``assign`` before training, ``recluster`` after it.

    With ``train_then_assign`` clients train from their centre, newcomers from the mean of the
    centres, and then all of them go to the nearest centre. With ``flexcfl`` (the reference code)
    the E-step comes first and uses each client's last local solution, which is the common ``w_0``
    for a client that has never trained.

    Source: Xie et al., Multi-Center Federated Learning (2020).
    """

    order: Order = "train_then_assign"

    def assign(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        newcomers = {"newcomers": int((groups.member[cohort] < 0).sum())}
        if self.order == "flexcfl":
            if "solution" not in groups.memory:
                groups = groups.remember(
                    solution=groups.memory["start"].repeat(len(groups.member), 1)
                )
            member = groups.member.copy()
            member[cohort] = nearest_centre(
                groups.memory["solution"][torch.from_numpy(cohort)], groups.models
            )
            return replace(groups, member=member), Plan(cohort, member[cohort], notes=newcomers)
        member = groups.member[cohort]
        if (
            "migrant" in groups.memory
        ):  # whose data drifted: the E-step that is due anyhow needs no data
            member = np.where(member < 0, groups.memory["migrant"].numpy()[cohort], member)
        mean = groups.models.to(torch.float64).mean(dim=0, keepdim=True).to(torch.float32)
        row = np.where(member < 0, groups.k, member)
        return replace(groups, models=torch.cat([groups.models, mean])), Plan(
            cohort, row, notes=newcomers
        )

    def recluster(self, groups: Groups, updates: Updates) -> tuple[Groups, Updates]:
        solutions = groups.models[torch.from_numpy(updates.row)] + updates.delta
        if self.order == "flexcfl":
            kept = groups.memory["solution"].clone()
            kept[torch.from_numpy(updates.ids)] = solutions
            return groups.remember(solution=kept), updates
        groups = replace(groups, models=groups.models[:-1])
        row = nearest_centre(solutions, groups.models)
        member = groups.member.copy()
        member[updates.ids] = row
        delta = solutions - groups.models[torch.from_numpy(row)]
        return replace(groups, member=member), replace(updates, row=row, delta=delta)

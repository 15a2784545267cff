"""Settle: IFCA whose clients stop asking once they are sure. A method of one's own, in one file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from coterie import Clients, Groups, Key, Method, Plan
from coterie.core.arrays import IntArray
from coterie.core.work import Evaluate
from coterie.rules.weighing import evenly


@dataclass(frozen=True)
class Settling:
    """Assign rule: a client takes the model with the least training loss, ``argmin_j F_i(w_j)``.

    One that has chosen the same model ``times`` times running stays with it, and is sent that model
    alone.
    """

    times: int

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        member = groups.member.copy()
        steady = (
            groups.memory.get("steady", torch.zeros(len(member), dtype=torch.int64)).numpy().copy()
        )
        unsure = cohort[steady[cohort] < self.times]
        if len(unsure):
            every = np.tile(
                np.arange(groups.k), (len(unsure), 1)
            )  # [n, k]: each of them tries all models
            reply = door.run(Evaluate("train"), unsure, groups.models, every, key=key.of("choose"))
            choice = reply.fields["loss"].argmin(axis=1)
            same = choice == member[reply.ids]
            steady[reply.ids] = np.where(same, steady[reply.ids] + 1, 1)
            member[reply.ids] = choice
        ids = cohort[member[cohort] >= 0]  # who has never answered does not train
        newcomers = int((groups.member[ids] < 0).sum())
        groups = replace(groups, member=member).remember(steady=torch.from_numpy(steady))
        return groups, Plan(ids, member[ids], notes={"newcomers": newcomers, "unsure": len(unsure)})


def settle(
    groups: Annotated[int, Field(ge=1)] = 3, times: Annotated[int, Field(ge=1)] = 2
) -> Method:
    """IFCA, in which a client that chose the same model ``times`` times running is not asked again.

    Args:
        groups: number of models.
        times: how often a client must choose the same model.
    """
    return Method(assign=Settling(times), weigh=evenly, groups=groups, apart=True)

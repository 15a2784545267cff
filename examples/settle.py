"""Settle: a variant of IFCA in which a client keeps its model once its choice is stable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from coterie import FirstModels, Groups, Method, Plan, Round, Score
from coterie.config.arguments import validated
from coterie.core.arrays import IntArray
from coterie.rules.weighing import evenly


@dataclass(frozen=True)
class SettledMemory:
    """What the rule remembers: how often in a row each client chose the same model, int64 ``[N]``."""

    record_name: ClassVar[str] = "settle"
    same_choices: IntArray


@dataclass(frozen=True)
class Settling:
    """Assign rule: a client takes the model with the least training loss, ``argmin_j F_i(w_j)``.

    A client that has chosen the same model ``times`` times in a row keeps it, and from then on
    receives only that model.
    """

    times: int

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(SettledMemory)
        same_choices = np.zeros(len(groups.member), np.int64)
        if memory is not None:
            same_choices = memory.same_choices.copy()
        had_group = groups.member >= 0
        unsure = round.cohort[same_choices[round.cohort] < self.times]
        if len(unsure):
            # Each of them is sent all k models.
            key = round.key.of("choose")
            reply = round.clients.run(Score("train"), unsure, groups.models, key=key)
            choice = reply.loss.argmin(axis=1)
            same = choice == groups.member[reply.ids]
            same_choices[reply.ids] = np.where(same, same_choices[reply.ids] + 1, 1)
            groups = groups.with_members(reply.ids, choice)
        # A client that has never answered has no model to train.
        ids = round.cohort[groups.member[round.cohort] >= 0]
        notes = {"newcomers": int((~had_group[ids]).sum()), "unsure": len(unsure)}
        groups = groups.remember(SettledMemory(same_choices))
        return groups, Plan(ids, groups.member[ids], notes=notes)


@validated
def settle(
    groups: Annotated[int, Field(ge=1)] = 3, times: Annotated[int, Field(ge=1)] = 2
) -> Method:
    """Settle: IFCA whose clients keep a model that they have chosen several times in a row.

    Args:
        groups: number of models.
        times: how often a client must choose the same model.

    Models: one per group; their number is set.

    Source: the Coterie authors, Write a method (2026).
    """
    return Method(
        assign=Settling(times),
        weigh=evenly,
        first=FirstModels(groups, distinct=True),
        # Clients say how large their losses are, and the rule places newcomers without updates.
        needs=("statistics",),
    )

"""The number of groups from the clients themselves, in front of a rule that starts with several
models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.plan import Plan
from coterie.core.work import Train
from coterie.math.group_count import Number, count, told
from coterie.objectives import plain
from coterie.rules.migration import Assign

LEAST = 4


def enough(door: Clients, able: IntArray) -> int:
    """The replies without which a number of groups says nothing: four, or all where fewer can
    train, and the quorum."""
    return max(1, door.quorum.min_replies, min(LEAST, len(able)))


@dataclass(frozen=True)
class Counted:
    """An assign rule that starts with ``most`` models and keeps as many as there are groups of
    clients.

    Before the first round ``alpha * most`` clients train a few steps from the first model, the
    groups among their updates are counted, and the models beyond that number go. While fewer than
    four of them answer, rounds are skipped.

    Args:
        assign: the rule inside.
        most: models at the start.
        objective: what clients minimise in the steps.
        alpha: clients asked for each model.
        steps: mini-batch steps.
    """

    assign: Assign
    most: int
    objective: Objective = plain
    alpha: int = 20
    steps: int = 50

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        if "counted" in groups.memory:
            return self.assign(groups, cohort, door, key)
        m = self._count(groups, door, key.of("cold_start"))
        if not m:
            groups, plan = self.assign(groups, cohort[:0], door, key)
            return groups, replace(plan, notes={**plan.notes, "uncounted": 1})
        groups = groups.taking(range(m)).remember(counted=torch.tensor(m))
        groups, plan = self.assign(groups, cohort, door, key)
        return groups, replace(plan, notes={**plan.notes, **told(m)})

    def _count(self, groups: Groups, door: Clients, key: Key) -> int:
        able = np.arange(len(groups.member)) if door.able is None else door.able
        asked = np.sort(key.of("sample").generator().permutation(able)[: self.alpha * self.most])
        work = Train(self.objective, steps=self.steps)
        reply = door.run(work, asked, groups.memory["start"][None], np.zeros_like(asked), key=key)
        if len(reply) < enough(door, able):
            return 0
        return count(torch.from_numpy(reply.fields["delta"]), self.most, key.of("count"))


def counted(assign: Assign, groups: Number, most: int) -> tuple[Assign, int]:
    """The rule and the number of its models: as they are, or counted for ``groups = "auto"``."""
    if groups == "auto":
        return (Counted(assign, most), most)
    return (assign, groups)

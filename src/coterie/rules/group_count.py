"""The number of groups from the clients themselves: ``groups = "auto"``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.plan import Plan
from coterie.math.group_count import GroupCount, estimate_groups, estimate_notes
from coterie.rules.assigning import Assign, PlacesClients

# A number of groups that fewer clients than this show says nothing.
LEAST_REPLIES = 4


def enough_to_count(round: Round, trainable: IntArray) -> int:
    """The replies without which groups are not counted: four, or all clients where there are fewer,
    and never less than the quorum."""
    return max(round.least_replies, min(LEAST_REPLIES, len(trainable)))


@dataclass(frozen=True, slots=True)
class CountMemory:
    """That the groups were counted.

    Args:
        counted: the number found.
    """

    record_name: ClassVar[str] = "group_count"
    newcomer: ClassVar[Mapping[str, float]] = {}
    counted: int


@dataclass(frozen=True)
class CountsGroups(PlacesClients):
    """An assign rule that starts with ``most`` models and keeps as many as there are groups.

    Before the first round ``alpha * most`` clients train a few steps from the first model, the
    groups among their updates are counted, and the models beyond that number are dropped. While
    fewer than four of these clients answer, rounds are skipped.

    Args:
        assign: the rule inside.
        most: models at the start.
        alpha: clients asked for each model.
        steps: mini-batch steps.
    """

    assign: Assign
    most: int
    alpha: int = 20
    steps: int = 50

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if groups.memory.get(CountMemory) is not None:
            return self.assign(groups, round)
        found = self._count(groups, round.of("cold_start"))
        if not found:
            # The rule inside makes the plan of nobody, since plans of different rules have
            # different shapes.
            groups, plan = self.assign(groups, round.with_cohort(round.cohort[:0]))
            return groups, replace(plan, notes={**plan.notes, "uncounted": 1})
        # The first models and not those of the count: this training only showed directions.
        groups = groups.select(range(found)).remember(CountMemory(found))
        groups, plan = self.assign(groups, round)
        return groups, replace(
            plan, notes={**plan.notes, **estimate_notes(found, len(groups.member))}
        )

    def _count(self, groups: Groups, round: Round) -> int:
        """The number of groups, 0 while too few clients answered."""
        trainable = round.trainable(len(groups.member))
        order = round.key.of("sample").generator().permutation(trainable)
        asked = np.sort(order[: self.alpha * self.most])
        work = round.trial(steps=self.steps)
        first_model = groups.first_model[None]
        reply = round.clients.run(work, asked, first_model, np.zeros_like(asked), key=round.key)
        if len(reply) < enough_to_count(round, trainable):
            return 0
        updates = torch.from_numpy(reply.fields["delta"])
        return estimate_groups(updates, self.most, round.key.of("count"))


def count_if_auto(assign: Assign, groups: GroupCount, most: int) -> tuple[Assign, int]:
    """The rule, and the number of models that it starts with.

    Args:
        assign: the rule.
        groups: a number, or ``auto``: the clients are asked.
        most: the largest number that ``auto`` finds.
    """
    if groups == "auto":
        return CountsGroups(assign, most), most
    return assign, groups


def fixed_groups(groups: GroupCount | None) -> int | None:
    """The number of groups that was asked for; ``auto`` is none: the threshold decides.

    Example:
        >>> fixed_groups(3), fixed_groups("auto")
        (3, None)
    """
    if groups == "auto":
        return None
    return groups

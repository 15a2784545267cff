"""What happens before the first round of a method whose clients choose a group: groups are counted
(``groups = "auto"``), and first models are made otherwise than by one random draw.

Random models can lose groups: where one of them is a little better for everybody at the start, it
is trained by everybody, and the others stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import Groups, GrowingRecord, IntArray, Plan, Score
from coterie.math.group_count import GroupCount, enough_samples, estimate_groups, estimate_notes
from coterie.rules.assigning import Assign, PlacesClients
from coterie.rules.cold_start import DirectionMemory, GroupColdStart, enough_to_count

# Multiple of the median loss of a sample that a client can report.
_MOST_LOSS = 20.0


# --- how many groups ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountMemory(GrowingRecord):
    """That the groups were counted, and the number found."""

    record_name: ClassVar[str] = "group_count"
    newcomer: ClassVar[Mapping[str, float]] = {}
    counted: int


@dataclass(frozen=True)
class CountsGroups(PlacesClients):
    """An assign rule that starts with ``most`` models and keeps as many as there are groups.

    Before the first round ``alpha * most`` clients train ``steps`` mini-batch steps from the first
    model, the groups among their updates are counted, and the models beyond that number are
    dropped. While fewer than four of these clients answer, rounds are skipped.
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
            # The rule inside makes an empty plan, since plans of different rules have
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
        reply = round.clients.run(work, asked, groups.first_model, key=round.key)
        if len(reply) < enough_to_count(round, trainable):
            return 0
        updates = reply.delta[torch.from_numpy(enough_samples(reply.size))]
        return estimate_groups(updates, self.most, round.key.of("count"))


def count_if_auto(assign: Assign, groups: GroupCount, most: int) -> tuple[Assign, int]:
    """The rule, and the number of models that it starts with: ``auto`` asks the clients, and finds
    ``most`` at most."""
    if groups == "auto":
        return CountsGroups(assign, most), most
    return assign, groups


# --- first models ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartMemory(GrowingRecord):
    """That the first models were made, and how many there are."""

    record_name: ClassVar[str] = "start"
    newcomer: ClassVar[Mapping[str, float]] = {}
    models: int


@dataclass(frozen=True)
class StartsFromClusters(PlacesClients):
    """An assign rule whose first models come from FedGroup's cold start (Alg. 3).

    The clients of the cold start train briefly from ``w_0``. Each first model is ``w_0`` plus the
    mean update of a cluster of them, so each is better for some clients from the start. With
    ``groups = "auto"`` rounds are skipped while too few of these clients answer.
    """

    assign: Assign
    cold_start: GroupColdStart

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if groups.memory.get(StartMemory) is not None:
            return self.assign(groups, round)
        formed = self.cold_start.form(groups, round.of("cold_start"))
        if formed.memory.get(DirectionMemory) is None:
            no_clients = round.cohort[:0]
            # No client trains, so the round is skipped; its row says why.
            return groups, Plan(no_clients, no_clients, notes={"uncounted": 1})
        asked = int((formed.member >= 0).sum())
        # The directions placed the models; a rule that chooses by loss does not use them again.
        groups = replace(formed, memory=groups.memory).remember(StartMemory(formed.k))
        groups, plan = self.assign(groups, round)
        notes = {"cold_start": asked, **plan.notes}
        if self.cold_start.groups == "auto":
            notes |= estimate_notes(formed.k, len(formed.member))
        return groups, replace(plan, notes=notes)


@dataclass(frozen=True)
class BestOfStarts(PlacesClients):
    """An assign rule that tries several draws of first models, and continues with the best.

    ``alpha * groups`` clients try every draw. In each of ``rounds`` short rounds they choose the
    model with the least loss and train it ``steps`` steps, and each model moves to the mean of what
    its clients made of it. Then they report their losses, and the draw is kept that minimises the
    objective of IFCA, ``mean_i min_j F_i(w_j)``, as one restarts k-means. A draw that lost a group
    has a higher objective, since one model fewer serves the clients.

    The state begins with the models of all draws, ``groups * restarts``.
    """

    assign: Assign
    groups: int
    restarts: int
    alpha: int = 20
    rounds: int = 3
    steps: int = 50

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if groups.memory.get(StartMemory) is not None:
            return self.assign(groups, round)
        trial = round.of("restarts")
        clients = self._sample(groups, trial)
        best = None
        least = np.inf
        for number in range(self.restarts):
            first = number * self.groups
            drawn = groups.models[first : first + self.groups]
            models = self._trained(drawn, clients, trial.of(str(number)))
            objective = self._objective(models, clients, trial.of(f"{number}/score"))
            # Of equally good draws the first one is kept.
            if objective is not None and objective < least:
                least = objective
                best = models
        if best is None:
            no_clients = round.cohort[:0]
            # No client answered in any draw: the round is skipped, and its row says why.
            return groups, Plan(no_clients, no_clients, notes={"unstarted": 1})
        groups = groups.select(range(self.groups))
        untrained = np.zeros(self.groups, bool)
        groups = replace(groups, models=best, trained=untrained)
        groups = groups.remember(StartMemory(self.groups))
        groups, plan = self.assign(groups, round)
        return groups, replace(plan, notes={"cold_start": len(clients), **plan.notes})

    def _sample(self, groups: Groups, round: Round) -> IntArray:
        trainable = round.trainable(len(groups.member))
        order = round.key.of("sample").generator().permutation(trainable)
        return np.sort(order[: self.alpha * self.groups])

    def _trained(self, models: Tensor, clients: IntArray, round: Round) -> Tensor:
        """A draw of models after the short rounds, float32 ``[m, d]``."""
        work = round.trial(steps=self.steps, choose="least_loss")
        for number in range(self.rounds):
            key = round.key.of(f"train/{number}")
            reply = round.clients.run(work, clients, models, key=key)
            if not len(reply):
                break
            delta = reply.delta.to(torch.float64)
            choice = reply.choice.astype(np.int64)
            models = models.clone()
            for j in np.unique(choice):
                of_model = delta[torch.from_numpy(choice == j)]
                models[j] = (models[j] + of_model.mean(dim=0)).to(torch.float32)
        return models

    def _objective(self, models: Tensor, clients: IntArray, round: Round) -> float | None:
        """Mean loss of a sample under the best model of its client; ``None`` without a reply."""
        work = Score("train")
        reply = round.clients.run(work, clients, models, key=round.key)
        size = reply.size
        if not size.sum():
            return None
        least = reply.loss.min(axis=1)
        # One client that reports an endless loss for all draws but one would choose the draw.
        most = _MOST_LOSS * float(np.median(least / size)) * size
        return float(np.minimum(least, most).sum() / size.sum())

"""Newcomers join the group of the nearest direction; a direction that is missing falls back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.training import Steps
from coterie.core.work import Score, Train, Work
from coterie.methods.algorithm import as_algorithm
from coterie.rules.cold_start import DirectionMemory
from tests.conftest import remembered
from tests.simulations import KEY


def test_random_groups_are_even_and_ask_nobody() -> None:
    rule = ct.fedgroup(groups=3, alpha=1, ablation="rac").assign
    scripted = Scripted({})
    state = in_the_plane(np.full(3000, -1))
    with Clients(scripted) as clients:
        groups, plan = rule(state, Round(1, KEY.at(1), np.arange(3000), clients))
    assert scripted.requests == []
    assert plan.notes["newcomers"] == 3000
    assert (np.abs(groups.sizes() - 1000) < 130).all()


@dataclass
class Scripted:
    """Clients that answer with the updates and losses they are given, and remember what they were
    sent."""

    delta: dict[int, list[float]]
    losses: dict[int, list[float]] = field(default_factory=dict)
    requests: list[tuple[Work, list[int], Tensor]] = field(default_factory=list)

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        self.requests.append((work, ids.tolist(), models[torch.from_numpy(which)]))
        answers = self.delta if isinstance(work, Train) else self.losses
        home = np.array([i for i in ids.tolist() if i in answers], np.int64)
        values = np.array([answers[i] for i in home.tolist()], np.float64).reshape(len(home), -1)
        size = np.ones(len(home))
        fields: dict[str, Any] = (
            {"delta": values.astype(np.float32), "size": size, "loss": size}
            if isinstance(work, Train)
            else {"correct": np.zeros_like(values), "size": size, "loss": values}
        )
        return [Reply(key.round, home, fields, key.purpose)]

    def set_population(self, population: Any) -> None: ...

    def close(self) -> None: ...


def in_the_plane(member: Any, trained: Any = (False, False, False), **memory: Any) -> Groups:
    """Three groups in the plane, some rounds after the cold start; the third has no direction."""
    models = torch.tensor([[4.0, 1.0], [1.0, 4.0], [1.0, 1.0]])
    flags = np.zeros(len(member), bool)
    record = DirectionMemory(
        direction=torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        latest=torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        auxiliary=torch.tensor([9.0, 9.0]),
        random_group=flags,
        equipped=flags,
        seen=models,
    )
    groups = Groups(
        models, np.array(member), start=torch.tensor([1.0, 1.0]), trained=np.array(trained)
    )
    return groups.remember(replace(record, **memory))


def place(
    rule: Any, groups: Groups, engine: Engine, cohort: Sequence[int] = (0, 1, 2, 3)
) -> tuple[Groups, Plan]:
    """What an assign rule makes of a later round."""
    with Clients(engine) as clients:
        return rule(groups, Round(5, KEY.at(5), np.array(cohort), clients))


@pytest.mark.parametrize("newcomer", ["aux_latest", "w0_frozen"])
def test_newcomers_join_the_nearest_direction(newcomer: Any) -> None:
    """Ties go to the lowest group; a group without a direction is nobody's, however far the
    others."""
    answers = {0: [0.1, 3.0], 1: [5.0, 5.0], 2: [-1.0, -0.9], 4: [1.0, 0.0]}
    groups, plan = place(
        ct.fedgroup(groups=3, newcomer=newcomer).assign,
        in_the_plane([-1, -1, -1, 2, -1]),
        clients := Scripted(answers),
    )
    assert groups.member.tolist() == [1, 0, 1, 2, -1]
    assert (plan.ids.tolist(), plan.row.tolist()) == ([0, 1, 2, 3], [1, 0, 1, 2])
    assert [ids for _, ids, _ in clients.requests] == [[0, 1, 2]]
    assert plan.notes["newcomers"] == 3
    assert torch.equal(groups.models, in_the_plane([0]).models)


def test_frozen_directions_and_w0_are_those_of_the_cold_start() -> None:
    moved = in_the_plane(
        [-1], trained=[True, True, True], seen=torch.zeros(3, 2), latest=torch.ones(3, 2)
    )
    clients = Scripted({0: [0.0, 7.0]})
    groups, _ = place(ct.fedgroup(groups=3, newcomer="w0_frozen").assign, moved, clients, [0])
    ((_, _, sent),) = clients.requests
    assert sent.tolist() == [[1.0, 1.0]]
    assert groups.member.tolist() == [1]
    assert torch.equal(
        remembered(groups, DirectionMemory).direction, remembered(moved, DirectionMemory).direction
    )


def test_latest_directions_are_what_changed_since_the_last_placement() -> None:
    """Group 0 went down, group 1 was not trained: a newcomer that goes down joins group 0."""
    seen = torch.tensor([[4.0, 3.0], [1.0, 4.0], [1.0, 1.0]])
    before = in_the_plane([-1, -1], trained=[True, False, False], seen=seen)
    clients = Scripted({0: [0.0, -1.0], 1: [0.5, 2.0]})
    groups, _ = place(ct.fedgroup(groups=3, newcomer="aux_latest").assign, before, clients, [0, 1])
    assert remembered(groups, DirectionMemory).latest.tolist() == [
        [0.0, -2.0],
        [0.0, 1.0],
        [0.0, 0.0],
    ]
    assert groups.member.tolist() == [0, 1]
    assert torch.equal(remembered(groups, DirectionMemory).seen, before.models)
    ((_, _, sent),) = clients.requests
    assert sent.tolist() == [[2.0, 2.0]] * 2  # the auxiliary model, the mean of all three


def test_newcomers_that_do_not_answer_wait() -> None:
    groups, plan = place(
        ct.fedgroup(groups=3).assign,
        in_the_plane([-1, -1, 0]),
        Scripted({1: [0.0, 1.0]}),
        [0, 1, 2],
    )
    assert groups.member.tolist() == [-1, 1, 0]
    assert plan.ids.tolist() == [1, 2]


def test_without_a_direction_the_largest_group_is_that_before_the_newcomers() -> None:
    clients = Scripted({0: [0.0, 0.0], 1: [1.0, 0.0], 2: [1.0, 0.0]})
    groups, plan = place(ct.fedgroup(groups=3).assign, in_the_plane([-1, -1, -1, 1]), clients)
    assert groups.member.tolist() == [1, 0, 0, 1]
    assert plan.notes["fallback_largest"] == 1


def test_without_a_direction_the_lowest_loss_decides() -> None:
    clients = Scripted(
        {0: [0.0, 0.0], 1: [0.0, 0.0], 2: [1.0, 0.0]}, {0: [3.0, 2.0, 1.0], 1: [5.0, 4.0, 9.0]}
    )
    rule = ct.fedgroup(groups=3, fallback="lowest_loss").assign
    groups, plan = place(rule, in_the_plane([-1, -1, -1, 1]), clients)
    assert groups.member.tolist() == [2, 1, 0, 1]
    assert plan.notes["fallback_lowest_loss"] == 2
    assert plan.notes["newcomers"] == 1
    work, ids, sent = clients.requests[1]
    assert work == Score("train")
    assert ids == [0, 1]
    assert torch.equal(sent[0], groups.models)


def test_without_a_loss_either_a_newcomer_waits() -> None:
    clients = Scripted({0: [0.0, 0.0], 1: [0.0, 0.0]}, {1: [5.0, 4.0, 9.0]})
    groups, plan = place(
        ct.fedgroup(groups=3, fallback="lowest_loss").assign,
        in_the_plane([-1, -1]),
        clients,
        [0, 1],
    )
    assert groups.member.tolist() == [-1, 1]
    assert plan.ids.tolist() == [1]


def test_pretraining_has_the_methods_objective() -> None:
    method = as_algorithm(ct.fedgrouprox(groups=3, mu=0.7))
    scripted = Scripted({0: [1.0, 0.0]})
    with Clients(scripted) as clients:
        method.step(in_the_plane([-1]), Round(5, KEY.at(5), np.array([0]), clients))
    pretraining, training = (work for work, _, _ in scripted.requests)
    assert isinstance(pretraining, Train)
    assert pretraining.objective.mu == 0.7
    assert pretraining.how == Steps(50)
    assert isinstance(training, Train)
    assert training.objective.mu == 0.7
    assert training.how != Steps(50)

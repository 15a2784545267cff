"""LCFed: two pulls, clusters in few dimensions, and a joint embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.algorithms.lcfed import LowRank, NearestLowRank, PulledTwice
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.training import WithOwnModel
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.client import OwnTraining
from coterie.local.training.trainers import Trainers
from tests.conftest import blobs, no_round, small_net


class TwoLayers(nn.Module):
    """An embedding and a head of one number each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(1, 1))
        self.head = nn.Parameter(torch.zeros(1, 1))


@dataclass(frozen=True)
class SquaredDistance:
    """``|w - x|^2 / 2``, whose gradient is ``w - x``."""

    mu: float = 0.0

    def loss(self, module: Any, x: Tensor, y: Tensor, received: Any) -> Tensor:
        w = torch.cat([module.embedding, module.head]).flatten()
        return (w - x[0]).square().sum() / 2


def test_a_client_is_pulled_to_its_cluster_and_its_embedding_to_the_joint_one() -> None:
    rule = PulledTwice(mu=1.0, lam=0.5)
    sent = torch.tensor([[0.0, 2.0], [4.0, 9.0]])
    solver = ct.Solver(epochs=2, batch_size=1, lr=0.5)
    samples = TrainingSamples(torch.tensor([[1.0, 0.0]]), torch.zeros(1))
    work = Train(SquaredDistance(), WithOwnModel(rule))
    key = Key(0, round=0).client(1)
    tools = OwnTraining(Trainers(TwoLayers(), ()), work, solver, samples, sent, key)
    found = rule.train(tools, {})
    # Step 1: (0 - 1, 2 - 0) + (0, 0) + (0.5 (0 - 4), 0) = (-3, 2), so w = (1.5, 1).
    # Step 2: (0.5, 1) + (1.5 - 0, 1 - 2) + (0.5 (1.5 - 4), 0) = (0.75, 0), so w = (1.125, 1).
    assert found.update.tolist() == pytest.approx([1.125, -1.0])


def test_clients_join_the_model_that_is_most_like_theirs_in_few_dimensions() -> None:
    """Models are seen from (1, 1), and along the second axis alone."""
    memory = LowRank(torch.zeros(2), torch.ones(2), torch.tensor([[0.0], [1.0]]))
    groups = Groups(torch.tensor([[9.0, 3.0], [9.0, -3.0]]), np.array([0, 1, -1]))
    updates = Updates(
        np.arange(3),
        np.array([0, 1, 1]),
        torch.tensor([[0.0, -5.0], [0.0, -1.0], [-4.0, 6.0]]),
        np.array([1.0, 1.0, 2.0]),
        np.zeros(3),
    )
    rule = NearestLowRank(groups=2, rank=1)
    after, counted = rule.recluster(groups.remember(memory), updates, no_round())
    # Solutions (9, -2), (9, -4) and (5, 3): -3, -5 and 2 along the axis.
    assert after.member.tolist() == counted.row.tolist() == [1, 1, 0]
    kept = after.memory.get(LowRank)
    assert kept is not None
    # (9 + 9 + 2 * 5) / 4 and (-2 - 4 + 2 * 3) / 4.
    assert kept.joint.tolist() == [7.0, 0.0]


def run(population: ct.Population, **options: Any) -> ct.Result:
    return ct.run(
        ct.lcfed(groups=2),
        data=population,
        model=small_net(population.classes),
        local=ct.Solver(epochs=2, batch_size=5, lr=0.1),
        engine="serial",
        **options,
    )


def test_planted_groups_are_found_by_all_that_train() -> None:
    population = blobs(clients=12, groups=2, size=60, classes=6)
    result = run(population, rounds=6, clients_per_round=6)
    member = result.state.member
    trained = member >= 0
    pairs = set(zip(population.planted[trained].tolist(), member[trained].tolist(), strict=True))
    assert len(pairs) == 2
    assert sum(row["newcomers"] for row in result.rows[1:]) == trained.sum() - 6


def test_fewer_replies_than_groups_train_one_model() -> None:
    result = run(blobs(), rounds=2, clients_per_round=1)
    assert result.state.k == 1

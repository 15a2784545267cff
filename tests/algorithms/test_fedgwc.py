"""FedGWC: rewards, the interaction matrix, and when a group splits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms.fedgwc import (
    InteractionMemory,
    SplitsByLosses,
    affinity,
    gaussian_rewards,
)
from coterie.core.keys import Key
from coterie.math.clustering import best_partition
from tests.conftest import blobs, no_round, small_net


def test_rewards_are_of_the_distance_to_the_weighted_mean() -> None:
    # The mean is (1 * 10 + 1 * 10 + 4 * 20) / 40 = 2.5 and the variance (2 * 10 * 2.25 + 20 * 2.25) / 40.
    loss = np.array([1.0, 1.0, 4.0])
    found = gaussian_rewards(loss, np.array([10.0, 10.0, 20.0]))
    np.testing.assert_allclose(found, np.exp(-0.5), rtol=1e-12)
    # Who is at the mean has the whole reward, and equal losses are all at it.
    assert gaussian_rewards(np.array([1.0, 2.0, 3.0]), np.ones(3))[1] == 1.0
    assert gaussian_rewards(np.full(3, 0.7), np.array([1.0, 2.0, 3.0])).tolist() == [1.0] * 3


def test_the_affinity_of_two_clients_leaves_out_what_they_say_of_each_other() -> None:
    weight = np.random.default_rng(1).uniform(size=(5, 5))
    found = affinity(weight, 0.7)
    view = (weight - weight.min()) / (weight.max() - weight.min())
    for i in range(5):
        for j in range(5):
            others = [c for c in range(5) if c not in (i, j)]
            expected = np.exp(-0.7 * ((view[i] - view[j])[others] ** 2).sum())
            assert found[i, j] == pytest.approx(0.0 if i == j else expected)


def test_two_blocks_are_two_clusters_and_noise_is_none() -> None:
    block = np.arange(12) < 5
    alike = (block[:, None] == block) + 0.01
    np.fill_diagonal(alike, 0.0)
    labels = best_partition(alike, 3, Key(0))
    assert labels is not None
    assert (
        len(np.unique(labels)) == len(set(zip(labels.tolist(), block.tolist(), strict=True))) == 2
    )
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.4, 0.6, (40, 40))
    noise = (noise + noise.T) / 2
    np.fill_diagonal(noise, 0.0)
    assert best_partition(noise, 3, Key(0)) is None


def memory_of(groups: ct.Groups) -> InteractionMemory:
    memory = groups.memory.get(InteractionMemory)
    assert memory is not None
    return memory


def test_the_matrix_is_the_moving_mean_of_shares_of_rewards() -> None:
    """Worked out by hand for four clients, of whom two are in the round."""
    rule = SplitsByLosses(gamma=1.0, eps=1e-9, most=2)
    start = InteractionMemory(np.full((4, 4), 1 / 16), np.array([1.0]), np.zeros(1, np.int64))
    groups = ct.Groups(torch.zeros(1, 2), np.zeros(4, np.int64)).remember(start)
    round = replace(no_round(), cohort=np.array([1, 3]))
    found = memory_of(rule._observe(groups, 0, np.array([1, 3]), np.array([0.2, 0.6]), round))
    expected = np.full((4, 4), 1 / 16)
    expected[[[1], [1]], [[1], [3]]] = 0.5 / 16 + 0.5 * 0.25
    expected[[[3], [3]], [[1], [3]]] = 0.5 / 16 + 0.5 * 0.75
    np.testing.assert_allclose(found.weight, expected)
    change = np.mean([(0.5 * (0.25 - 1 / 16)) ** 2, (0.5 * (0.75 - 1 / 16)) ** 2])
    np.testing.assert_allclose(found.change, [0.5 + 0.5 * change])
    assert found.settled.tolist() == [0]


def options(**more: Any) -> dict[str, Any]:
    return {
        "data": blobs(clients=12, groups=2, size=60, classes=6),
        "model": small_net(6),
        "local": ct.Solver(epochs=1, batch_size=5, lr=0.1),
        "rounds": 6,
        "clients_per_round": 4,
        "engine": "serial",
        "seed": 1,
        **more,
    }


def test_without_a_settled_matrix_it_is_fedavg() -> None:
    ours = ct.run(ct.fedgwc(eps=1e-12), **options())
    fedavg = ct.run(ct.fedavg(), **options())
    assert ours.state.models.tolist() == fedavg.state.models.tolist()
    assert ours.state.k == 1


def test_parts_start_from_the_model_of_their_group_and_settle_anew() -> None:
    rule = SplitsByLosses(gamma=1.0, eps=1e-5, most=3)
    memory = InteractionMemory(np.eye(6), np.array([0.3, 1e-6]), np.array([0, 4]))
    groups = ct.Groups(torch.tensor([[1.0], [2.0]]), np.array([0, 1, 1, 1, 0, 1]))
    groups = groups.remember(memory)
    members = np.array([1, 2, 3, 5])
    found = rule._split(groups, 1, members, np.array([0, 2, 1, 2]))
    assert found.models.ravel().tolist() == [1.0, 2.0, 2.0, 2.0]
    assert found.member.tolist() == [0, 1, 3, 2, 0, 3]
    assert memory_of(found).change.tolist() == [0.3, 1.0, 1.0, 1.0]
    assert memory_of(found).settled.tolist() == [0, 0, 0, 0]


def test_groups_whose_losses_differ_are_told_apart() -> None:
    """A quarter of the clients have labels by chance, which no model learns.

    With one half of them losses would lie alike on both sides of the mean, and so would rewards.
    """
    data = blobs(clients=24, groups=1, size=60, classes=4)
    rng = np.random.default_rng(0)
    targets = data.y.clone()
    for client in range(0, 24, 4):
        rows = torch.from_numpy(data.train[client])
        targets[rows] = torch.from_numpy(rng.integers(0, 4, len(rows)))
    noisy = replace(data, y=targets)
    method = ct.fedgwc(gamma=1.0, eps=2e-4, most=2)
    more = options(data=noisy, rounds=150, clients_per_round=8, model=small_net(4))
    result = ct.run(method, train={"evaluate_every": 150}, **more)
    assert result.state.k == 2
    learns_nothing = np.arange(24) % 4 == 0
    right = (result.state.member == 1) == learns_nothing
    assert max(right.sum(), (~right).sum()) >= 22

"""k-FED: centres of clients, seeds that are far apart, and the clusters that they make."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms.k_fed import ClusterMeans, farthest_first, most_samples
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.local.statistics import centres
from tests.conftest import config_errors

CORNERS = [[0.0, 0.0], [8.0, 0.0], [0.0, 9.0]]


def near_corners(of: list[list[int]], size: int = 12) -> Population:
    """Clients whose samples lie around some corners of a triangle, in equal parts."""
    rng = np.random.default_rng(4)
    x = []
    train = []
    test = []
    for corners in of:
        drawn = np.resize(corners, size)
        first = sum(len(rows) for rows in x)
        x.append(np.array(CORNERS)[drawn] + rng.uniform(-0.5, 0.5, (size, 2)))
        train.append(np.arange(first, first + size - 2))
        test.append(np.arange(first + size - 2, first + size))
    inputs = torch.from_numpy(np.concatenate(x)).to(torch.float32)
    targets = torch.from_numpy(rng.integers(0, 2, len(inputs)))
    return Population(inputs, targets, tuple(train), tuple(test), 2)


def run(population: Population, method: ct.Method, rounds: int = 2) -> ct.Result:
    return ct.run(
        method,
        data=population,
        model="mclr",
        local=ct.Solver(epochs=1, batch_size=5, lr=0.1),
        rounds=rounds,
        clients_per_round=2,
        engine="serial",
        seed=0,
    )


def test_seeds_are_as_far_apart_as_can_be() -> None:
    points = np.array([[0.0], [4.0], [1.0], [10.0]])
    # From 0 the farthest is 10. Then 4 is 4 from the nearest of both, and 1 is 1.
    assert farthest_first(points, np.array([0]), 3).tolist() == [0, 3, 1]
    assert farthest_first(points, np.array([0, 1]), 3).tolist() == [0, 1, 3]
    assert sorted(farthest_first(np.zeros((3, 1)), np.array([1]), 3).tolist()) == [0, 1, 2]


def test_a_client_joins_the_cluster_that_most_of_its_samples_are_in() -> None:
    cluster = np.array([[2, 0, 0], [1, 2, 0]])
    share = np.array([[0.4, 0.3, 0.3], [0.3, 0.5, 0.2]])
    assert most_samples(cluster, share, 3).tolist() == [0, 2]


def test_centres_are_means_and_the_shares_of_their_samples() -> None:
    population = near_corners([[0], [0, 1]])
    (alone, both) = centres(population, np.array([0, 1]), 2, Key(0))
    assert alone[:, 2].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(
        alone[:, 2] @ alone[:, :2], population.x[population.train[0]].mean(0), atol=1e-5
    )
    # Five samples at either corner.
    assert both[:, 2].tolist() == [0.5, 0.5]
    order = both[:, 0].argsort()
    expected = [population.x[population.train[1]][c::2].mean(0).tolist() for c in (0, 1)]
    np.testing.assert_allclose(both[order, :2], expected, atol=1e-5)
    (one,) = centres(population, np.array([1]), 1, Key(0))
    np.testing.assert_allclose(one[0, :2], population.x[population.train[1]].mean(0), atol=1e-5)


def test_a_client_with_fewer_samples_than_centres_has_as_many_as_samples() -> None:
    population = near_corners([[0, 1]], size=3)
    (found,) = centres(population, np.array([0]), 2, Key(0))
    assert (found[:, 2] > 0).sum() == 1


def test_clients_are_grouped_by_their_inputs_before_the_first_round() -> None:
    of = [[0], [1], [2], [0], [1], [2]]
    result = run(near_corners(of), ct.k_fed(3), rounds=1)
    groups = result.state.member
    assert sorted(set(groups.tolist())) == [0, 1, 2]
    assert [groups[i] == groups[i + 3] for i in range(3)] == [True] * 3
    memory = result.state.memory.get(ClusterMeans)
    assert memory is not None
    np.testing.assert_allclose(memory.mean[groups[:3]], CORNERS, atol=0.5)


def test_two_centres_of_each_client_find_three_corners() -> None:
    """With one centre, the mean of two corners, these clients would lie between the corners."""
    of = [[0, 1, 0], [1, 2, 1], [2, 0, 2], [0, 1, 0]]
    result = run(near_corners(of, size=14), ct.k_fed(3, centres=2), rounds=1)
    memory = result.state.memory.get(ClusterMeans)
    assert memory is not None
    nearest = np.linalg.norm(memory.mean[:, None] - np.array(CORNERS), axis=2)
    assert sorted(nearest.argmin(axis=1).tolist()) == [0, 1, 2]
    assert nearest.min(axis=1).max() < 0.5
    groups = result.state.member
    # Two thirds of their samples are at the first corner they were given.
    assert groups[0] == groups[3]
    assert len({int(g) for g in groups[:3]}) == 3


def test_more_centres_than_groups_are_refused() -> None:
    (line,) = config_errors(lambda: ct.k_fed(groups=2, centres=3))
    assert line == (
        "algorithm.centres: more centres per client than groups, got 3; expected 1 to 2"
    )

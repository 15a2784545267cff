"""Which points are left out of a clustering."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from coterie.math.outliers import against_the_others, far_from_neighbours, outliers


def distances(points: np.ndarray) -> np.ndarray:
    return cdist(points, points)


def clouds(groups: int = 3, each: int = 10, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 12 * np.eye(8)[:groups]
    return np.repeat(centres, each, axis=0) + rng.normal(size=(groups * each, 8))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_far_points_are_found_at_any_scale(scale: float) -> None:
    points = clouds()
    points[[4, 17, 25]] += 40 * np.eye(8)[5:8]
    found = far_from_neighbours(distances(scale * points), 3)
    assert found.nonzero()[0].tolist() == [4, 17, 25]


def test_flipped_directions_of_three_groups_are_far_from_all() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.eye(40)[:3] * 8, 10, axis=0) + rng.normal(size=(30, 40))
    attackers = [0, 1, 10, 11, 20, 21]
    groups[attackers] *= -1
    groups /= np.linalg.norm(groups, axis=1, keepdims=True)
    assert far_from_neighbours(1 - groups @ groups.T, 3).nonzero()[0].tolist() == attackers


def test_a_group_of_average_size_is_kept() -> None:
    points = clouds(each=10)
    assert far_from_neighbours(distances(points), 3).sum() <= 2


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 2**31))
def test_most_points_stay(n: int, clusters: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 3))
    assert far_from_neighbours(distances(points), clusters).sum() <= n / 2
    # Equal points are not far from each other.
    assert not far_from_neighbours(np.zeros((n, n)), clusters).any()


def directions() -> torch.Tensor:
    """Thirty updates of three groups with a common part."""
    rng = np.random.default_rng(0)
    common = 4 * np.ones(40) / np.sqrt(40)
    groups = np.repeat(np.eye(40)[:3] * 6, 10, axis=0) + common + 0.5 * rng.normal(size=(30, 40))
    return torch.from_numpy(groups).to(torch.float32)


@pytest.mark.parametrize("attackers", [[3], [0, 1, 10, 11, 20, 21], list(range(0, 30, 3))])
def test_flipped_signs_are_found_in_however_many_updates(attackers: list[int]) -> None:
    updates = directions()
    assert not against_the_others(updates).any()
    updates[attackers] *= -1
    assert against_the_others(updates).nonzero()[0].tolist() == attackers
    # Many of them are near to each other, which distances alone do not see through.
    distance = distances(updates.numpy())
    assert outliers(updates, distance, 3)[attackers].all()
    assert outliers(updates, distance, 3).sum() <= len(attackers) + 1


def test_length_and_zero_updates_do_not_matter() -> None:
    updates = directions()
    updates[::3] *= 1e6
    updates[1] = 0
    assert not against_the_others(updates).any()
    assert not against_the_others(torch.zeros(4, 3)).any()


def test_copies_of_an_update_count_once() -> None:
    """Attackers that agree on one update are the closest cluster of all."""
    points = clouds().astype(np.float32)
    points[[1, 12, 13, 22, 25, 28]] = points[1]
    updates = torch.from_numpy(points)
    left_out = outliers(updates, distances(points), 3)
    assert left_out[[12, 13, 22, 25, 28]].all()
    assert left_out.sum() <= 6


def test_half_of_the_updates_are_no_outliers() -> None:
    updates = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]])
    assert not outliers(updates, distances(updates.numpy()), 1).any()

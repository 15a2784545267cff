"""The leading directions of a client's samples, class by class."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.local.statistics import leading, subspaces
from tests.conftest import two_classes_each


@pytest.mark.parametrize("shape", [(3, 20), (20, 6), (2, 5)])
def test_leading_vectors_are_those_of_the_svd(shape: tuple[int, int]) -> None:
    samples = np.random.default_rng(0).random(shape)
    rank = min(*shape, 3)
    found = leading(samples, 3)
    left = np.linalg.svd(samples.T, full_matrices=False)[0][:, :rank]
    np.testing.assert_allclose(np.abs((found[:, :rank] * left).sum(axis=0)), 1, atol=1e-9)
    assert (found.sum(axis=0) >= 0).all()
    assert not found[:, rank:].any()
    assert not leading(0 * samples, 3).any()


def test_a_subspace_has_columns_for_the_classes_that_are_held() -> None:
    population = two_classes_each(4)
    u = subspaces(population, np.array([0, 1]), 2)
    assert u.shape == (2, 6, 8)
    assert u.any(axis=1).tolist() == [[True] * 4 + [False] * 4, [False] * 4 + [True] * 4]
    mine = population.train[1][population.labels[population.train[1]] == 2]
    np.testing.assert_allclose(u[1, :, 4:6], leading(population.x[mine].numpy(), 2), atol=1e-6)

"""Angles between the subspaces of clients."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from torch import Tensor

from coterie.math.clustering import agglomerate
from coterie.math.distances import cosine_distance
from coterie.math.subspaces import entry_min, principal_angles


def bases(n: int, features: int = 12, q: int = 4) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    u = torch.randn(n, features, q, generator=rng)
    u[1, :, 2:] = 0
    u[3] = 0
    return u


def test_entry_min_by_brute_force() -> None:
    u = bases(5)
    for found, b in ((entry_min(u), u), (entry_min(u, u[2:]), u[2:])):
        for i, j in np.ndindex(found.shape):
            columns = [[c / c.norm() for c in one.T.double() if c.any()] for one in (u[i], b[j])]
            angles = [
                np.degrees(np.arccos(min(1, float(x @ y)))) for x in columns[0] for y in columns[1]
            ]
            expected = 0 if b is u and i == j else min(angles, default=90)
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


def test_principal_angles_are_those_of_scipy() -> None:
    u = bases(5)
    found = principal_angles(u)
    np.testing.assert_allclose(found[:, 3:4], [[90], [90], [90], [0], [90]])
    np.testing.assert_allclose(principal_angles(u, u[:2])[2:], found[2:, :2])
    for i, j in ((0, 1), (0, 2), (1, 2), (2, 4)):
        spans = [one[:, one.any(dim=0)].double().numpy() for one in (u[i], u[j])]
        assert (
            found[i, j]
            == found[j, i]
            == pytest.approx(np.degrees(subspace_angles(*spans).min()), abs=1e-6)
        )


def test_angles_do_not_depend_on_the_length_of_what_was_sent() -> None:
    u = bases(5)
    for angle in (entry_min, principal_angles):
        np.testing.assert_allclose(angle(u), angle(u * torch.logspace(-6, 6, 4)), atol=1e-3)
    doubled = torch.cat([u, u], dim=2)
    np.testing.assert_allclose(principal_angles(u), principal_angles(doubled), atol=1e-4)


def test_equal_directions_are_at_angle_zero() -> None:
    """Whatever their lengths, and for spans that meet somewhere: 34 + 34 directions in 64
    dimensions."""
    rng = torch.Generator().manual_seed(0)
    length = torch.rand(50, 1, 9, generator=rng, dtype=torch.float64) + 0.1
    same = torch.randn(1, 64, 9, generator=rng) * length
    meeting = torch.randn(60, 64, 34, generator=torch.Generator().manual_seed(34))
    for angle in (
        entry_min(same),
        entry_min(same, same),
        principal_angles(same),
        principal_angles(meeting),
    ):
        assert not angle.any()
        assert agglomerate(angle, "weighted").count == 1
    rows = torch.randn(1, 3000, generator=rng) * length[:, :, 0]
    assert not cosine_distance(rows).any()
    assert agglomerate(cosine_distance(rows), "complete").count == 1


def test_entry_min_holds_no_more_than_one_client_against_all() -> None:
    u = torch.randn(100, 20, 30)
    tracemalloc.start()
    entry_min(u)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 100 * 30 * 100 * 30 / 10


def test_a_client_without_directions_is_at_right_angles_to_all() -> None:
    u = bases(5)
    assert (entry_min(u, torch.zeros(2, 12, 4)) == 90).all()
    assert (entry_min(torch.zeros(2, 12, 4), u) == 90).all()

"""Cuts of a tree where no gap is wide: silhouettes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_samples

from coterie.math.clustering import agglomerate
from coterie.math.cuts import largest_gap, silhouette_count, silhouettes, widest_gap
from coterie.measures.groups import agreement
from tests.conftest import work_of


def clients(n: int, groups: int, apart: float, seed: int = 0, width: int = 80) -> np.ndarray:
    """Points of noise around the centres of groups."""
    rng = np.random.default_rng(seed)
    centres = np.eye(width)[:groups] * apart
    return rng.normal(size=(n, width)) + centres[np.arange(n) % groups]


@pytest.mark.parametrize("groups", [2, 3, 7])
def test_silhouettes_are_those_of_scikit_learn(groups: int) -> None:
    points = np.random.default_rng(groups).normal(size=(30, 4))
    labels = np.arange(30) % groups
    distance = cdist(points, points)
    expected = silhouette_samples(points, labels)
    np.testing.assert_allclose(silhouettes(distance, labels), expected, atol=1e-12)
    # Distances that are made of products have rounding errors on their diagonal.
    np.fill_diagonal(distance, 3e-4)
    np.testing.assert_allclose(silhouettes(distance, labels), expected, atol=1e-12)


def test_a_point_alone_has_a_silhouette_of_zero() -> None:
    x = np.array([0.0, 1.0, 8.0])
    found = silhouettes(np.abs(np.subtract.outer(x, x)), np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [7 / 8, 6 / 7, 0.0])


def test_points_that_are_all_one_have_no_silhouette() -> None:
    assert silhouettes(np.zeros((4, 4)), np.array([0, 0, 1, 1])).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("groups", "apart", "width"), [(3, 5.0, 40), (5, 7.0, 80)])
def test_groups_in_much_noise_have_no_wide_gap_and_are_found(
    groups: int, apart: float, width: int
) -> None:
    """Centres are 1.4 ``apart`` from each other, points of a group 9 and 13."""
    points = clients(60, groups, apart, width=width)
    distance = cdist(points, points)
    by_gap = agglomerate(distance, threshold="gap")
    found = agglomerate(distance)
    assert by_gap.count == 1
    assert by_gap.threshold == largest_gap(by_gap.tree[:, 2])
    assert widest_gap(by_gap.tree[:, 2]) < 0.1
    assert agreement(found.labels, np.arange(60) % groups) == {"ari": 1.0, "nmi": 1.0}
    below, above = found.tree[60 - groups - 1 : 60 - groups + 1, 2]
    assert found.threshold == pytest.approx((below + above) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_one_cluster(seed: int) -> None:
    points = clients(48, 1, 0.0, seed)
    found = agglomerate(cdist(points, points))
    assert found.count == 1
    assert found.threshold == pytest.approx(found.tree[-1, 2] / 0.9)


def test_where_a_gap_is_wide_it_decides() -> None:
    """Two far pairs of near groups: silhouettes would be positive at four, too."""
    points = clients(24, 4, 60.0)
    points[np.arange(24) % 4 < 2] += 20
    distance = cdist(points, points)
    by_gap = agglomerate(distance, threshold="gap")
    found = agglomerate(distance)
    assert by_gap.count > 1
    np.testing.assert_array_equal(found.labels, by_gap.labels)
    assert found.threshold == by_gap.threshold


def test_silhouettes_of_few_points_are_not_trusted() -> None:
    points = clients(15, 3, 100.0)
    distance = cdist(points, points)
    assert silhouette_count(distance, agglomerate(distance).tree) == 1
    points = clients(16, 3, 100.0)
    distance = cdist(points, points)
    assert silhouette_count(distance, agglomerate(distance).tree) == 3


def test_a_single_odd_client_ends_the_search() -> None:
    """It is cut off first, so that every cut has a cluster of one."""
    points = clients(40, 2, 12.0)
    distance = cdist(points, points)
    assert silhouette_count(distance, agglomerate(distance).tree) == 2
    points[7] += 5
    distance = cdist(points, points)
    assert silhouette_count(distance, agglomerate(distance).tree) == 1


def test_2000_points_take_seconds() -> None:
    """Ward's linkage leaves no single points, so all cuts are tried."""
    points = clients(2000, 3, 9.0)
    distance = cdist(points, points)
    tree = agglomerate(distance, "ward", count=1).tree
    count, work = work_of(lambda: silhouette_count(distance, tree))
    assert count == 3
    # 10 where each cut is made from the one before.
    assert work < 100

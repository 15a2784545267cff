"""Agglomerative clustering: cuts, linkages, the automatic threshold, and points that come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform
from torch import Tensor

from coterie.math.clustering import (
    agglomerate,
    cut_without_few,
    large_clusters,
    linkage_distance,
)
from coterie.math.cuts import largest_gap
from coterie.math.distances import cosine_distance, l1, l2
from coterie.measures.groups import agreement
from tests.conftest import same_partition, work_of

LINKAGES = ("average", "complete", "single", "ward", "weighted")


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


@pytest.mark.parametrize("method", LINKAGES)
def test_cuts_are_those_of_scipy(method: str) -> None:
    distance = cdist(points(40), points(40))
    tree = linkage(squareform(distance, checks=False), method)
    for level in (*tree[[3, 20, 35], 2], 0.05, 99.0):
        found = agglomerate(distance, method, float(level))
        np.testing.assert_array_equal(found.tree, tree)
        assert same_partition(found.labels, fcluster(tree, level, "distance"))
    for count in (1, 2, 7, 40):
        found = agglomerate(distance, method, count=count)
        assert found.count == count
        assert same_partition(found.labels, fcluster(tree, count, "maxclust"))


def test_upgma_counts_clients_and_wpgma_clusters() -> None:
    """A and B merge at 2, C joins them at 4; D is 10, 10 and 7 away: 27/3 by clients, (10 + 7)/2 by
    clusters."""
    distance = np.array([[0, 2, 4, 10], [2, 0, 4, 10], [4, 4, 0, 7], [10, 10, 7, 0]], float)
    assert agglomerate(distance, "average").tree[:, 2].tolist() == [2, 4, 9]
    assert agglomerate(distance, "weighted").tree[:, 2].tolist() == [2, 4, 8.5]


@pytest.mark.parametrize(
    ("heights", "level"),
    [
        ([1, 1, 1, 9, 9.5], 5.0),  # n = 6, the gap after z_3
        ([1, 7, 7.5, 8, 8.5], 8.5 / 0.9),  # the widest gap is before z_3: not looked at
        ([1, 1, 5, 7, 9], 6.0),  # the first of two equal gaps
        ([9, 9, 9, 10], 9.5),  # a gap of a tenth is enough
        ([9, 9, 9.1, 10], 10 / 0.9),  # less is not
        ([4, 8], 8 / 0.9),  # three clients have no gap to judge by
        ([4], 4 / 0.9),
        ([], np.inf),
        ([0, 0, 0], np.inf),
    ],
)
def test_the_auto_rule(heights: list[float], level: float) -> None:
    assert largest_gap(np.array(heights, float)) == pytest.approx(level)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.sampled_from(LINKAGES))
def test_clustering_takes_any_distances(x: list[float], method: Any) -> None:
    distance = np.abs(np.subtract.outer(x, x))
    for options in ({}, {"threshold": 5.0}, {"count": 3}):
        found = agglomerate(distance, method, **options)
        first = [found.labels.tolist().index(j) for j in range(found.count)]
        assert first == sorted(first)
        assert set(found.labels) == set(range(found.count))
    assert found.count == min(3, len(x))


def test_ties_still_give_the_number_asked_for() -> None:
    assert [agglomerate(1 - np.eye(5), count=k).count for k in (1, 2, 3, 4, 5, 9)] == [
        1,
        2,
        3,
        4,
        5,
        5,
    ]


@pytest.mark.parametrize("method", ["average", "complete", "single", "ward"])
def test_a_new_point_is_as_far_as_its_merge_would_be_high(method: Any) -> None:
    old = points(6)
    new = points(1, 1) + 20
    tree = agglomerate(cdist(np.vstack([old, new]), np.vstack([old, new])), method).tree
    far = linkage_distance(cdist(new, old), cdist(old, old), np.zeros(6, int), 2, method)
    assert far[0, 0] == pytest.approx(tree[-1, 2])
    assert far[0, 1] == np.inf


@pytest.mark.parametrize("metric", [l1, l2, cosine_distance])
def test_2000_clients_are_clustered_in_time(metric: Callable[[Tensor], np.ndarray]) -> None:
    planted = np.arange(2000) % 4
    rows = torch.randn(2000, 850) + 3 * torch.randn(4, 850)[torch.from_numpy(planted)]
    found, work = work_of(lambda: agglomerate(metric(rows)))
    # 5 for two of them, and 17 for the sums of absolute values.
    assert work < 100
    assert agreement(found.labels, planted) == {"ari": 1.0, "nmi": 1.0}


def clients(n: int, groups: int, far: int, apart: float = 6.0, seed: int = 0) -> np.ndarray:
    """Points of groups in much noise, and points far from all others, each in its own direction."""
    rng = np.random.default_rng(seed)
    centres = np.eye(40)[:groups] * apart
    points = rng.normal(size=(n, 40)) + centres[np.arange(n) % groups]
    return np.concatenate([points, 30 * np.eye(40)[-far:]]) if far else points


@pytest.mark.parametrize("far", [1, 2, 9])
def test_far_points_hide_no_groups(far: int) -> None:
    distance = cdist(*[clients(60, 3, far)] * 2)
    alone = agglomerate(distance)
    assert np.bincount(alone.labels).max() == 60
    found, aside = cut_without_few(distance, "average", "auto")
    assert aside.nonzero()[0].tolist() == list(range(60, 60 + far))
    assert agreement(found.labels, np.arange(60) % 3)["ari"] == 1.0
    assert found.tree.shape == (59, 4)


@pytest.mark.parametrize("threshold", ["auto", "gap"])
@pytest.mark.parametrize("far", [0, 1, 3])
def test_without_hidden_groups_the_cut_is_the_first_one(threshold: str, far: int) -> None:
    for groups, apart in ((1, 0.0), (3, 60.0)):
        distance = cdist(*[clients(48, groups, far, apart)] * 2)
        first = agglomerate(distance, threshold=threshold)  # type: ignore[arg-type]
        found, aside = cut_without_few(distance, "average", threshold)  # type: ignore[arg-type]
        assert not aside.any()
        assert (found.labels == first.labels).all()
        assert (found.tree == first.tree).all()
        assert found.threshold == first.threshold


def test_a_quarter_of_the_points_is_not_set_aside() -> None:
    distance = cdist(*[clients(60, 3, 21)] * 2)
    first = agglomerate(distance)
    found, aside = cut_without_few(distance, "average", "auto")
    assert not aside.any()
    assert (found.labels == first.labels).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_very_few_points(n: int) -> None:
    points = np.arange(float(n))[:, None]
    found, aside = cut_without_few(cdist(points, points), "average", "auto")
    assert len(found.labels) == n
    assert not aside.any()


@pytest.mark.parametrize("method", ["average", "complete", "single"])
@pytest.mark.parametrize("far", [0, 1, 9])
def test_large_clusters_are_found_beside_far_points(method: Any, far: int) -> None:
    distance = cdist(*[clients(60, 3, far, apart=20.0)] * 2)
    found, aside = large_clusters(distance, method, 3, least=2)
    assert aside.nonzero()[0].tolist() == list(range(60, 60 + far))
    assert agreement(found.labels, np.arange(60) % 3)["ari"] == 1.0
    kept = agglomerate(distance[:60, :60], method, count=3)
    assert found.threshold == pytest.approx(kept.threshold)
    assert found.tree.shape == (59, 4)


def test_there_are_no_more_large_clusters_than_some_level_has() -> None:
    at = np.array([0.0, 0.1, 0.2, 3.0, 3.1, 3.2, 90.0])
    distance = np.abs(np.subtract.outer(at, at))
    found, aside = large_clusters(distance, "average", 5, least=3)
    assert found.count == 2
    assert aside.nonzero()[0].tolist() == [6]


@pytest.mark.parametrize("n", [1, 2, 3, 20])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_one_large_cluster_is_cut_above_its_last_merge(n: int, spread: float) -> None:
    at = spread * np.arange(float(n))
    found, aside = large_clusters(np.abs(np.subtract.outer(at, at)), "average", 1, least=2)
    assert found.labels.tolist() == [0] * n
    assert not aside.any()
    heights = found.tree[:, 2]
    if heights.any():
        assert found.threshold == pytest.approx(heights[-1] / 0.9)
    else:
        assert found.threshold == np.inf

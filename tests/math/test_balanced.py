"""Equal clusters, groups of one client per cluster, mediators, and how the number of groups grows."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.keys import Key
from coterie.data import make_partition, populate
from coterie.math.balanced import (
    EqualKMeans,
    equal_clusters,
    grow,
    inter_cluster,
    mediators,
    random_equal_groups,
)
from coterie.math.transport import SOLVERS
from coterie.measures.groups import cpd_label, divergence, totals
from tests.conftest import real_labels, work_of

needs_ortools = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="OR-Tools is not installed"
)


def skewed(clients: int, classes: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(classes, 0.3), clients)
    sizes = rng.lognormal(5.3, 0.5, clients).astype(int) + 5
    return np.array([rng.multinomial(n, p) for n, p in zip(sizes, shares, strict=True)], np.float64)


@pytest.mark.parametrize(
    ("growth", "alpha", "expected"),
    [
        ("log", 2.0, [10, 20, 30, 30, 40, 50, 50, 50, 60, 70, 80, 80]),
        ("linear", 0.1, [10] * 7 + [20, 20, 30, 40, 60]),
        ("exp", 0.1, [10] * 6 + [20, 20, 30, 60, 230, 1170]),
    ],
)
def test_growth_golden(growth: Any, alpha: float, expected: list[int]) -> None:
    rounds = (1, 2, 3, 4, 5, 8, 9, 11, 13, 21, 34, 51)
    assert [grow(growth, r, alpha, 10, 10**6) for r in rounds] == expected


def test_the_default_growth_stays_at_130_to_the_end() -> None:
    assert [grow("log", r, 2.0, 10, 368) for r in (403, 404, 500)] == [120, 130, 130]


@given(
    growth=st.sampled_from(["linear", "log", "exp"]),
    round=st.integers(-1, 10**9),
    alpha=st.floats(1e-9, 1e300),
    beta=st.integers(1, 10**6),
    most=st.integers(1, 10**6),
)
def test_growth_never_overflows_and_never_shrinks(
    growth: Any, round: int, alpha: float, beta: int, most: int
) -> None:
    now = grow(growth, round, alpha, beta, most)
    assert 1 <= now <= most
    assert grow(growth, round + 1, alpha, beta, most) >= now


def test_an_exact_integer_is_not_floored_away() -> None:
    assert [grow("linear", r, 0.1, 1, 99) for r in (10, 11, 21, 31)] == [1, 2, 3, 4]


@needs_ortools
def test_flow_and_matching_objectives_are_equal_at_the_papers_size() -> None:
    histograms = skewed(364, 62)
    objectives = [
        equal_clusters(histograms, 7, Key(0), EqualKMeans(1, solver=solver)).objective
        for solver in SOLVERS
    ]
    np.testing.assert_allclose(objectives, objectives[0][0])


histograms = st.integers(2, 40).flatmap(
    lambda k: st.tuples(st.just(k), st.integers(1, k), st.integers(1, 5), st.integers(0, 999))
)


@given(histograms, st.sampled_from(["random", "k-means++"]), st.booleans())
def test_clusters_are_equal_and_the_objective_never_increases(
    made: Any, init: Any, normalize: bool
) -> None:
    k, clusters, classes, seed = made
    features = skewed(k, classes, seed)[: k // clusters * clusters]
    if normalize:
        features = features / features.sum(axis=1, keepdims=True)
    found = equal_clusters(features, clusters, Key(seed), EqualKMeans(init=init))
    assert (np.bincount(found.label, minlength=clusters) == k // clusters).all()
    gaps = np.diff(found.objective)
    assert (gaps <= 1e-9 * max(1.0, *found.objective, 0.0)).all()
    if found.objective:
        centres = np.stack([features[found.label == j].mean(axis=0) for j in range(clusters)])
        exact = 0.5 * ((features - centres[found.label]) ** 2).sum()
        assert exact <= found.objective[-1] * (1 + 1e-9) + 1e-9


@given(histograms, st.sampled_from(["idle", "append", "exact"]), st.booleans())
def test_groups_have_one_client_of_each_cluster(made: Any, leftover: Any, normalize: bool) -> None:
    k, m, classes, seed = made
    group = inter_cluster(skewed(k, classes, seed), m, Key(seed), leftover, normalize)
    sizes = np.bincount(group[group >= 0], minlength=m)
    assert len(sizes) == m
    if leftover == "append" or m == 1:
        assert (group >= 0).all()
        assert sizes.max() - sizes.min() <= 1
        assert sizes.max() <= -(-k // m)
    else:
        assert (sizes == k // m).all()
        assert (group < 0).sum() == k - m * (k // m)


def test_one_client_per_cluster_is_meant_literally() -> None:
    """Four kinds of clients, as many of each: every group holds one of each kind."""
    kinds = np.repeat(np.eye(4) * 30, 5, axis=0)
    group = inter_cluster(kinds, 5, Key(0), how=EqualKMeans(init="k-means++"))
    assert [sorted(np.flatnonzero(group == g) // 5) for g in range(5)] == [[0, 1, 2, 3]] * 5
    assert divergence(totals(kinds, group)) == 0


@pytest.mark.parametrize(
    ("m", "idle"), [(10, 8), (40, 8), (50, 18), (80, 48), (100, 68), (130, 108)]
)
def test_idle_clients_of_the_papers_setting(m: int, idle: int) -> None:
    histograms = skewed(368, 10)
    assert [
        int((inter_cluster(histograms, m, Key(0), how, how=EqualKMeans(iterations=1)) < 0).sum())
        for how in ("idle", "exact")
    ] == [
        idle,
        idle,
    ]
    assert (
        inter_cluster(histograms, m, Key(0), "append", how=EqualKMeans(iterations=1)) >= 0
    ).all()


def test_nobody_idles_for_long() -> None:
    histograms = skewed(23, 4)
    groups = [inter_cluster(histograms, 8, Key(0).at(t)) >= 0 for t in range(40)]
    assert np.any(groups, axis=0).all()


def test_alike_and_empty_histograms_are_grouped_too() -> None:
    for same in (np.zeros((9, 3)), np.full((9, 3), 1e9)):
        for init in ("random", "k-means++"):
            for normalize in (False, True):
                group = inter_cluster(
                    same, 3, Key(0), normalize=normalize, how=EqualKMeans(init=init)
                )
                assert np.bincount(group).tolist() == [3, 3, 3]


@pytest.mark.parametrize(("clients", "m", "ceiling"), [(364, 52, 10), (3550, 130, 100)])
def test_grouping_is_quick(clients: int, m: int, ceiling: float) -> None:
    """A tenth of that on the machine of the benchmarks."""
    histograms = skewed(clients, 62)
    inter_cluster(histograms[:50], 5, Key(0))
    assert work_of(lambda: inter_cluster(histograms, m, Key(0)))[1] < ceiling


def test_inter_cluster_grouping_beats_chance() -> None:
    histograms = skewed(200, 10)
    clients, random, icg = (
        np.median(cpd_label(totals(histograms, group)))
        for group in (
            np.arange(200),
            random_equal_groups(200, 20, Key(0)),
            inter_cluster(histograms, 20, Key(0), how=EqualKMeans(init="k-means++")),
        )
    )
    assert icg < random < clients


@given(st.integers(1, 25), st.integers(1, 6), st.integers(0, 99))
def test_mediators_take_everybody_once_and_are_full_but_the_last(
    clients: int, most: int, seed: int
) -> None:
    order, mediator = mediators(skewed(clients, 4, seed), most)
    assert sorted(order.tolist()) == list(range(clients))
    sizes = np.bincount(mediator)
    assert (sizes[:-1] == most).all()
    assert 1 <= sizes[-1] <= most


def test_mediators_are_nearer_to_uniform_than_chance() -> None:
    histograms = np.eye(4)[np.arange(20) % 4] * 25

    def distance(group: np.ndarray) -> float:
        shares = totals(histograms, group)
        shares = shares / shares.sum(axis=1, keepdims=True)
        return float(((shares - 0.25) ** 2).sum())

    order, mediator = mediators(histograms, 4)
    group = np.empty(20, np.int64)
    group[order] = mediator
    assert distance(group) == 0 < distance(random_equal_groups(20, 5, Key(0)))


def test_icg_is_below_random_is_below_clients_on_mnist() -> None:
    samples = real_labels("mnist")
    partition = {"kind": "power_law", "clients": 1000, "classes_per_client": 2}
    key = Key(0).of("data")
    data = populate(samples, make_partition(samples, partition, key), key)
    histograms = data.histograms().astype(np.float64)
    clients, random, icg = (
        np.median(cpd_label(totals(histograms, group)))
        for group in (
            np.arange(1000),
            random_equal_groups(1000, 50, Key(0)),
            inter_cluster(histograms, 50, Key(0)),
        )
    )
    assert icg < random < clients

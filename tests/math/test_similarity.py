"""What the measures are blind to, and what clusterings promise whatever they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.keys import Key
from coterie.math.clustering import complete_linkage, kmeans
from coterie.math.similarity import cosine, edc, edc_embedding, madc, nearest_direction

seeds = st.integers(0, 2**32 - 1)
counts = st.integers(3, 9)
scales = st.floats(1e-6, 1e6)


def updates(seed: int, n: int, d: int = 7) -> Tensor:
    """Random updates, no two alike, none zero."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def partition(labels: Any) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == j).tolist()) for j in np.unique(labels)}


def relabelled(labels: Any, order: Any) -> set[frozenset[int]]:
    """The clusters of ``labels``, once client ``order[i]`` is called ``i``."""
    name = {int(old): new for new, old in enumerate(order)}
    return {frozenset(name[i] for i in cluster) for cluster in partition(labels)}


# --- MADC -----------------------------------------------------------------------------------------


@given(seeds, counts, st.data())
def test_madc_does_not_see_how_long_an_update_is(seed: int, n: int, data: st.DataObject) -> None:
    rows = updates(seed, n)
    scale = torch.tensor(data.draw(st.lists(scales, min_size=n, max_size=n)), dtype=torch.float64)
    np.testing.assert_allclose(madc(rows * scale[:, None]), madc(rows), atol=1e-9)


@given(seeds, counts)
def test_madc_is_its_formula_and_a_distance(seed: int, n: int) -> None:
    rows = updates(seed, n)
    s = cosine(rows, rows)
    found = madc(rows)
    for i in range(n):
        for j in range(n):
            others = [z for z in range(n) if z not in (i, j)]
            expected = np.mean([abs(s[i, z] - s[j, z]) for z in others]) if i != j else 0.0
            assert found[i, j] == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    assert (found >= 0).all()


@given(seeds, counts, st.data())
def test_madc_follows_its_clients(seed: int, n: int, data: st.DataObject) -> None:
    rows = updates(seed, n)
    order = np.array(data.draw(st.permutations(range(n))))
    np.testing.assert_allclose(madc(rows[order]), madc(rows)[np.ix_(order, order)], atol=1e-9)


def test_madc_needs_three() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        madc(torch.eye(2))


# --- EDC ------------------------------------------------------------------------------------------


@given(seeds, counts, st.integers(1, 3), scales)
def test_edc_does_not_see_a_common_scale(seed: int, n: int, m: int, scale: float) -> None:
    rows = updates(seed, n)
    one = edc_embedding(rows, m)
    two = edc_embedding(rows * scale, m)
    sign = np.sign((one * two).sum(axis=0))
    np.testing.assert_allclose(two, one * sign, atol=1e-6)
    np.testing.assert_allclose(edc(rows * scale, m), edc(rows, m), atol=1e-6)


def test_edc_does_see_the_scale_of_one_update() -> None:
    """Long updates steer the directions, so that only a common scale is free (spec 14.2)."""
    rows = updates(0, 6)
    longer = rows.clone()
    longer[0] *= 50
    assert np.abs(edc(longer, 2) - edc(rows, 2)).max() > 0.05


@given(seeds, counts, st.integers(1, 3), st.data())
def test_edc_follows_its_clients(seed: int, n: int, m: int, data: st.DataObject) -> None:
    rows = updates(seed, n)
    order = np.array(data.draw(st.permutations(range(n))))
    np.testing.assert_allclose(edc(rows[order], m), edc(rows, m)[np.ix_(order, order)], atol=1e-6)


@given(seeds, counts, st.integers(1, 3))
def test_edc_is_that_of_a_dense_svd(seed: int, n: int, m: int) -> None:
    rows = updates(seed, n)
    _, _, vh = np.linalg.svd(rows.numpy())
    dense = cosine(rows, torch.from_numpy(vh[:m]))
    expected = np.linalg.norm(dense[:, None] - dense[None], axis=2) / m
    np.testing.assert_allclose(edc(rows, m), expected, atol=1e-6)


@given(seeds, counts, st.integers(1, 12))
def test_an_embedding_holds_cosines(seed: int, n: int, m: int) -> None:
    e = edc_embedding(updates(seed, n), m)
    assert e.shape == (n, m)
    assert (np.linalg.norm(e, axis=1) <= 1 + 1e-9).all()


# --- zero rows ------------------------------------------------------------------------------------


@given(seeds, counts, st.data())
def test_a_zero_update_is_like_nothing(seed: int, n: int, data: st.DataObject) -> None:
    rows = updates(seed, n)
    zero = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    rows[zero] = 0
    assert not cosine(rows, rows)[zero].any()
    assert not edc_embedding(rows, 2)[zero].any()
    distance = madc(rows)
    assert np.isfinite(distance).all()
    assert np.isfinite(edc(rows, 2)).all()
    assert not distance[np.ix_(zero, zero)].any()


def test_updates_that_barely_are_do_not_break_anything() -> None:
    tiny = torch.full((4, 3), 1e-38)
    np.testing.assert_allclose(cosine(tiny, tiny), 1)
    assert not madc(tiny).round(9).any()
    assert np.isfinite(edc_embedding(tiny, 2)).all()


# --- clusterings ----------------------------------------------------------------------------------


@st.composite
def points(draw: st.DrawFn) -> tuple[Any, int]:
    """Up to twelve points on a coarse grid, many of them alike, and a number of clusters that they
    suffice for."""
    cell = st.integers(0, 3).map(float)
    rows = draw(st.lists(st.tuples(cell, cell), min_size=1, max_size=12))
    return np.array(rows), draw(st.integers(1, len(rows)))


def exactly(labels: Any, n: int, m: int) -> None:
    """Labels ``0..m-1``, all in use, numbered in order of first appearance."""
    assert labels.shape == (n,)
    assert labels.dtype == np.int64
    assert np.unique(labels).tolist() == list(range(m))
    first = [labels.tolist().index(j) for j in range(m)]
    assert first == sorted(first)


@given(points(), seeds)
def test_kmeans_uses_every_label_in_order_of_appearance(given: tuple[Any, int], seed: int) -> None:
    rows, m = given
    labels = kmeans(rows, m, Key(seed))
    exactly(labels, len(rows), m)
    assert np.array_equal(labels, kmeans(rows, m, Key(seed)))


@given(points())
def test_complete_linkage_uses_every_label_in_order_of_appearance(given: tuple[Any, int]) -> None:
    rows, m = given
    if len(rows) > 1:
        exactly(
            complete_linkage(np.linalg.norm(rows[:, None] - rows[None], axis=2), m), len(rows), m
        )


@given(seeds, st.integers(1, 4), st.data())
def test_whoever_renames_clients_renames_clusters(seed: int, m: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(m), rng.integers(m, size=8)])
    rows = 20 * np.eye(m)[truth] + rng.normal(size=(len(truth), m))
    order = np.array(data.draw(st.permutations(range(len(truth)))))
    for cluster in (
        lambda points: kmeans(points, m, Key(seed)),
        lambda points: complete_linkage(np.linalg.norm(points[:, None] - points[None], axis=2), m),
    ):
        labels = cluster(rows)
        assert partition(labels) == partition(truth)
        assert partition(cluster(rows[order])) == relabelled(labels, order)


@given(seeds, st.integers(1, 9), st.data())
def test_complete_linkage_of_distances_without_ties_follows_its_clients(
    seed: int, m: int, data: st.DataObject
) -> None:
    n = 9
    rows = updates(seed, n)
    order = np.array(data.draw(st.permutations(range(n))))
    distance = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    labels = complete_linkage(distance[np.ix_(order, order)], m)
    assert partition(labels) == relabelled(complete_linkage(distance, m), order)


@pytest.mark.parametrize("measure", ["edc", "madc"])
def test_planted_directions_are_told_apart(measure: str) -> None:
    """However long the updates are: three directions, lengths from 0.1 to 10."""
    rng = np.random.default_rng(2)
    truth = np.arange(15) % 3
    rows = np.eye(20)[truth] + 0.05 * rng.normal(size=(15, 20))
    rows *= 10 ** rng.uniform(-1, 1, size=(15, 1))
    tensor = torch.from_numpy(rows)
    labels = (
        kmeans(edc_embedding(tensor, 3), 3, Key(0))
        if measure == "edc"
        else complete_linkage(madc(tensor), 3)
    )
    assert np.array_equal(labels, truth)


def test_nearest_is_one_minus_cosine_over_two() -> None:
    rng = np.random.default_rng(0)
    delta = torch.from_numpy(rng.normal(size=(20, 5)))
    target = torch.from_numpy(rng.normal(size=(4, 5)))
    a = delta.numpy()
    b = target.numpy()
    cosine = a @ b.T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
    assert np.array_equal(nearest_direction(delta, target), ((1 - cosine) / 2).argmin(axis=1))
    assert np.array_equal(
        nearest_direction(3 * delta, 0.1 * target), nearest_direction(delta, target)
    )

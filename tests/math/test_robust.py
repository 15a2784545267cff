"""Robust averages: the values of byzfl, and what a few wrong points can do to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.keys import Key
from coterie.math.robust import (
    bucket_means,
    clipped_mean,
    krum_selection,
    median_per_coordinate,
    smoothed_weiszfeld,
    trimmed_mean_per_coordinate,
)
from tests.golden.byzfl_values import CASES, points

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "byzfl.json").read_text())


def even(n: int) -> np.ndarray:
    return np.full(n, 1 / n)


@pytest.mark.parametrize("at", range(len(CASES)))
def test_values_are_those_of_byzfl(at: int) -> None:
    case = CASES[at]
    drawn = points(*case)
    n = case[1]
    f = case[3]
    expected: dict[str, Any] = GOLDEN[at]
    assert [expected[name] for name in ("seed", "n", "d", "f")] == list(case)
    found = {
        "coordinate_median": median_per_coordinate(drawn),
        "trimmed_mean": trimmed_mean_per_coordinate(drawn, f),
        "krum": drawn[krum_selection(drawn, f, 1)[0]],
        "multi_krum": drawn[krum_selection(drawn, f)].mean(axis=0),
        "geometric_median": smoothed_weiszfeld(drawn, even(n), steps=8, nu=0.1),
        "centred_clipping": clipped_mean(drawn, even(n), steps=3, tau=2.0),
    }
    assert found.keys() == expected.keys() - {"seed", "n", "d", "f"}
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, err_msg=name)


AVERAGES: dict[str, Any] = {
    "coordinate_median": lambda x, f: median_per_coordinate(x),
    "trimmed_mean": trimmed_mean_per_coordinate,
    "multi_krum": lambda x, f: x[krum_selection(x, f)].mean(axis=0),
    "geometric_median": lambda x, f: smoothed_weiszfeld(x, even(len(x))),
}


@pytest.mark.parametrize("name", AVERAGES)
@given(st.integers(3, 15), st.integers(0, 2**31), st.floats(1, 14))
def test_wrong_points_move_an_average_no_farther_than_the_honest_ones_are_spread(
    name: str, n: int, seed: int, power: float
) -> None:
    rng = np.random.default_rng(seed)
    f = (n - 1) // 3
    honest = rng.normal(size=(n - f, 4))
    wrong = 10**power * rng.normal(size=(f, 4))
    centre = honest.mean(axis=0)
    spread = np.linalg.norm(honest - centre, axis=1).max()
    found = AVERAGES[name](np.concatenate([honest, wrong]), f)
    assert np.linalg.norm(found - centre) <= 4 * spread + 1e-9


def test_centred_clipping_comes_to_the_honest_points() -> None:
    rng = np.random.default_rng(0)
    honest = 5 + rng.normal(size=(8, 3))
    drawn = np.concatenate([honest, np.full((2, 3), -1e12)])
    found = clipped_mean(drawn, even(10), steps=30)
    assert np.linalg.norm(found - honest.mean(axis=0)) < 3


@pytest.mark.parametrize("tau", [1e-300, 1.0, 1e300, None])
def test_a_point_in_the_centre_overflows_nothing(tau: float | None) -> None:
    assert clipped_mean(np.zeros((3, 2)), even(3), tau=tau).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("n", [1, 2])
def test_few_points_have_their_mean(name: str, n: int) -> None:
    drawn = np.array([[1.0, 2.0], [1.0, 2.0]])[:n]
    np.testing.assert_allclose(AVERAGES[name](drawn, 1), [1.0, 2.0])


def test_points_of_zero_have_the_average_zero() -> None:
    zeros = np.zeros((5, 3))
    assert (smoothed_weiszfeld(zeros, even(5)) == 0).all()
    assert (clipped_mean(zeros, even(5)) == 0).all()
    # A majority of zeros is the geometric median, and no division by it fails.
    mostly = np.concatenate([np.zeros((4, 3)), np.ones((1, 3))])
    assert np.linalg.norm(smoothed_weiszfeld(mostly, even(5))) < 1e-6


def test_weights_count_as_so_many_points() -> None:
    drawn = np.random.default_rng(0).normal(size=(4, 3))
    weights = np.array([1.0, 3.0, 1.0, 2.0])
    repeated = np.repeat(drawn, weights.astype(int), axis=0)
    np.testing.assert_allclose(
        smoothed_weiszfeld(drawn, weights, nu=1e-3),
        smoothed_weiszfeld(repeated, np.ones(7), nu=1e-3),
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        clipped_mean(drawn, weights / 7, tau=1.0),
        clipped_mean(repeated, even(7), tau=1.0),
        rtol=1e-10,
    )


def test_buckets_keep_the_weighted_mean_and_hold_each_point_once() -> None:
    drawn = np.random.default_rng(0).normal(size=(7, 3))
    weights = np.arange(1.0, 8.0)
    means, total = bucket_means(drawn, weights, 3, Key(4))
    assert means.shape == (3, 3)
    np.testing.assert_allclose(total @ means, weights @ drawn)
    assert total.sum() == weights.sum()
    again, _ = bucket_means(drawn, weights, 3, Key(4))
    other, _ = bucket_means(drawn, weights, 3, Key(5))
    assert (means == again).all()
    assert (means != other).any()
    single, _ = bucket_means(drawn, weights, 1, Key(4))
    np.testing.assert_allclose(np.sort(single, axis=0), np.sort(drawn, axis=0))

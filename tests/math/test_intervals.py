"""Intervals against scipy, against their definition pair by pair, and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coterie.core.arrays import FloatArray
from coterie.math.intervals import area_interval, mean_interval, mean_of_shares, wilson


@pytest.mark.parametrize(("right", "size"), [(0, 4), (4, 4), (29, 31), (500, 1000)])
def test_wilson_is_that_of_scipy(right: int, size: int) -> None:
    ours = wilson(np.array(right / size), np.array(float(size)))
    theirs = stats.binomtest(right, size).proportion_ci(method="wilson")
    assert np.allclose(ours, (theirs.low, theirs.high), rtol=1e-12, atol=0)


def test_a_mean_is_that_of_scipy() -> None:
    values = np.random.default_rng(0).exponential(3.0, 25)
    ours = mean_interval(values.sum(), (values**2).sum(), np.array(25.0))
    theirs = stats.t.interval(0.95, 24, values.mean(), stats.sem(values))
    assert np.allclose(ours, theirs, rtol=1e-9)


def test_nothing_has_no_interval() -> None:
    none = np.zeros(3)
    assert np.isnan(wilson(none, none)).all()
    assert np.isnan(mean_interval(none, none, np.array([0.0, 1.0, 0.0]))).all()
    assert np.isnan(area_interval(np.zeros((2, 5)), np.ones((2, 5)))).all()
    assert np.isnan(mean_of_shares(none, none)).all()


def histogram(places: np.ndarray, bins: int) -> FloatArray:
    return np.bincount(places, minlength=bins).astype(np.float64)


def test_an_area_counts_as_many_samples_as_its_variance_of_delong() -> None:
    """The variance pair by pair, ties among them."""
    rng = np.random.default_rng(1)
    positive = rng.integers(3, 10, 40)
    negative = rng.integers(0, 7, 32)
    pairs = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    variance = pairs.mean(1).var(ddof=1) / 40 + pairs.mean(0).var(ddof=1) / 32
    area = pairs.mean()
    worth = area * (1 - area) / variance
    assert 32 < worth < 64
    ours = area_interval(histogram(positive, 10), histogram(negative, 10))
    assert np.allclose(ours, wilson(area, worth), rtol=1e-12)


def test_a_perfect_order_of_few_negatives_is_not_certain() -> None:
    """Switzerland of the heart data: 29 patients who are ill, 2 who are not."""
    low, high = area_interval(np.array([0.0, 29.0]), np.array([2.0, 0.0]))
    assert low < 0.55
    assert high == 1.0


@pytest.mark.parametrize(("positives", "negatives"), [(30, 1), (27, 4), (40, 35)])
@pytest.mark.parametrize("area", [0.75, 0.97])
def test_it_holds_the_true_area_as_often_as_it_says(
    positives: int, negatives: int, area: float
) -> None:
    rng = np.random.default_rng(2)
    shift = stats.norm.ppf(area) * np.sqrt(2)
    draws = 600
    bins = 400
    scores = [rng.normal(shift, 1, (draws, positives)), rng.normal(0, 1, (draws, negatives))]
    places = [((one + 5) / 12 * bins).astype(int).clip(0, bins - 1) for one in scores]
    counts = [np.array([histogram(row, bins) for row in one]) for one in places]
    low, high = area_interval(*counts)
    held = ((low <= area) & (area <= high)).mean()
    # Three standard errors of 600 draws.
    assert held > 0.95 - 3 * np.sqrt(0.95 * 0.05 / draws)

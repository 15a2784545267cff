"""Fairness over clients, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.headline import Headline
from coterie.measures.figures import fairness, jain_index, worst_tenth

VALUES = st.lists(st.floats(0.01, 1), min_size=1, max_size=40).map(np.array)


def test_the_worst_tenth_of_twenty_clients_is_two() -> None:
    values = np.linspace(0.05, 1, 20)
    assert worst_tenth(values, Headline()) == pytest.approx((0.05 + 0.1) / 2)
    assert worst_tenth(values, Headline("mae", "lower")) == pytest.approx((0.95 + 1) / 2)


@given(VALUES)
def test_jain_is_of_shares_and_between_its_bounds(values: np.ndarray) -> None:
    index = jain_index(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index(7 * values) == pytest.approx(index)


@given(VALUES)
def test_nobody_is_worse_than_the_worst_tenth_of_equals(values: np.ndarray) -> None:
    found = fairness(values, Headline())
    assert found["worst_tenth"] is not None
    assert values.min() - 1e-12 <= found["worst_tenth"] <= values.mean() + 1e-12
    even = fairness(np.full(len(values), values[0]), Headline())
    assert even["spread"] == pytest.approx(0, abs=1e-12)
    assert even["jain"] == pytest.approx(1)


def test_an_index_that_says_nothing_is_none() -> None:
    assert jain_index(np.zeros(3)) is None
    assert jain_index(np.array([1.0, -0.5])) is None

"""Scores of two labellings, compared with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from coterie.core.arrays import IntArray
from coterie.math.labellings import adjusted_rand_index, normalised_mutual_information


@st.composite
def labellings(draw: st.DrawFn) -> tuple[IntArray, IntArray]:
    """Two labellings of up to 40 clients, each with up to 40 labels."""
    clients = draw(st.integers(2, 40))
    labels = st.lists(st.integers(-3, 36), min_size=clients, max_size=clients)
    return np.array(draw(labels)), np.array(draw(labels))


@given(labellings())
@settings(max_examples=200, deadline=None)
def test_the_scores_are_those_of_scikit_learn(two: tuple[IntArray, IntArray]) -> None:
    assert adjusted_rand_index(*two) == pytest.approx(adjusted_rand_score(*two), abs=1e-12)
    expected = normalized_mutual_info_score(*two)
    assert normalised_mutual_information(*two) == pytest.approx(expected, abs=1e-9)


def test_of_a_hundred_thousand_clients() -> None:
    random = np.random.default_rng(0)
    first = random.integers(0, 40, 100_000)
    second = np.where(random.random(100_000) < 0.3, random.integers(0, 9, 100_000), first)
    expected = adjusted_rand_score(first, second)
    assert adjusted_rand_index(first, second) == pytest.approx(expected, abs=1e-12)
    expected = normalized_mutual_info_score(first, second)
    assert normalised_mutual_information(first, second) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("labels", [[4, 4, 4], [0, 1, 2], [3]])
def test_one_group_and_a_group_for_each_client(labels: list[int]) -> None:
    same = np.array(labels)
    assert adjusted_rand_index(same, same + 1) == 1.0
    assert normalised_mutual_information(same, same + 1) == pytest.approx(1.0)

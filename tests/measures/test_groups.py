"""How far groups are apart in what they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.measures.groups import (
    common_gamma,
    cpd_label,
    cpd_share,
    cpd_vector,
    divergence,
    gamma_of_shares,
    median,
    totals,
)


def test_cpd_golden() -> None:
    pair = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(cpd_label(pair), [0.240206], atol=1e-6)
    np.testing.assert_allclose(cpd_vector(pair), [0.346082], atol=1e-6)


@given(st.integers(2, 6), st.integers(0, 99))
def test_the_closed_form_is_the_kernel_two_sample_estimate(classes: int, seed: int) -> None:
    p, q = np.random.default_rng(seed).dirichlet(np.ones(classes), 2)
    gamma = 0.7
    one_hot = np.eye(classes)
    kernel = np.exp(-gamma * ((one_hot[:, None] - one_hot[None]) ** 2).sum(axis=2))
    exact = p @ kernel @ p - 2 * p @ kernel @ q + q @ kernel @ q
    assert cpd_label(np.stack([p, q]), gamma)[0] == pytest.approx(exact, abs=1e-12)


def test_shares_as_samples_are_the_kernel_two_sample_estimate_of_numbers() -> None:
    held = np.array([[9.0, 1.0, 0.0], [2.0, 2.0, 6.0], [1.0, 0.0, 9.0]])
    shares = held / held.sum(axis=1, keepdims=True)
    gamma = gamma_of_shares(held)
    assert gamma == pytest.approx(0.5 / shares.var())

    def mean(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.mean([np.exp(-gamma * (x - y) ** 2) for x in a for y in b]))

    pairs = [(0, 1), (0, 2), (1, 2)]
    exact = [
        mean(shares[i], shares[i]) + mean(shares[j], shares[j]) - 2 * mean(shares[i], shares[j])
        for i, j in pairs
    ]
    found = cpd_share(held, gamma)
    np.testing.assert_allclose(found, exact, atol=1e-12)
    # The first and the last client hold the same shares, of other classes.
    assert found[1] == pytest.approx(0, abs=1e-12)
    assert found[0] > 0.001


def test_label_counts_and_widths_by_hand() -> None:
    held = totals(np.array([[1, 0], [0, 2], [5, 5]]), np.array([3, 3, -1]))
    assert held.tolist() == [[1.0, 2.0]]
    # Two pairs of groups are (2, -2) apart, the third one is not apart.
    assert divergence(np.array([[3.0, 1.0], [1.0, 3.0], [3.0, 1.0]])) == 16
    assert gamma_of_shares(np.eye(2)) == 2
    assert common_gamma(np.eye(2)) == 0.25


def test_distances_of_no_pairs() -> None:
    assert len(cpd_share(np.ones((1, 3)), 0.5)) == 0
    assert gamma_of_shares(np.ones((3, 2))) == 0.5
    assert median(cpd_label(np.ones((1, 3)))) is None
    assert common_gamma(np.ones((3, 2))) == 0.5
    assert divergence(np.ones((1, 3))) == 0
    assert np.isfinite(cpd_label(np.zeros((2, 3)))).all()

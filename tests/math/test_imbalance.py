"""Imbalance of clusters, and weights that even it out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from coterie.math.imbalance import balancing, ccs, class_shares, cluster_imbalance, reciprocal
from coterie.math.similarity import cosine

counts = arrays(
    np.int64, st.tuples(st.integers(1, 8), st.integers(2, 6)), elements=st.integers(0, 60)
)


def imbalance(histograms: np.ndarray, total: float) -> np.ndarray:
    return np.abs(total / histograms.shape[1] - histograms).sum(axis=1)


@given(counts, st.data())
def test_imbalance_of_a_cluster_is_at_least_what_is_outside_of_it(
    histograms: np.ndarray, data: st.DataObject
) -> None:
    """``I_C >= D - D_C >= 0`` whatever the data, and the weights are a point of the simplex
    (P15)."""
    histograms[:, 0] += 1
    size = histograms.sum(axis=1).astype(float)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=len(size), max_size=len(size)))
    cluster = np.unique(drawn, return_inverse=True)[1]
    found = cluster_imbalance(imbalance(histograms, size.sum()), size, cluster)
    outside = size.sum() - np.bincount(cluster, size)
    assert (found >= outside - 1e-6).all()
    for p in (reciprocal(found, size.sum()), balancing(class_shares(histograms, cluster))):
        assert (p >= 0).all()
        assert p.sum() == pytest.approx(1)


@given(counts)
def test_balancing_is_as_good_as_slsqp(histograms: np.ndarray) -> None:
    histograms[:, 0] += 1
    shares = class_shares(histograms, np.arange(len(histograms)))

    def objective(p: np.ndarray) -> float:
        return float(((shares @ p - 1 / len(shares)) ** 2).sum() + 1e-8 * (p**2).sum())

    n = shares.shape[1]
    other = minimize(
        objective,
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert objective(balancing(shares)) <= other.fun + 1e-9


def test_balancing_is_what_a_convex_solver_finds() -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(3)
    for clusters in (3, 8, 25):
        shares = rng.dirichlet(np.full(10, 0.3), clusters).T
        p = cvxpy.Variable(clusters)
        goal = cvxpy.sum_squares(shares @ p - 0.1) + 1e-8 * cvxpy.sum_squares(p)
        best = cvxpy.Problem(cvxpy.Minimize(goal), [p >= 0, cvxpy.sum(p) == 1]).solve(
            solver=cvxpy.CLARABEL
        )
        ours = balancing(shares)
        assert float(((shares @ ours - 0.1) ** 2).sum() + 1e-8 * (ours**2).sum()) == pytest.approx(
            best, abs=1e-7
        )


def test_clusters_of_which_nobody_reported_its_histogram_are_like_all_others() -> None:
    shares = class_shares(np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([0, 1]))
    assert shares.T.tolist() == [[0.75, 0.25], [0.75, 0.25]]
    assert class_shares(np.zeros((2, 2)), np.array([0, 1])).T.tolist() == [[0.5, 0.5], [0.5, 0.5]]


@given(st.integers(1, 12), st.floats(-1, 1), st.integers(0, 2**32 - 1))
def test_ccs_is_a_partition_whose_pivots_are_near_to_all(
    n: int, threshold: float, seed: int
) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 3)))
    rows[seed % n] = 0  # a zero update is similar to nobody, itself included
    similarity = cosine(rows, rows)
    cluster = ccs(similarity, threshold)
    similarity[seed % n] = similarity[:, seed % n] = -2
    near = (similarity >= threshold - 1e-9) | np.eye(n, dtype=bool)
    assert sorted(set(cluster.tolist())) == list(range(cluster.max() + 1))
    sizes = np.bincount(cluster)
    assert (np.diff(sizes) <= 0).all()
    for c in range(len(sizes)):
        mine = np.flatnonzero(cluster == c)
        assert near[np.ix_(mine, mine)].all(axis=1).any()


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_an_update_of_zeros_is_a_cluster_of_its_own(threshold: float) -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    assert ccs(cosine(rows, rows), threshold).tolist() == [0, 1, 2, 3]


def test_of_two_pivots_with_as_many_neighbours_the_smaller_number_goes_first() -> None:
    similarity = np.eye(4)
    similarity[2, 3] = similarity[3, 2] = similarity[0, 1] = similarity[1, 0] = 1.0
    assert ccs(similarity, 0.5).tolist() == [0, 0, 1, 1]
    line = np.eye(3)
    line[0, 1] = line[1, 0] = line[1, 2] = line[2, 1] = 1.0
    assert ccs(line, 0.5).tolist() == [0, 0, 0]

"""Constrained clustering by similarity: pivots, ties and updates of zeros."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.math.ccs import ccs
from coterie.math.similarity import cosine


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

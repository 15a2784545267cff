"""Distances between rows."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.distance import cdist

from coterie.math.distances import cosine_distance, l1, l2


def test_proximities_are_those_of_scipy() -> None:
    a = torch.randn(9, 5)
    b = torch.randn(4, 5)
    for ours, name in ((l2, "euclidean"), (l1, "cityblock"), (cosine_distance, "cosine")):
        np.testing.assert_allclose(ours(a, b), cdist(a, b, name), atol=1e-12)
        itself = ours(a)
        np.testing.assert_allclose(itself, cdist(a, a, name), atol=1e-7)
        assert (itself == itself.T).all()
        assert not np.diag(itself).any()


def test_equal_rows_are_at_distance_zero() -> None:
    assert not l2((torch.randn(1, 850) * 100).repeat(5, 1)).any()

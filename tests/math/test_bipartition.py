"""Two halves with the least similarity across."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from coterie.math.bipartition import bipartition
from coterie.math.similarity import cosine


@pytest.mark.parametrize("seed", range(20))
def test_single_linkage_is_the_best_bipartition(seed: int) -> None:
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(seed))
    s = cosine(rows, rows)
    half, cross = bipartition(s)
    halves = [list(c) for n in range(1, 7) for c in combinations(range(7), n)]
    best = min(s[np.ix_(c, np.setdiff1d(range(7), c))].max() for c in halves)
    assert cross == pytest.approx(best)
    assert cross == s[~half][:, half].max()
    assert bipartition(s, "complete")[1] >= cross - 1e-12


def test_two_halves_even_where_all_are_equally_alike() -> None:
    half, cross = bipartition(np.ones((5, 5)))
    assert 0 < half.sum() < 5
    assert cross == 1.0

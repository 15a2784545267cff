"""Random projections: how far off their distances are, and that blocks change nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from coterie.core.keys import Key
from coterie.math.distances import l2
from coterie.math.similarity import largest_error, project


def vectors(n: int = 150, d: int = 3000) -> torch.Tensor:
    """Vectors of unlike lengths, some of them with few values."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(n, d, generator=generator) * torch.linspace(0.1, 9, n)[:, None]
    rows[::3, 20:] = 0
    return rows


def ratios(rows: torch.Tensor, values: int, seed: int = 0) -> np.ndarray:
    """Projected distances over exact ones, of all pairs."""
    upper = np.triu_indices(len(rows), 1)
    return l2(project(rows, values, Key(seed)))[upper] / l2(rows)[upper]


@pytest.mark.parametrize("values", [32, 256])
def test_distances_are_off_by_no_more_than_is_stated(values: int) -> None:
    found = ratios(vectors(), values)
    assert abs(found - 1).max() <= largest_error(values, len(found))
    # No fiction either: the bound of a tenth of the pairs is broken.
    assert abs(found - 1).max() > largest_error(values, 1, risk=0.1)


def test_the_standard_error_is_the_stated_one() -> None:
    values = 64
    # One pair under many projections, which are independent.
    pair = vectors(2)
    found = np.concatenate([ratios(pair, values, seed) for seed in range(400)])
    assert found.std() == pytest.approx(1 / math.sqrt(2 * values), rel=0.15)
    assert kstest(values * found**2, "chi2", args=(values,)).pvalue > 0.001


def test_a_block_of_rows_is_projected_as_all_rows_are() -> None:
    # More coordinates than are drawn at once.
    rows = vectors(8, 9000)
    whole = project(rows, 16, Key(3))
    parts = torch.cat([project(rows[:3], 16, Key(3)), project(rows[3:], 16, Key(3))])
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-3)
    assert not torch.equal(project(rows, 16, Key(4)), whole)

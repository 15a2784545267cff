"""Matrices of many updates are made in blocks: the same values, in little memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from coterie.math import similarity
from coterie.math.distances import cosine_distance, l2


def clustered_updates(n: int = 70, d: int = 90, k: int = 3) -> torch.Tensor:
    g = torch.Generator().manual_seed(2)
    centres = torch.randn(k, d, generator=g)
    return centres[torch.arange(n) % k] + 0.05 * torch.randn(n, d, generator=g)


@pytest.mark.parametrize("measure", [similarity.madc, l2, cosine_distance])
def test_blocks_make_the_same_distances(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = clustered_updates()
    updates[5] = updates[8]
    updates[9] = 0
    whole = measure(updates)
    monkeypatch.setattr(similarity, "MANY", 16)
    monkeypatch.setattr(similarity, "TILE", 9)
    monkeypatch.setattr(similarity, "STRIP", 11)
    in_blocks = measure(updates)
    assert np.abs(in_blocks - whole).max() < 1e-12
    assert np.abs(in_blocks - in_blocks.T).max() < 1e-14
    assert abs(in_blocks[5, 8]) < 1e-15
    assert (np.diag(in_blocks) == 0).all()


@pytest.mark.parametrize("shape", [(70, 90), (90, 20), (20, 90)])
def test_directions_of_many_updates_are_the_same(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = clustered_updates(*shape)
    whole = similarity.directions(updates, 3)
    monkeypatch.setattr(similarity, "MANY", 16)
    found = similarity.directions(updates, 3)
    signs = (whole * found).sum(dim=1).sign()
    assert float((whole - signs[:, None] * found).abs().max()) < 1e-5
    assert found.dtype == torch.float64
    gap = np.abs(np.abs(similarity.edc(updates, 3)) - similarity.edc(updates, 3)).max()
    assert gap == 0


def test_directions_that_are_not_there_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "MANY", 4)
    for n, d in ((8, 8), (9, 3)):
        one = torch.zeros(n, d)
        one[:, 0] = torch.arange(n) + 1.0
        found = similarity.directions(one, 3)
        assert found.shape == (3, d)
        assert [round(float(v)) for v in found.norm(dim=1)] == [1, 0, 0]

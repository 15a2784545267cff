"""A few far points do not decide where a tree is cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from coterie.math.clustering import agglomerate
from coterie.math.few_points import cut_without_few
from coterie.measures.scoring import agreement


def clients(n: int, groups: int, far: int, apart: float = 6.0, seed: int = 0) -> np.ndarray:
    """Points of groups in much noise, and points far from all others, each in its own direction."""
    rng = np.random.default_rng(seed)
    centres = np.eye(40)[:groups] * apart
    points = rng.normal(size=(n, 40)) + centres[np.arange(n) % groups]
    return np.concatenate([points, 30 * np.eye(40)[-far:]]) if far else points


@pytest.mark.parametrize("far", [1, 2, 9])
def test_far_points_hide_no_groups(far: int) -> None:
    distance = cdist(*[clients(60, 3, far)] * 2)
    alone = agglomerate(distance)
    assert np.bincount(alone.labels).max() == 60
    found, aside = cut_without_few(distance, "average", "auto")
    assert aside.nonzero()[0].tolist() == list(range(60, 60 + far))
    assert agreement(found.labels, np.arange(60) % 3)["ari"] == 1.0
    assert found.tree.shape == (59, 4)


@pytest.mark.parametrize("threshold", ["auto", "gap"])
@pytest.mark.parametrize("far", [0, 1, 3])
def test_without_hidden_groups_the_cut_is_the_first_one(threshold: str, far: int) -> None:
    for groups, apart in ((1, 0.0), (3, 60.0)):
        distance = cdist(*[clients(48, groups, far, apart)] * 2)
        first = agglomerate(distance, threshold=threshold)  # type: ignore[arg-type]
        found, aside = cut_without_few(distance, "average", threshold)  # type: ignore[arg-type]
        assert not aside.any()
        assert (found.labels == first.labels).all()
        assert (found.tree == first.tree).all()
        assert found.threshold == first.threshold


def test_a_quarter_of_the_points_is_not_set_aside() -> None:
    distance = cdist(*[clients(60, 3, 21)] * 2)
    first = agglomerate(distance)
    found, aside = cut_without_few(distance, "average", "auto")
    assert not aside.any()
    assert (found.labels == first.labels).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_very_few_points(n: int) -> None:
    points = np.arange(float(n))[:, None]
    found, aside = cut_without_few(cdist(points, points), "average", "auto")
    assert len(found.labels) == n
    assert not aside.any()

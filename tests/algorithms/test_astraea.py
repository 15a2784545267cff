"""Astraea: mediators whose clients train in turn."""

from __future__ import annotations

import numpy as np

import coterie as ct
from tests.conftest import blobs
from tests.simulations import plans, play


def test_astraea_weighs_mediators_by_their_samples() -> None:
    population = blobs(clients=6)
    plan = plans(ct.astraea(gamma=2), population, rounds=1)[0]
    (result,) = play(
        ct.astraea(gamma=2),
        population,
        rounds=1,
        measures=[lambda view: {"weights": view.notes["weights"]}],
    )
    sizes = population.sizes("train")
    ends = {
        int(plan.ids[plan.chain == c][-1]): sizes[plan.ids[plan.chain == c]].sum() for c in range(3)
    }
    expected = np.array([ends[id] for id in sorted(ends)]) / sizes.sum()
    np.testing.assert_allclose(result.row["weights"][0], expected)

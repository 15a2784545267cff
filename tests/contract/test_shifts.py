"""Every method with groups goes on when clients swap their data, whether or not they have a group yet."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie.data.population import Population
from coterie.data.shifts import SHIFTS
from tests.conftest import blobs
from tests.contract.test_algorithms import CASES, Make, run

GROUPED = {name: make for name, make in CASES.items() if make(2).groups > 1}


def two_labels_each() -> Population:
    whole = blobs()
    kept = [
        tuple(rows[np.isin(whole.labels[rows], [i % 4, (i + 1) % 4])] for i, rows in enumerate(parts))
        for parts in (whole.train, whole.test)
    ]
    return whole.with_parts(*kept)


@pytest.mark.parametrize("shift", ["swap_all", "swap_part"])
@pytest.mark.parametrize("make", GROUPED.values(), ids=GROUPED.keys())
def test_everybody_may_swap(make: Make, shift: str) -> None:
    population = two_labels_each()
    results = run(make(2), population=population, shift=SHIFTS[shift](p=1.0, pool="all"))
    rows = [r.row for r in results]
    assert all(torch.isfinite(r.groups.models).all() for r in results)
    assert [len(row["shift"]) for row in rows] == [1] * len(rows) or shift == "swap_part"
    assert rows[0]["changed"] > 0
    assert rows[0]["missed"] == 0, "nobody had a group before the first round"
    assert all(row["missed"] <= row["changed"] for row in rows)
    held = np.sort(np.concatenate(results[-1].scene.population.train))
    assert np.array_equal(held, np.sort(np.concatenate(population.train)))

"""Every method goes on when clients swap their data, come, go, or mean something else by their
labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.data.shifts import SHIFTS, make_shift
from coterie.methods.algorithm import as_algorithm
from tests.conftest import SHIFT_OPTIONS, two_labels_each
from tests.contract.conftest import FindPool
from tests.contract.test_algorithms import CASES, Make, every, net_for, run, same, states, timeless
from tests.quick import METHODS

GROUPED = [name for name in METHODS if CASES[name](2).groups > 1]


@pytest.fixture(scope="module")
def population() -> ct.Population:
    return two_labels_each()


@pytest.mark.parametrize("shift", ["swap_all", "swap_part"])
@pytest.mark.parametrize("name", GROUPED)
def test_everybody_may_swap(name: str, shift: str, population: ct.Population) -> None:
    """One method of each family, as a shift knows nothing of methods; all of them go through all shifts
    below."""
    results = run(CASES[name](2), population=population, shift=SHIFTS[shift](p=1.0, pool="all"))
    rows = [r.row for r in results]
    assert all(torch.isfinite(r.groups.models).all() for r in results)
    assert [len(row["shift"]) for row in rows] == [1] * len(rows) or shift == "swap_part"
    assert rows[0]["changed"] > 0
    assert rows[0]["missed"] == 0, "nobody had a group before the first round"
    assert all(row["missed"] <= row["changed"] for row in rows)
    held = np.sort(np.concatenate(results[-1].snapshot.population.train))
    assert np.array_equal(held, np.sort(np.concatenate(population.train)))


@every
def test_every_shift_gives_every_algorithm_the_same_on_both_engines(
    make: Make, population: ct.Population, lasting_pool: FindPool
) -> None:
    """All shifts in one run, each of which does something, whoever is warm."""
    pools = {"swap_all", "swap_part", "rotate_labels"}
    kinds = ["incremental", *(kind for kind in SHIFT_OPTIONS if kind != "incremental")]
    tables = [
        {"kind": kind, **SHIFT_OPTIONS[kind], **({"pool": "all"} if kind in pools else {})}
        for kind in kinds
    ]
    shift = make_shift(tables)
    serial = run(make(2), population=population, shift=shift)
    method = as_algorithm(make(2))
    workers = lasting_pool(net_for(method), 2)
    pool = states(method, population, workers, shift=shift)
    assert {event["shift"] for result in serial for event in result.row["shift"]} >= set(
        SHIFT_OPTIONS
    )
    for a, b in zip(serial, pool, strict=True):
        same(a.groups, b.groups)
        assert timeless(a.row) == timeless(b.row)
        assert torch.isfinite(a.groups.models).all()
        assert a.groups.member.max() < a.groups.k
        assert a.row["migrations"] + a.row["same_group"] <= a.row["drifted"]
        assert a.row["missed"] <= a.row["changed"]
        assert np.isin(a.row["notes"].get("replies", 0), range(1 + int(a.snapshot.present.sum())))

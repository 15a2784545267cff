"""Every method goes on when clients swap their data, come, go, or mean something else by their
labels."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.data.shifts import SHIFTS, make_shift
from coterie.methods.algorithm import as_algorithm
from tests.conftest import SHIFT_OPTIONS, two_labels_each
from tests.contract.conftest import FindPool
from tests.contract.test_algorithms import (
    CASES,
    Make,
    every,
    net_for,
    on_workers,
    run,
    same,
    states,
    timeless,
)
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


def all_shifts() -> Any:
    """All in one run, each of which does something, whoever is warm."""
    pools = {"swap_all", "swap_part", "rotate_labels"}
    kinds = ["incremental", *(kind for kind in SHIFT_OPTIONS if kind != "incremental")]
    tables = [
        {"kind": kind, **SHIFT_OPTIONS[kind], **({"pool": "all"} if kind in pools else {})}
        for kind in kinds
    ]
    return make_shift(tables)


@cache
def shifted(make: Make) -> list[Any]:
    """The serial run with all shifts."""
    return run(make(2), population=two_labels_each(), shift=all_shifts())


@pytest.mark.sampled(12)
@every
def test_every_algorithm_goes_on_through_every_shift(make: Make) -> None:
    results = shifted(make)
    assert {event["shift"] for one in results for event in one.row["shift"]} >= set(SHIFT_OPTIONS)
    for one in results:
        assert torch.isfinite(one.groups.models).all()
        assert one.groups.member.max() < one.groups.k
        assert one.row["migrations"] + one.row["same_group"] <= one.row["drifted"]
        assert one.row["missed"] <= one.row["changed"]
        present = int(one.snapshot.present.sum())
        assert np.isin(one.row["notes"].get("replies", 0), range(1 + present))


@pytest.mark.parametrize("name", on_workers)
def test_workers_hold_what_shifts_have_moved(
    name: str, population: ct.Population, lasting_pool: FindPool
) -> None:
    method = as_algorithm(CASES[name](2))
    workers = lasting_pool(net_for(method), 2)
    pool = states(method, population, workers, shift=all_shifts())
    for a, b in zip(shifted(CASES[name]), pool, strict=True):
        same(a.groups, b.groups)
        assert timeless(a.row) == timeless(b.row)

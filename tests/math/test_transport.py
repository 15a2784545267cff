"""Transport between clients and equal clusters: every solver finds the least cost."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.math.transport import SOLVERS, flow, integer_costs
from tests.refusals import refuses


@given(
    clusters=st.integers(1, 6),
    size=st.integers(1, 7),
    top=st.sampled_from([1, 3, 50, 2**40]),
    seed=st.integers(0, 99),
)
def test_every_solver_finds_the_same_least_cost(
    clusters: int, size: int, top: int, seed: int
) -> None:
    cost = np.random.default_rng(seed).integers(0, top, (clusters * size, clusters), endpoint=True)
    found = {}
    for name in (
        "transport",
        "matching",
        *(["flow"] if importlib.util.find_spec("ortools") else []),
    ):
        label = SOLVERS[name](cost, size)
        assert (np.bincount(label, minlength=clusters) == size).all()
        found[name] = int(cost[np.arange(len(cost)), label].sum())
    assert len(set(found.values())) == 1, found


def test_without_ortools_the_flow_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ortools.graph.python.min_cost_flow", None)
    with refuses(ct.ConfigError, "not-installed", "algorithm.solver"):
        flow(np.zeros((2, 2), np.int64), 1)


def test_whole_costs_keep_ties_and_never_overflow() -> None:
    integers = np.array([[3.0, 7.0, 3.0], [0.0, 5.0, 2.0**30]])
    kept = integer_costs(integers)
    assert kept[0].tolist()[0] == kept[0].tolist()[2] == 0
    assert kept.max() <= 2**40
    assert integer_costs(np.zeros((2, 3))).tolist() == [[0] * 3] * 2
    assert integer_costs(np.array([[1e300, 0.0], [5e-324, 0.0]])).max() <= 2**40

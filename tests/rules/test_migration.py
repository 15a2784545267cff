"""When a client has drifted, and what migration moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.data.shifts import SHIFTS
from coterie.rules.migration import Migrating, Migration, distance
from tests.conftest import SHIFT_OPTIONS, round_of
from tests.contract.test_shifts import two_labels_each
from tests.simulations import play_covering


def test_histogram_distances_of_the_specification() -> None:
    r = np.array([[50, 50, 0, 0]])
    c = np.array([[0, 30, 70, 0]])
    found = {kind: float(distance(c, r, kind)[0]) for kind in ("counts", "per_label", "ordinal")}
    assert found == pytest.approx({"counts": 10.0, "per_label": 35.0, "ordinal": 30.0})
    assert distance(np.array([[0, 0, 50, 50]]), r, "counts")[0] == 0


class Histograms:
    """Clients that do nothing but report their label histograms."""

    drift_reports = None
    classes = 4

    def __init__(self, histograms: Any) -> None:
        self.histograms = np.asarray(histograms, np.float64)

    def run(self, work: Any, ids: Any, *, key: Key, counts: bool) -> Reply:
        return Reply(key.round, ids, {"histogram": self.histograms[ids]}, key.purpose)


def anywhere(groups: Groups, round: Any) -> tuple[Groups, Plan]:
    """An assign rule that knows one group."""
    groups = replace(groups, member=np.zeros_like(groups.member))
    return groups, Plan(round.cohort, np.zeros_like(round.cohort))


@pytest.mark.parametrize(
    ("detector", "course", "noticed"),
    [
        (
            "per_label",
            [[50, 50, 0, 0], [30, 50, 0, 0]],
            [],
        ),  # the loss of a fifth just triggers nothing
        ("per_label", [[50, 50, 0, 0], [29, 50, 0, 0]], [1]),
        ("counts", [[50, 50, 0, 0], [29, 50, 0, 0]], [1]),
        ("per_label", [[50, 50, 0, 0], [0, 50, 50, 0]], [1]),  # other labels in the same numbers
        ("counts", [[50, 50, 0, 0], [0, 50, 50, 0]], []),
        ("ordinal", [[50, 50, 0, 0], [0, 50, 50, 0]], [1]),
        (
            "ordinal",
            [[50, 50, 0, 0], [25, 25, 0, 0]],
            [],
        ),  # half of everything is the same distribution
        ("ordinal", [[50, 50, 0, 0], [31, 69, 0, 0]], []),
        ("ordinal", [[50, 50, 0, 0], [29, 71, 0, 0]], [1]),
        (
            "per_label",
            [[50, 50, 0, 0], [35, 50, 0, 0], [20, 50, 0, 0]],
            [2],
        ),  # small changes add up
        ("per_label", [[50, 50, 0, 0], [90, 90, 20, 0], [90, 90, 20, 0]], [1]),  # noticed once
        (
            "per_label",
            [[50, 50, 0, 0], [100, 100, 0, 0], [60, 100, 0, 0]],
            [1],
        ),  # n is that of the last placement,
        (
            "per_label",
            [[50, 50, 0, 0], [100, 100, 0, 0], [59, 100, 0, 0]],
            [1, 2],
        ),  # when there were 200
    ],
)
def test_when_a_client_has_drifted(
    detector: Any, course: list[list[int]], noticed: list[int]
) -> None:
    rule = Migrating(anywhere, Migration(detector))
    steady = [10, 10, 10, 10]
    groups = Groups(torch.zeros(1, 3), np.zeros(2, np.int64))
    found = []
    for round, histogram in enumerate(course):
        clients = Histograms([steady, histogram])
        groups, plan = rule(groups, round_of(clients, [0, 1], Key(0, round=round)))  # type: ignore[arg-type]
        assert plan.notes["drifted"] == len(plan.notes["drifted_ids"]) == plan.notes["same_group"]
        assert 0 not in plan.notes["drifted_ids"]
        found += [round] * plan.notes["drifted"]
    assert found == noticed


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHIFT_OPTIONS)
def test_every_shift_gives_the_same_on_both_engines(name: str) -> None:
    """Each alone; all of them in one run of every method: tests/contract/test_shifts.py."""
    method = ct.flexcfl(groups=2, alpha=2)
    population = two_labels_each()
    shift = SHIFTS[name](**SHIFT_OPTIONS[name])
    serial, pool = (
        play_covering(method, population, 4, kind, shift=shift) for kind in ("serial", "pool")
    )
    for a, b in zip(serial, pool, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)
        assert np.array_equal(a.groups.member, b.groups.member)
        assert a.row["shift"] == b.row["shift"]
    assert any(result.row["shift"] for result in serial)

"""Grouping by signatures when clients' data drift."""

from __future__ import annotations

import pytest

import coterie as ct
from tests.conftest import two_classes_each
from tests.rules.one_shot_runs import METHODS, MOVING, Run, each_moving, exchanged
from tests.simulations import LossyEngine


@pytest.mark.parametrize("name", METHODS)
def test_drifted_clients_send_a_new_signature(name: str) -> None:
    population = two_classes_each()
    for one, expected in ((METHODS[name](), [0, 1]), (MOVING[name], [1, 0])):
        run = Run(one, population)
        run.step([0, 1])
        run.hold(exchanged(population))
        notes = run.step([2])
        assert run.member[:2] == expected
        assert run.member[2:] == population.planted[2:].tolist()
    assert (notes["drifted"], notes["migrations"], run.state.k) == (2, 2, 2)


@each_moving
def test_a_drifted_client_that_is_not_heard_is_asked_until_it_is(method: ct.Method) -> None:
    population = two_classes_each()
    run = Run(method, population)
    run.step([0, 1], able=list(range(10)))
    lossy = LossyEngine(run.engine, "newcomers", [0])
    run.reach(lossy)
    run.hold(exchanged(population))
    notes = run.step([10, 11])
    assert (notes["drifted"], notes["migrations"], notes["newcomers"], run.member[:2]) == (
        2,
        1,
        2,
        [0, 0],
    )
    lossy.lost = []
    assert [run.step([2])["drifted"] for _ in range(2)] == [1, 0]
    assert run.member[:2] == [1, 0]


@each_moving
def test_a_client_that_has_left_is_not_asked_whether_its_data_drifted_or_not(
    method: ct.Method,
) -> None:
    population = two_classes_each()
    run = Run(method, population)
    run.step([0, 1])
    run.hold(exchanged(population))
    assert run.step([2], able=list(range(1, 12)))["drifted_ids"].tolist() == [1]
    assert run.step([2])["drifted_ids"].tolist() == [0]


@pytest.mark.parametrize("lost_in", [0, 1])
def test_a_histogram_that_is_lost_is_no_drift(lost_in: int) -> None:
    run = Run(MOVING["fedclust"], two_classes_each())
    lossy = LossyEngine(run.engine, "", [3])
    run.reach(lossy)
    drifted = []
    for round in range(4):
        lossy.request = "histogram" if round == lost_in else ""
        drifted.append(run.step([0, 1])["drifted"])
    assert drifted == [0, 0, 0, 0]


@each_moving
def test_when_all_drift_at_once_groups_stay(method: ct.Method) -> None:
    """More of the same data is a drift by counts, but no reason to begin anew."""
    population = two_classes_each()
    early = population.with_parts(tuple(part[:8] for part in population.train), population.test)
    run = Run(method, early)
    run.step([0, 1])
    run.hold(population)
    assert run.step([0, 1])["drifted"] == 12
    assert (run.state.k, run.member) == (2, population.planted.tolist())

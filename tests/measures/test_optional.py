"""Measures that a run takes where it is asked to."""

from __future__ import annotations

import pytest

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.measures.groups import common_gamma, cpd_vector, median
from coterie.measures.optional import MEASURES, make_measures
from tests.conftest import blobs
from tests.faults import Faults
from tests.simulations import ONE_EPOCH, plans, play, uniform


def test_the_run_measure_compares_the_groups_of_the_round() -> None:
    measure = MEASURES["cpd"](ONE_EPOCH, ct.fedavg())
    rows = [
        r.row["cpd"]
        for r in play(ct.fedgsp(growth="linear", alpha=1.0, beta=2, kappa=1.0), measures=[measure])
    ]
    assert [row["groups"] for row in rows] == [2, 4, 6, 8]
    assert all(row["label"] >= 0 and row["vector"] >= 0 and row["divergence"] >= 0 for row in rows)
    alone = play(ct.fedavg(), measures=[measure], rounds=1)[0].row["cpd"]
    assert alone["groups"] == 6
    plan = plans(ct.fedavg(), rounds=1)[0]
    held = blobs().histograms()
    assert alone["vector"] == pytest.approx(median(cpd_vector(held[plan.ids], common_gamma(held))))
    empty = play(ct.fedavg(), measures=[measure], rounds=1, faults=Faults(lose=1.0))[0].row
    assert empty["skipped"]
    assert empty["cpd"]["groups"] == 6


def test_balance_of_a_chain_is_that_of_all_its_clients() -> None:
    measure = MEASURES["balance"](ONE_EPOCH, ct.fedavg())
    population = blobs(clients=6)
    (row,) = (
        r.row["balance"]
        for r in play(ct.astraea(gamma=2), population, rounds=1, measures=[measure])
    )
    assert row["plain"]["b"] == pytest.approx(row["all"]["b"])
    assert row["weighted"]["b"] == pytest.approx(
        row["all"]["b"]
    )  # mediators count by their samples


def test_a_round_without_replies_has_no_divergence() -> None:
    (result,) = play(
        ct.fedavg(),
        measures=[MEASURES["theory"](ONE_EPOCH, ct.fedavg())],
        rounds=1,
        faults=Faults(lose=1.0),
    )
    assert result.row["theory"] == dict.fromkeys(
        ("bound", "bound_one", "divergence", "divergence_one")
    )


@pytest.mark.parametrize("name", ["rfedavg", "rfedavg_kmeans", "rfedavg_optimal"])
def test_balance_is_measured(name: str) -> None:
    method = ALGORITHMS[name]()
    five = uniform(blobs(), 5)
    measures = make_measures(("balance",), ONE_EPOCH, ct.fedavg())
    for result in play(method, sampler=five, measures=measures):
        found = result.row["balance"]
        assert sum(found["weighted"]["b"]) == pytest.approx(1)
        assert found["all"]["beta"] >= 1
        assert 1 <= found["clusters"] <= 5
    if name == "rfedavg_optimal":
        assert found["weighted"]["distance"] <= found["plain"]["distance"] + 1e-9


def test_balance_of_plain_averaging_is_that_of_the_data() -> None:
    five = uniform(blobs(), 5)
    measures = make_measures(("balance",), ONE_EPOCH, ct.fedavg())
    for result in play(ct.fedavg(), sampler=five, measures=measures):
        found = result.row["balance"]
        assert found["weighted"]["b"] == pytest.approx(found["plain"]["b"])
        assert "clusters" not in found
    everything_lost = Faults(lose=1.0)
    (lost,) = play(ct.fedavg(), rounds=1, sampler=five, faults=everything_lost, measures=measures)
    assert lost.row["balance"] is None

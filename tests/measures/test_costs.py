"""FedGSP's cost formulas: the paper's figures, and what follows from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.measures.costs import Costs, constant, growing, rounds_to_target
from tests.conftest import blobs, small_net

PAPER = Costs()


@pytest.mark.parametrize(
    ("rounds", "groups", "computation", "communication", "traffic"),
    [
        (34, growing("log", 2.0, 10, 368), 10.19, 2_669.2, 189.2),
        (470, constant(368), 18.56, 36_898.1, 2_615.2),
    ],
    ids=["FedGSP", "FedAvg"],
)
def test_the_papers_figures(
    rounds: int, groups: object, computation: float, communication: float, traffic: float
) -> None:
    assert PAPER.computation(rounds, groups) == pytest.approx(computation, abs=0.005)
    assert PAPER.communication(rounds) == pytest.approx(communication, abs=0.05)
    assert PAPER.traffic(rounds) / 1e9 == pytest.approx(traffic, abs=0.05)


def test_93_percent_less_time_and_traffic_than_fedavg() -> None:
    ours = PAPER.computation(34, growing("log", 2.0, 10, 368)) + PAPER.communication(34)
    theirs = PAPER.computation(470, constant(368)) + PAPER.communication(470)
    assert 1 - ours / theirs == pytest.approx(0.927, abs=0.001)
    assert 1 - PAPER.traffic(34) / PAPER.traffic(470) == pytest.approx(0.928, abs=0.001)


@given(st.integers(1, 60), st.integers(1, 400), st.floats(0.01, 1))
def test_more_groups_train_faster_and_more_rounds_cost_more(
    rounds: int, groups: int, kappa: float
) -> None:
    costs = Costs(kappa=kappa)
    assert (
        costs.computation(rounds + 1, constant(groups))
        >= costs.computation(rounds, constant(groups)) * 0.999
    )
    chains = (costs.computation(rounds, constant(m)) for m in (groups, min(368, 2 * groups)))
    slow, fast = chains
    assert (
        fast <= slow + rounds * costs.flops_aggregate * kappa * groups / costs.flops_second + 1e-9
    )
    assert costs.communication(2 * rounds) == pytest.approx(2 * costs.communication(rounds))
    assert costs.traffic(rounds) == pytest.approx(costs.communication(rounds) * 567e6 / 8)


def test_the_measured_model_size_is_an_option() -> None:
    leaf = Costs(model_bytes=4 * 6_603_710)
    assert leaf.traffic(34) / PAPER.traffic(34) == pytest.approx(26.41484 / 25.2)
    population = blobs()
    costs = Costs.measured(population, parameters=92, kappa=0.5)
    assert (costs.clients, costs.samples, costs.model_bytes) == (
        12,
        population.sizes("train").mean(),
        368,
    )


def test_rounds_to_target_of_a_run() -> None:
    result = ct.run(
        ct.fedavg(),
        data=blobs(),
        model=small_net(),
        rounds=3,
        engine="serial",
        train={"evaluate_every": 2},
    )
    assert rounds_to_target(result.rows, 0.0) == 2
    assert rounds_to_target(result.rows, 1.1) is None

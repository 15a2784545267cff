"""Models scored before a round's update, as real clients score what they are sent to train."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.data.population import Population
from coterie.errors import ConfigError
from tests.refusals import refuses

OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"groups": 2, "alpha": 1} for name in ("fedgroup", "fedgrouprox", "flexcfl")},
    **{name: {"groups": 2} for name in ("ifca", "fesem", "fedsoft")},
    "fedgsp": {"beta": 2},
    "naive_gsp": {"groups": 2},
    "pacfl": {"vectors": 1},
    "flux": {"warmup_rounds": 1},
    "astraea": {"gamma": 2},
    "flhc": {"warmup_rounds": 1},
    "fedbn": {"layers": ["1.bias"]},
}
MODELS = dict.fromkeys(("fedfusion", "fedclust", "fedper", "fedrep", "lg_fedavg"), "mlp")
SCORES = ("accuracy", "accuracy_all", "accuracy_mean", "accuracy_groups", "accuracy_fairness")
ROUNDS = 4


@pytest.fixture(scope="module")
def digits() -> Population:
    partition = {"kind": "planted", "clients": 4, "groups": 2, "size": 60}
    return ct.load("digits", partition=partition, seed=1)


def rows_of(name: str, digits: Population, **options: Any) -> ct.Result:
    return ct.run(
        ALGORITHMS[name](**OPTIONS.get(name, {})),
        data=digits,
        rounds=ROUNDS,
        clients_per_round=4,
        seed=1,
        model=MODELS.get(name, "mclr"),
        local=ct.Solver(epochs=1, lr=0.1),
        engine="serial",
        **options,
    )


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_round_has_the_figures_that_the_round_before_left(name: str, digits: Population) -> None:
    after = rows_of(name, digits)
    before = rows_of(name, digits, evaluate={"order": "before"})
    assert torch.equal(before.state.models, after.state.models)
    assert [row["scored"] for row in before.rows] == ["before"] * (ROUNDS - 1) + ["after"]
    assert "scored" not in after.rows[0]
    past_rows = after.rows[:-2]
    # A client of FedALA fits its model before it predicts, with draws of the round.
    if name == "fedala":
        past_rows = []
    for past, row in zip(past_rows, before.rows[1:-1], strict=name != "fedala"):
        assert {key: row[key] for key in SCORES} == {key: past[key] for key in SCORES}
    # The run ends with the figures of the models that it leaves.
    last = before.rows[-1]
    assert {key: last[key] for key in SCORES} == {key: after.rows[-1][key] for key in SCORES}


def test_other_scores_are_of_what_a_round_left(digits: Population) -> None:
    with refuses(ConfigError, "in-conflict", "evaluate.local"):
        rows_of("fedavg", digits, evaluate={"order": "before", "local": True})

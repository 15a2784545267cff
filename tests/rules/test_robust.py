"""Robust rules in the slot ``aggregate`` of every method with groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.engines.attacks import sign_flip
from coterie.errors import ConfigError
from coterie.methods.algorithm import method_of
from coterie.methods.override import override
from coterie.rules.robust import (
    WEIGHS,
    RobustAverage,
    coordinate_median,
    geometric_median,
    krum,
    trimmed_mean,
)
from coterie.rules.weighing import Aggregate, by_size, evenly, mean, weighted_mean
from tests.contract.cases import contract_cases
from tests.refusals import refuses
from tests.same_results_cases import planted_population, small_network

ROBUST = [name for name in WEIGHS if name not in ("by_size", "evenly")]
KEY = Key(0)


def replies(deltas: Any, row: Any) -> Updates:
    delta = torch.tensor(deltas, dtype=torch.float32)
    n = len(delta)
    return Updates(np.arange(n), np.array(row), delta, np.ones(n), np.zeros(n))


def test_each_group_has_the_average_of_its_own_replies() -> None:
    updates = replies([[1.0], [2.0], [99.0], [7.0]], [0, 0, 0, 2])
    groups = Groups(torch.zeros(3, 1), np.zeros(4, np.int64))
    round = Round(0, KEY, updates.ids, None)  # type: ignore[arg-type]
    weights = evenly(groups, updates, round)
    plan = Plan(updates.ids, updates.row)
    _, moved, trained, _ = coordinate_median().combine(groups, updates, weights, plan, round)
    # Nobody trained model 1.
    assert moved.tolist() == [[2.0], [0.0], [7.0]]
    assert trained.tolist() == [True, False, True]


def test_a_reply_that_counts_for_another_model_is_seen_from_there() -> None:
    """As in soft groups: the robust average of one reply, or of equal ones, is the mean."""
    models = torch.tensor([[0.0, 0.0], [10.0, 4.0]])
    groups = Groups(models, np.zeros(2, np.int64))
    updates = replies([[1.0, 1.0], [1.0, 1.0]], [0, 0])
    weights = np.array([[0.5, 0.5], [0.5, 0.5]])
    for name in ROBUST:
        rule = WEIGHS[name](**({"steps": 60} if name == "centred_clipping" else {}))
        assert isinstance(rule, Aggregate)
        plan = Plan(updates.ids, updates.row)
        round = Round(0, KEY, updates.ids, None)  # type: ignore[arg-type]
        found = rule.combine(groups, updates, weights, plan, round).total
        np.testing.assert_allclose(found, weighted_mean(weights, updates, models), atol=1e-6)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(contract_cases()))
def test_every_method_runs_with_a_robust_rule(name: str) -> None:
    method = contract_cases()[name](2)
    if method_of(method) is None:
        with refuses(ConfigError, "does-not-fit", "weigh"):
            override(method, name, weigh=trimmed_mean())
        return
    result = ct.run(
        method,
        data=planted_population(),
        model=small_network(),
        local=ct.Solver(epochs=1, batch_size=10, lr=0.1),
        rounds=2,
        clients_per_round=8,
        engine="serial",
        weigh=geometric_median(steps=4),
    )
    assert torch.isfinite(result.state.models).all()
    assert all(not row["skipped"] for row in result.rows)


def test_a_robust_rule_weighs_as_the_method_does() -> None:
    made = override(ct.ifca(), weigh=krum())
    assert isinstance(made, ct.Method)
    assert isinstance(made.aggregate.combine, RobustAverage)
    assert made.weigh is evenly
    fedavg = override(ct.fedavg(), weigh=krum())
    assert isinstance(fedavg, ct.Method)
    assert isinstance(fedavg.aggregate.combine, RobustAverage)
    assert fedavg.weigh is by_size
    # A plain rule takes its place.
    plain = override(made, weigh=by_size)
    assert isinstance(plain, ct.Method)
    assert plain.weigh is by_size
    assert plain.aggregate == mean()


def settings(**more: Any) -> dict[str, Any]:
    data = ct.load("digits", partition={"kind": "iid", "clients": 20})
    local = ct.Solver(epochs=2, lr=0.1)
    common = {"data": data, "model": "mclr", "rounds": 4, "clients_per_round": 20}
    return {**common, "local": local, "engine": "serial", **more}


def test_rules_hold_against_a_share_of_attackers_that_ends_the_mean() -> None:
    attack = sign_flip(share=0.2, factor=10.0)
    common = settings(rounds=8)
    honest = ct.run(ct.fedavg(), **common).accuracy[-1]
    mean = ct.run(ct.fedavg(), attack=attack, bounds={"enabled": False}, **common).accuracy[-1]
    assert mean < honest - 0.3
    for name in ROBUST:
        found = ct.run(ct.fedavg(), attack=attack, weigh=name, bounds={"enabled": False}, **common)
        assert found.accuracy[-1] > honest - 0.04, name


def test_buckets_are_drawn_from_the_round() -> None:
    rule = trimmed_mean(bucket=2)
    one, two, other = (
        ct.run(ct.fedavg(), weigh=rule, **settings(seed=seed)).state.models for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_table_of_a_configuration() -> None:
    from coterie.experiment import check
    from coterie.runs.fitting import make_method

    tables: dict[str, Any] = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        "model": {"name": "mclr"},
        "train": {"rounds": 2},
        "algorithm": {"name": "fedgroup", "groups": 2},
    }
    assert "weigh" not in check(tables).resolved()
    made = make_method(check(tables | {"weigh": {"name": "trimmed_mean", "bucket": 2}}))
    assert isinstance(made, ct.Method)
    assert isinstance(made.aggregate.combine, RobustAverage)
    assert made.aggregate.combine.bucket == 2
    with refuses(ConfigError, "out-of-range", "weigh.share"):
        check(tables | {"weigh": {"name": "krum", "share": 0.5}})

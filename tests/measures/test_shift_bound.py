"""The bound of FedGroup's eq. 22 in the rows of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import coterie as ct
from coterie.core.groups import Groups
from coterie.core.solver import Solver
from coterie.measures.optional import theory
from coterie.measures.theory import Constants, bound
from coterie.methods.method import Method

SOLVER = Solver(epochs=2, batch_size=10, lr=0.05)


def measured(method: Method) -> tuple[dict[str, Any], Groups, ct.Population]:
    data = ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})
    states: list[Groups] = []
    result = ct.run(
        method,
        data=data,
        model="mclr",
        local=SOLVER,
        rounds=2,
        engine="serial",
        on_round=lambda result: states.append(result.groups),
        train={"measures": [theory(SOLVER, method)]},
    )
    return result.rows[-1]["theory"], states[-1], data


@pytest.mark.parametrize("rule", ["normalized_difference", "convex"])
def test_the_bound_has_the_shift_of_the_rule_that_runs(rule: Any) -> None:
    method = ct.fedgroup(groups=2, alpha=3, eta_g=0.5, inter_group_rule=rule)
    found, groups, data = measured(method)
    assert method.inter_group is not None
    shift = method.inter_group.largest_shift(groups.models)  # type: ignore[attr-defined]
    expected = bound(found["divergence"], Constants.of(data), SOLVER, shift)
    assert found["bound"] == pytest.approx(expected)
    assert shift > 0


def test_without_inter_group_aggregation_it_is_eq_19() -> None:
    found, _, data = measured(ct.fedgroup(groups=2, alpha=3))
    expected = bound(found["divergence"], Constants.of(data), SOLVER)
    assert found["bound"] == pytest.approx(expected)


def test_flexcfl_has_the_bound_of_its_own_rule_by_default() -> None:
    # The rule is not in the configuration, so it cannot be read there.
    method = ct.flexcfl(groups=2, alpha=3, eta_g=0.5)
    found, groups, data = measured(method)
    assert method.inter_group is not None
    shift = method.inter_group.largest_shift(groups.models)  # type: ignore[attr-defined]
    assert shift != 0.5
    assert found["bound"] == pytest.approx(
        bound(found["divergence"], Constants.of(data), SOLVER, shift)
    )


def test_a_rule_of_the_users_own_has_no_known_bound() -> None:
    method = replace(ct.fedgroup(groups=2, alpha=3), inter_group=lambda groups: groups)
    found, _, _ = measured(method)
    assert found["bound"] is None
    assert found["bound_one"] is not None

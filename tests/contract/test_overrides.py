"""Every method with every value of every table that a run can have: it runs, or is refused in
lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.errors import CoterieError
from coterie.experiment.tables import table_names
from tests.contract.overrides import ELSEWHERE, overrides
from tests.contract.test_tasks import data_of, network_of

OVERRIDES = overrides()
# Two rounds of twelve clients, six of which take part: 30 ms.
FIXED: dict[str, dict[str, Any]] = {
    "train": {"rounds": 2, "clients_per_round": 6},
    "local": {"epochs": 1, "batch_size": 8, "lr": 0.05},
}


def run(method: str, tables: dict[str, dict[str, Any]]) -> ct.Result:
    """A run of a method with its defaults, and with these tables."""
    task = tables.get("task", {}).get("kind", "classification")
    given = {**FIXED, "task": {"kind": task}, **tables}
    for name, values in FIXED.items():
        given[name] = {**values, **tables.get(name, {})}
    return ct.run(method, data=data_of(task), model=network_of(task), engine="serial", **given)


def outcome(method: str, tables: dict[str, dict[str, Any]]) -> str:
    """``ran``, or ``refused``; another error than Coterie's own passes, with its case."""
    try:
        result = run(method, tables)
    except CoterieError:
        return "refused"
    except Exception as error:
        error.add_note(f"{method} with {tables}")
        raise
    assert torch.isfinite(result.state.models).all(), f"{method} with {tables}"
    for row in result.rows:
        figures = [value for value in row.values() if isinstance(value, float)]
        assert np.isfinite(figures).all(), f"{method} with {tables}: {row}"
    return "ran"


def test_every_table_has_values() -> None:
    found = {table for tables in OVERRIDES.values() for table in tables}
    assert found == set(table_names()) - set(ELSEWHERE)


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERRIDES)
def test_every_method_runs_with_a_value_or_refuses_it(name: str) -> None:
    for method in ALGORITHMS:
        outcome(method, OVERRIDES[name])

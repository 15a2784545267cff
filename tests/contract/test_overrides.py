"""Every method with every value of every table that a run can have, and many at once: it runs, or is
refused in lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.errors import CoterieError
from coterie.experiment.tables import CHOICES, table_names
from tests.contract.overrides import ELSEWHERE, choices, overrides
from tests.contract.test_tasks import data_of, network_of

OVERRIDES = overrides()
METHODS = dict(choices("algorithm"))
# Two rounds of twelve clients, six of which take part: 30 ms.
FIXED: dict[str, dict[str, Any]] = {
    "engine": {"name": "serial"},
    "task": {"kind": "classification"},
    "train": {"rounds": 2, "clients_per_round": 6},
    "local": {"epochs": 1, "batch_size": 8, "lr": 0.05},
}


# Rounds in which clients are few, or silent, or gone.
ROUNDS: tuple[dict[str, dict[str, Any]], ...] = (
    {},
    {"train": {"clients_per_round": 1}},
    {"train": {"clients_per_round": 1, "sampler": "poisson", "rounds": 4}},
    {"availability": {"kind": "random", "share": 0.001}},
    {"availability": {"kind": "random", "share": 0.1}, "train": {"rounds": 4}},
    {"reply_times": {"median": 1000.0, "deadline": 0.001}},
    {"reply_times": {"spread": 1.0, "deadline": 0.3}, "train": {"rounds": 4}},
    {"engine": {"name": "serial", "round_timeout": 1e-9}},
    {"evaluate": {"unseen": tuple(range(11))}},
    {"shift": {"kind": "departures", "round": 1, "count": 11}},
)


def one_client(data: ct.Population) -> ct.Population:
    return ct.Population(data.x, data.y, data.train[:1], data.test[:1], data.classes)


def one_holds_samples(data: ct.Population) -> ct.Population:
    train = [np.empty(0, np.int64)] * data.clients
    train[3] = data.train[3]
    return data.with_parts(tuple(train), data.test)


def one_sample_each(data: ct.Population) -> ct.Population:
    return data.with_parts(
        tuple(rows[:1] for rows in data.train), tuple(rows[:1] for rows in data.test)
    )


def nothing_to_score(data: ct.Population) -> ct.Population:
    return data.with_parts(data.train, tuple(rows[:0] for rows in data.test))


HELD: tuple[Callable[[ct.Population], ct.Population], ...] = (
    lambda data: data,
    one_client,
    one_holds_samples,
    one_sample_each,
    nothing_to_score,
)


def merged(
    some: Mapping[str, dict[str, Any]], others: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The tables of both, with the keys of both."""
    names = {*some, *others}
    return {name: {**some.get(name, {}), **others.get(name, {})} for name in names}


def outcome(
    method: str | Mapping[str, Any],
    tables: Mapping[str, dict[str, Any]],
    held: Callable[[ct.Population], ct.Population] = HELD[0],
) -> str:
    """``ran``, or ``refused``; another error than Coterie's own passes, with its case."""
    given = merged(FIXED, tables)
    task = given["task"]["kind"]
    try:
        result = ct.run(method, data=held(data_of(task)), model=network_of(task), **given)
    except CoterieError:
        return "refused"
    except Exception as error:
        error.add_note(f"{method} with {tables}, {held}")
        raise
    assert torch.isfinite(result.state.models).all(), f"{method} with {tables}, {held}"
    for row in result.rows:
        figures = [value for value in row.values() if isinstance(value, float)]
        assert np.isfinite(figures).all(), f"{method} with {tables}, {held}: {row}"
    return "ran"


def test_every_table_has_values() -> None:
    found = {table for tables in OVERRIDES.values() for table in tables}
    assert found == set(table_names()) - set(ELSEWHERE)


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERRIDES)
def test_every_method_runs_with_a_value_or_refuses_it(name: str) -> None:
    for method in ALGORITHMS:
        outcome(method, OVERRIDES[name])


@pytest.mark.slow
@pytest.mark.parametrize("method", ALGORITHMS)
def test_every_value_of_every_option_of_a_method_runs_or_is_refused(method: str) -> None:
    for table in METHODS.values():
        if table["name"] == method:
            for round in ROUNDS:
                outcome(table, round)


def random_outcome(rng: random.Random) -> str:
    """That of a method with an option, some tables, rounds and data, all drawn."""
    tables = rng.choice(ROUNDS)
    for name in rng.sample(sorted(OVERRIDES), rng.choice([1, 2, 2, 3, 4])):
        (table,) = OVERRIDES[name]
        # Options of one choice belong to no other one.
        if table not in tables or table not in CHOICES:
            tables = merged(tables, OVERRIDES[name])
    return outcome(rng.choice(list(METHODS.values())), tables, rng.choice(HELD))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_configurations_run_or_are_refused(seed: int) -> None:
    rng = random.Random(seed)
    found = [random_outcome(rng) for _ in range(150)]
    assert {"ran", "refused"} == set(found)

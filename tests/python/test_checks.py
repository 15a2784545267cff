"""Arguments of `coterie.run` that are of another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.experiment.tables import CHOICES, record_types
from tests.conftest import blobs, small_net
from tests.refusals import refuses

PLACES = {
    "data": "data",
    "model": "model",
    "algorithm": "method",
    "shift": "shift",
}


def run(method: Any = None, **options: Any) -> ct.Result:
    given = {"data": blobs(), "model": small_net(), "rounds": 1, "engine": "serial", **options}
    return ct.run(ct.fedavg() if method is None else method, **given)


@pytest.mark.parametrize("name", sorted({*CHOICES, *record_types()}))
@pytest.mark.parametrize("value", [1, 0.5, object()], ids=["integer", "number", "object"])
def test_a_value_of_another_type_is_refused_in_one_line(name: str, value: Any) -> None:
    options = {PLACES.get(name, name): value}
    with pytest.raises(ct.ConfigError, match=f"^{name}: wrong type, got .*; expected .*$"):
        run(**options)


def test_a_mapping_is_the_table_of_a_record() -> None:
    assert run(local={"epochs": 1}, evaluate={"adapt": {"epochs": 2}}).rows
    with refuses(ct.ConfigError, "unknown-key", "local.epoch"):
        run(local={"epoch": 1})


def test_a_factory_is_no_method_before_it_is_called() -> None:
    with refuses(ct.ConfigError, "wrong-type", "algorithm"):
        run(ct.fedavg)


def test_all_wrong_arguments_are_said_at_once() -> None:
    with pytest.raises(ct.ConfigError) as refused:
        run(local=3, privacy=8.0)
    assert {line.split(":")[0] for line in str(refused.value).splitlines()} == {"local", "privacy"}


def test_an_argument_in_the_wrong_place_says_where_it_belongs() -> None:
    with refuses(ct.ConfigError, "unknown-key", "over_selection"):
        run(over_selection=2.0)


@pytest.mark.parametrize(
    "beside",
    [
        {"rounds": 7, "privacy": {"epsilon": 8.0}, "nonsense": 3},
        {"data": {"source": "digits"}},
        {"seed": 0},
        {"engine": "pool"},
        {"asynchronous": {}},
    ],
)
def test_beside_an_experiment_nothing_is_dropped(beside: dict[str, Any]) -> None:
    tables = {"train": {"rounds": 1}, "model": small_net(), "engine": {"name": "serial"}}
    experiment = ct.Experiment.from_tables(
        {**tables, "data": blobs(), "algorithm": {"name": "fedavg"}}
    )
    with pytest.raises(ct.ConfigError) as refused:
        ct.run(experiment, **beside)
    found = {(one.code, one.path) for one in refused.value.problems}
    assert found == {("in-conflict", name) for name in beside}


def test_a_method_is_said_once() -> None:
    with refuses(ct.ConfigError, "in-conflict", "algorithm"):
        run(algorithm="ifca")


def test_an_unknown_argument_is_refused_whatever_its_value() -> None:
    with refuses(ct.ConfigError, "unknown-key", "nonsense"):
        run(nonsense=None)


def test_numbers_of_numpy_are_numbers() -> None:
    three = np.int64(3)
    train = {"evaluate_every": three, "evaluate_loss": np.bool_(True)}
    engine = {"name": "serial", "threads": np.int64(1)}
    numpy = run(rounds=three, clients_per_round=three, seed=three, train=train, engine=engine)
    train = {"evaluate_every": 3, "evaluate_loss": True}
    plain = run(rounds=3, clients_per_round=3, seed=3, train=train)
    assert numpy.scores == plain.scores
    partition = {"kind": "iid", "clients": three}
    assert ct.load("digits", partition=partition).clients == 3

"""Arguments of `coterie.run` that are of another type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.config.schema import table_of
from coterie.core.availability import Availability
from coterie.core.reply_times import ReplyTimes
from coterie.experiment import Training
from coterie.experiment.tables import CHOICES, record_types
from coterie.methods.buffered import Buffering
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
    with refuses(ct.ConfigError, "wrong-type", name) as caught:
        run(**options)
    assert "\n" not in str(caught.value)


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
    codes = dict.fromkeys(beside, "in-conflict") | {"nonsense": "unknown-key"}
    assert found == {(codes[name], name) for name in beside}


def test_a_method_is_said_once() -> None:
    with refuses(ct.ConfigError, "in-conflict", "algorithm"):
        run(algorithm="ifca")


def test_an_unknown_argument_is_refused_whatever_its_value() -> None:
    with refuses(ct.ConfigError, "unknown-key", "nonsense"):
        run(nonsense=None)


@pytest.mark.parametrize(
    "given",
    [
        {"clients_per_round": 50},
        {"train": {"clients_per_round": 50}},
        {"train": Training(rounds=1, clients_per_round=50)},
        {"train": {"clients_per_round": 20}},
    ],
)
def test_more_clients_a_round_than_there_are_is_refused(given: dict[str, Any]) -> None:
    table = {"source": "digits", "partition": {"kind": "iid", "clients": 6}}
    for data in (blobs(clients=6), table):
        with refuses(ct.ConfigError, "out-of-range", "train.clients_per_round"):
            run(data=data, model="mclr", **given)


@pytest.mark.parametrize("train", [None, {}, Training(rounds=1)])
@pytest.mark.parametrize("asynchronous", [None, {}, Buffering()])
def test_defaults_are_at_most_what_few_clients_allow(train: Any, asynchronous: Any) -> None:
    result = run(data=blobs(clients=6), train=train, asynchronous=asynchronous)
    assert result.rows[0]["clients_assigned"] == 6


def test_a_buffer_that_is_set_is_never_lowered() -> None:
    few = {"data": blobs(clients=6)}
    for rule in ({"buffer": 10}, {"buffer": 7}, Buffering(buffer=7)):
        with refuses(ct.ConfigError, "out-of-range", "asynchronous.buffer"):
            run(asynchronous=rule, **few)
    with refuses(ct.ConfigError, "out-of-range", "asynchronous.buffer"):
        run(asynchronous={"buffer": 4}, clients_per_round=3)


@pytest.mark.parametrize(
    ("path", "record"),
    [
        ("asynchronous.concurrency", Buffering(buffer=2, concurrency=2)),
        ("asynchronous.times", Buffering(buffer=2, times=ReplyTimes(median=9.0))),
        ("availability.names", Availability(names=("a",))),
    ],
)
def test_a_value_that_a_run_fills_in_is_refused(path: str, record: Any) -> None:
    with refuses(ct.ConfigError, "in-conflict", path):
        run(**{path.split(".")[0]: record})


@pytest.mark.parametrize("name", ["population", "module", "solver"])
def test_clients_are_made_of_what_they_need(name: str) -> None:
    right = {"population": blobs(), "module": small_net(), "solver": ct.Solver()}
    wrong: dict[str, Any] = {**right, name: 3, "engine": "serial"}
    with refuses(ct.ConfigError, "wrong-type", name):
        ct.make_clients(**wrong)


def test_what_has_no_parameters_and_no_options_is_refused() -> None:
    nothing: Any = "mclr"
    with refuses(ct.ConfigError, "wrong-type", "module"):
        ct.flatten(nothing)
    with refuses(ct.ConfigError, "wrong-type", "options"):
        ct.Augment("RandomCrop", nothing)
    share: Any = [0.1]
    with refuses(ct.DataError, "out-of-range", "test_fraction"):
        ct.Population.from_datasets([[(0.0, 1)] * 4], test_fraction=share)


@pytest.mark.parametrize("kind", ["algorithms", 3, ["model"]])
def test_an_experiment_has_choices_of_known_kinds(kind: Any) -> None:
    tables: dict[str, Any] = {"data": {"source": "digits", "partition": {"kind": "iid"}}}
    tables |= {"model": {"name": "mclr"}, "train": {"rounds": 1}, "algorithm": {"name": "fedavg"}}
    experiment = ct.Experiment.from_tables(tables)
    for read in (experiment.name, experiment.options, experiment.choice):
        with refuses(ct.ConfigError, "unknown-choice", "kind"):
            read(kind)


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


# Where a user's own function may stand; a field for Python alone is in no table.
FUNCTIONS = {("local", "augment"), ("train", "measures"), ("train", "sampler")}
FIELDS = [
    (name, field)
    for name, record in record_types().items()
    for field in table_of(record).model_fields
    if (name, field) not in {*FUNCTIONS, ("train", "rounds")}  # an argument of `run` above
]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=map(".".join, FIELDS))
def test_a_function_is_no_value_of_another_field(name: str, field: str) -> None:
    with pytest.raises(ct.ConfigError) as refused:
        run(**{name: {field: len}})
    assert any(one.path.startswith(f"{name}.{field}") for one in refused.value.problems)


def test_numbers_of_numpy_are_named_in_a_folder(tmp_path: Path) -> None:
    method = ct.fedprox(mu=np.float32(0.5))
    run(method, model="mclr", out=tmp_path / "run")
    assert (
        ct.Experiment.from_toml(tmp_path / "run" / "config.toml").options("algorithm")["mu"] == 0.5
    )

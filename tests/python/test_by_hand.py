"""An `Experiment` and functions that a user made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import coterie as ct
from coterie.data import shifts
from coterie.engines import attacks
from coterie.errors import Code
from coterie.experiment.records import PersonalLayers
from coterie.rules import robust, server
from coterie.tasks import regression
from tests.conftest import blobs, small_net
from tests.refusals import refuses

TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 6}},
    "model": {"name": "mclr"},
    "train": {"rounds": 1},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "serial"},
}


def experiment(**fields: Any) -> ct.Experiment:
    read = ct.Experiment.from_tables(TABLES)
    given: dict[str, Any] = {"data": blobs(clients=6), "model": small_net(), "train": read.train}
    return ct.Experiment(**{**given, "algorithm": ct.fedavg(), "engine": read.engine, **fields})


def run(**options: Any) -> ct.Result:
    given = {"data": blobs(clients=6), "model": small_net(), "engine": "serial", **options}
    return ct.run("fedavg", **given)


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"seed": "x"}, "wrong-type", "seed"),
        ({"seed": object()}, "wrong-type", "seed"),
        ({"seed": -1}, "out-of-range", "seed"),
        ({"folder": 3}, "wrong-type", "folder"),
        ({"given": None}, "wrong-type", "given"),
        ({"given": ["train.rounds"]}, "wrong-type", "given"),
        ({"shift": ("swap_all",)}, "wrong-type", "shift"),
        ({"task": (1, 2)}, "wrong-type", "task"),
        ({"engine": ct.Experiment.from_tables(TABLES).model}, "wrong-type", "engine"),
        ({"data": ct.Experiment.from_tables(TABLES).model}, "wrong-type", "data"),
    ],
)
def test_a_field_of_another_type_is_refused(fields: dict[str, Any], code: Code, path: str) -> None:
    with refuses(ct.ConfigError, code, path):
        experiment(**fields)


def test_what_is_set_by_hand_is_not_lowered() -> None:
    for made in (experiment(), experiment(train=ct.Training(rounds=1))):
        assert ct.run(made).rows[0]["clients_assigned"] == 6
    made = experiment(train=ct.Training(rounds=1, clients_per_round=9))
    for one in (made, made.with_table("local", lr=0.1)):
        with refuses(ct.ConfigError, "out-of-range", "train.clients_per_round"):
            ct.run(one)


@pytest.mark.parametrize("tables", [None, [], "x", 3, [("data", 3)]])
def test_what_is_no_table_of_tables_is_refused(tables: Any) -> None:
    with refuses(ct.ConfigError, "wrong-type", "configuration"):
        ct.Experiment.from_tables(tables)


@pytest.mark.parametrize("path", [None, [], 3, b"x"])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with refuses(ct.ConfigError, "wrong-type", "path"):
        ct.Experiment.from_toml(path)


def test_with_table_takes_the_keys_of_a_record() -> None:
    read = ct.Experiment.from_tables(TABLES)
    assert read.with_table("privacy", epsilon=3.0).privacy == ct.Privacy(epsilon=3.0)
    for name in ("nonsense", "data", "seed"):
        with refuses(ct.ConfigError, "unknown-choice", "name"):
            read.with_table(name, rounds=3)
    with refuses(ct.ConfigError, "unknown-key", "train.round"):
        read.with_table("train", round=3)


# --- arguments of a call --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "path"),
    [
        ({"rounds": 3, "train": {"rounds": 2}}, "in-conflict", "rounds"),
        ({"rounds": 3, "train": ct.Training(rounds=2)}, "in-conflict", "rounds"),
        ({"clients_per_round": 3, "train": {"clients_per_round": 2}}, "in-conflict", "clients_per_round"),
        ({"on_round": 3}, "wrong-type", "on_round"),
        ({"on_round": lambda: 3}, "differs", "on_round"),
        ({"out": 3}, "wrong-type", "out"),
        ({"out": b"run"}, "wrong-type", "out"),
        ({"log": {"to": ["tensorboard"]}}, "in-conflict", "log.to"),
        ({"train": np.zeros(3)}, "wrong-type", "train"),
        ({"privacy": np.zeros(3)}, "wrong-type", "privacy"),
        ({"model": {1: 2}}, "wrong-type", "model.1"),
        ({"train": {"measures": [1]}}, "unknown-choice", "train.measures.0"),
    ],
)  # fmt: skip
def test_an_argument_that_cannot_be_meant_is_refused(
    options: dict[str, Any], code: Code, path: str, tmp_path: Path
) -> None:
    for given in (options, {"out": tmp_path / "run", **options}):
        if code == "in-conflict" and path == "log.to" and "out" in given:
            continue
        with refuses(ct.ConfigError, code, path):
            run(**given)
    assert not (tmp_path / "run").exists()


def test_the_same_number_of_rounds_twice_is_no_contradiction() -> None:
    assert len(run(rounds=2, train={"rounds": 2}).rows) == 2


def test_an_argument_beside_an_experiment_says_what_it_is() -> None:
    made = experiment()
    with refuses(ct.ConfigError, "unknown-key", "nonsense"):
        ct.run(made, nonsense=3)
    with refuses(ct.ConfigError, "in-conflict", "rounds"):
        ct.run(made, rounds=3)


@pytest.mark.parametrize("hidden", [np.array([8, 4]), {8, 4}, pd.DataFrame({8: []})])
def test_what_is_no_list_is_refused(hidden: Any) -> None:
    with refuses(ct.ConfigError, "wrong-type", "model.hidden"):
        ct.Experiment.from_tables({**TABLES, "model": {"name": "mlp", "hidden": hidden}})
    with refuses(ct.ConfigError, "wrong-type", "layers"):
        PersonalLayers(layers=hidden)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", [0.1]),
        ("optimizer_options", len),
        ("round_schedule", {"kind": "step"}),
        ("steps", "x"),
    ],
)
def test_a_field_of_a_solver_is_refused(field: str, value: Any) -> None:
    with refuses(ct.ConfigError, "wrong-type", field):
        ct.Solver(**{field: value})


@pytest.mark.parametrize("value", [3, b"x", ["x"], True])
def test_a_result_takes_paths_and_numbers_of_clients(value: Any) -> None:
    result = run(rounds=1)
    for call in (result.save, result.report, result.export):
        with pytest.raises(ct.ConfigError, match=r"wrong type, got .*; expected text"):
            call(value)
    for call in (result.model_for, result.vector_for):
        for client in (-1, 6, "0", 1.0, True):
            with pytest.raises(ct.ConfigError, match=r"client: (wrong type|out of range), got "):
                call(client)


@pytest.mark.parametrize(
    ("field", "value"),
    [("names", 3), ("names", object()), ("on_disk", "zz"), ("scaling", 3), ("scaling", None)],
)
def test_a_field_of_a_population_is_refused(field: str, value: Any) -> None:
    with refuses(ct.DataError, "wrong-type", f"population.{field}"):
        ct.Population(torch.zeros(2, 3), [0, 1], ([0], [1]), ([], []), 2, **{field: value})


# --- functions ------------------------------------------------------------------------------------

SLOTS = {
    "server": ("server", lambda function: {"server": function}),
    "weigh": ("weigh", lambda function: {"weigh": function}),
    "shift": ("shift", lambda function: {"shift": function}),
    "sampler": ("train.sampler", lambda function: {"train": {"sampler": function}}),
    "measures": ("train.measures", lambda function: {"train": {"measures": [function]}}),
}


@pytest.mark.parametrize(
    "value", [None, "x", np.zeros(3), torch.zeros(3), (0.5, 2), object()], ids=type
)
@pytest.mark.parametrize("slot", SLOTS)
def test_what_a_function_returns_is_checked(slot: str, value: Any) -> None:
    path, options = SLOTS[slot]
    code = "wrong-shape" if (slot, type(value)) == ("weigh", np.ndarray) else "wrong-type"
    with refuses(ct.ConfigError, code, path):
        run(rounds=1, **options(lambda *arguments: value))


@pytest.mark.parametrize("slot", SLOTS)
def test_a_function_that_takes_other_arguments_is_refused(slot: str) -> None:
    path, options = SLOTS[slot]
    with refuses(ct.ConfigError, "differs", path):
        run(rounds=1, **options(lambda: None))


@pytest.mark.parametrize("name", ["shift", "server", "weigh"])
@pytest.mark.parametrize("value", [small_net(), int], ids=["a module", "a class"])
def test_what_is_no_function_is_refused(name: str, value: Any) -> None:
    with refuses(ct.ConfigError, "wrong-type", name):
        run(rounds=1, **{name: value})


@pytest.mark.parametrize("cohort", [[7], [-1], [1, 1], [[1]], [0.5]])
def test_a_sampler_names_clients(cohort: Any) -> None:
    with refuses(ct.ConfigError, "wrong-type", "train.sampler"):
        run(rounds=1, train={"sampler": lambda round: cohort})
    assert run(rounds=1, train={"sampler": lambda round: [4, 2]}).groups.tolist() == [0] * 6


@pytest.mark.parametrize(
    ("name", "factory"),
    [
        ("shift", shifts.swap_all),
        ("server", server.SERVERS["fedadam"]),
        ("weigh", robust.WEIGHS["by_size"]),
        ("task", regression),
        ("attack", attacks.ATTACKS["sign_flip"]),
    ],
)
def test_a_factory_is_to_be_called(name: str, factory: Callable[..., Any]) -> None:
    with pytest.raises(ct.ConfigError, match=rf"^{name}: wrong type.*call it: \w+\(\)$"):
        run(rounds=1, **{name: factory})

"""Every key of every record: settable from TOML and from Python, in the reference page, and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

import pytest

import coterie as ct
from coterie.config.schema import table_of
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.experiment.experiment import CHOICES, Experiment, record_types, table_names
from coterie.experiment.naming import named
from coterie.experiment.records import PersonalLayers
from coterie.experiment.reference import keys_of_tables
from coterie.runs.folder.store import RunFolder
from tests.refusals import refuses

BASE: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 30}},
    "model": {"name": "mclr"},
    "train": {"rounds": 3, "clients_per_round": 6},
    "algorithm": {"name": "fedgroup", "groups": 2},
}
# A value other than the default for each key, by table; further keys are those that it needs.
COSINE = {"kind": "cosine", "warmup": 1, "over": 9, "floor": 0.1}
STEP = {"kind": "step", "warmup": 0, "every": 2, "gamma": 0.5}
VALUES: dict[str, list[dict[str, Any]]] = {
    "local": [
        {"epochs": 2, "batch_size": 5, "lr": 0.5, "momentum": 0.5, "l2": 0.1, "clip_norm": 1.0},
        {"optimizer": "adam", "optimizer_options": {"eps": 1e-3}, "weight_decay": 0.1},
        {"clip_value": 2.0, "label_smoothing": 0.1, "precision": "bfloat16"},
        {"momentum": 0.1, "keep_state": True},
        {"augment": [{"name": "RandomCrop", "options": {"size": 8}}]},
        {"step_schedule": COSINE, "round_schedule": STEP},
        {"step_schedule": STEP, "round_schedule": COSINE},
    ],
    "train": [
        {"rounds": 4, "clients_per_round": 5, "sampler": "uniform", "over_selection": 1.5},
        {"hold_out": 0.2, "evaluate_every": 2, "evaluate_clients": 3, "evaluate_loss": True},
        {"measures": ["cpd"]},
    ],
    "evaluate": [
        {"local": True, "training": True, "rounds": "last", "validation": 0.2, "order": "before"},
        {"unseen": 0.2, "unseen_labels": True, "adapt": {"epochs": 2, "layers": ["head"]}},
    ],
    "quorum": [{"min_replies": 2, "max_skipped_rounds": 3, "max_wait": 4.0}],
    "bounds": [{"enabled": False, "floor": 2.0, "ceiling": 9.0}],
    "checkpoint": [{"seconds": 1.0, "keep": 3}],
    "log": [{"to": ["tensorboard"], "uri": "http://localhost", "experiment": "mine"}],
    "migration": [{"detector": "counts", "tau": 0.3}],
    "privacy": [
        {"epsilon": 8.0, "delta": 1e-6, "clip": 0.5, "quantile": 0.5, "start_noise": 2.0},
        {"noise": 1.0, "least_group": 2.0, "accountant": "rdp", "randomness": "system"},
    ],
    "personal": [{"layers": ["head"]}],
    "secure": [
        {"reach": 4.0, "levels": 2**16, "bits": 40, "most_samples": 10.0, "neighbours": 4},
        {"threshold": 0.6, "least_group": 4},
    ],
    "availability": [
        {"kind": "random", "share": 0.6, "period": 12},
        {"zones": 3},
        {"kind": "file", "file": "spans.csv"},
    ],
    "reply_times": [{"median": 2.0, "spread": 0.1, "noise": 0.1, "deadline": 3.0}],
    "asynchronous": [{"buffer": 5, "exponent": 1.0}],
}
CASES = [(table, values) for table, cases in VALUES.items() for values in cases]


def flat(table: str, values: dict[str, Any]) -> dict[str, Any]:
    """Key path -> value, where tables in tables are looked into."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{table}.{key}"
        inner = value[0] if key == "augment" else value
        if path in keys_of_tables():
            found |= flat(path, inner)
        found[path] = value
    return found


def tables_with(table: str, values: dict[str, Any]) -> dict[str, Any]:
    tables = dict(BASE)
    tables[table] = {**BASE.get(table, {}), **values}
    return tables


def test_every_key_of_every_record_has_a_case() -> None:
    known = {f"{table}.{key.name}" for table, keys in keys_of_tables().items() for key in keys}
    tried = {path for table, values in CASES for path in flat(table, values)}
    assert tried == known
    assert {*record_types(), *CHOICES, "seed", "folder"} == set(table_names())


@pytest.mark.parametrize(("table", "values"), CASES)
def test_a_key_is_settable_from_toml_and_python(table: str, values: dict[str, Any]) -> None:
    tables = tables_with(table, values)
    from_tables = check(tables)
    found = from_tables.resolved()[table]
    assert {key: found[key] for key in values} == values
    record = table_of(record_types()[table]).model_validate(tables[table]).made()
    from_python = Experiment.from_tables({**BASE, table: record})
    assert from_python.resolved()[table] == found
    for key, value in values.items():
        default = table_of(record_types()[table]).model_fields[key].default
        assert value != default, key


@pytest.mark.parametrize(("table", "values"), CASES)
def test_a_key_survives_resume_and_save(table: str, values: dict[str, Any], tmp_path: Path) -> None:
    experiment = check(tables_with(table, values))
    folder = RunFolder.create(tmp_path / "run", experiment.resolved())
    again = folder.config()
    assert again == experiment
    data = ct.load("digits", partition=BASE["data"]["partition"])
    live = Experiment.from_tables(
        {**tables_with(table, values), "data": data, "algorithm": ct.fedgroup(2)}
    )
    stored = named(live, tmp_path / "saved").resolved()
    assert {key: stored[table][key] for key in values} == values


def test_every_key_is_explained() -> None:
    unexplained = [
        f"{table}.{key.name}"
        for table, keys in keys_of_tables().items()
        for key in keys
        if len(key.help) < 5
    ]
    assert unexplained == []


def test_what_has_no_name_is_one_line_that_names_the_field() -> None:
    experiment = Experiment.from_tables(
        {**BASE, "algorithm": ct.fedavg(), "server": lambda *_: None}
    )
    with pytest.raises(ct.ConfigError) as refused:
        experiment.resolved()
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["algorithm", "server"]


def test_a_run_takes_an_experiment() -> None:
    experiment = check({**BASE, "engine": {"name": "serial"}, "train": {"rounds": 1}})
    one = ct.run(experiment)
    data = ct.load("digits", partition=BASE["data"]["partition"])
    other = ct.run(ct.fedgroup(2, alpha=15), data=data, model="mclr", rounds=1, engine="serial")
    assert one.rows[0]["accuracy"] == other.rows[0]["accuracy"]


@pytest.mark.parametrize("table", record_types())
def test_a_record_refuses_none_where_a_key_has_to_have_a_value(table: str) -> None:
    """Left out is the default; ``None`` in its place would be found by the code that uses it."""
    kind = record_types()[table]
    keys = table_of(kind).model_fields
    required = {key: 3 for key, field in keys.items() if field.is_required()}
    for key, field in keys.items():
        if type(None) not in get_args(field.annotation):
            with pytest.raises(ConfigError, match=rf"^(\w+\.)*{key}: .* got nothing"):
                kind(**{**required, key: None})


def test_a_list_of_a_record_has_a_value_in_each_place() -> None:
    with refuses(ConfigError, "wrong-type", "layers.1"):
        PersonalLayers(layers=cast(Any, ("head", None)))

"""Every key of every record: settable from TOML and from Python, in the reference page, and kept."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pytest
import tomli_w

import coterie as ct
from coterie.cli.main import invoke
from coterie.config import registry
from coterie.config.kinds import KINDS
from coterie.config.schema import table_of
from coterie.core.reply_times import ReplyTimes
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.experiment.records import PersonalLayers
from coterie.experiment.tables import CHOICES, record_types, table_names
from tests.docs.pages import record_tables
from tests.experiment.options import other_values, other_values_of_record
from tests.refusals import refuses

BASE: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 30}},
    "model": {"name": "mclr"},
    "train": {"rounds": 3, "clients_per_round": 4},
    "algorithm": {"name": "fedgroup", "groups": 2},
}
# Values other than the defaults, by table, of keys that need each other. A key that is not among them
# has a case of its own, with a value of its type.
COSINE = {"kind": "cosine", "warmup": 1, "over": 9, "floor": 0.1}
STEP = {"kind": "step", "warmup": 0, "every": 2, "gamma": 0.5}
VALUES: dict[str, list[dict[str, Any]]] = {
    "local": [
        {"epochs": 2, "batch_size": 5, "lr": 0.5, "momentum": 0.5, "l2": 0.1, "clip_norm": 1.0},
        {"optimizer": "adam", "optimizer_options": {"eps": 1e-3}, "weight_decay": 0.1},
        {"clip_value": 2.0, "label_smoothing": 0.1, "precision": "bfloat16"},
        {"momentum": 0.1, "keep_state": True},
        {"augment": [{"name": "torch.nn:Identity", "options": {"size": 8}}]},
        {"step_schedule": COSINE, "round_schedule": STEP},
        {"step_schedule": STEP, "round_schedule": COSINE},
    ],
    "train": [
        {"rounds": 4, "clients_per_round": 5, "sampler": "uniform", "over_selection": 1.5},
        {"hold_out": 0.2, "evaluate_every": 2, "evaluate_clients": 3, "evaluate_loss": True},
        {"measures": ["cpd"]},
    ],
    "evaluate": [
        {"local": True, "training": True, "rounds": "last", "validation": 0.2},
        {"order": "before"},
        {"unseen": 0.2, "unseen_labels": True, "adapt": {"epochs": 2, "layers": ["head"]}},
    ],
    "quorum": [{"min_replies": 2, "max_skipped_rounds": 3, "max_wait": 4.0}],
    "bounds": [{"enabled": False, "floor": 2.0, "ceiling": 9.0}],
    "checkpoint": [{"seconds": 1.0, "keep": 3}],
    "log": [{"to": ["tensorboard"], "uri": "http://localhost", "experiment": "mine"}],
    "migration": [{"detector": "counts", "tau": 0.3}],
    "privacy": [
        {"epsilon": 8.0, "delta": 1e-6, "clip": 0.5, "quantile": 0.5, "start_noise": 2.0},
        {"noise": 1.0, "least_group": 2.0, "accountant": "rdp", "randomness": "seed_not_private"},
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
# What the options of a choice need.
ALONG_WITH = {("engine", "ray"): {"each": "vmap"}}


def flat(table: str, values: dict[str, Any]) -> dict[str, Any]:
    """Key path -> value, where tables in tables are looked into."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{table}.{key}"
        inner = value[0] if key == "augment" else value
        if path in record_tables.keys_of_tables():
            found |= flat(path, inner)
        found[path] = value
    return found


def all_cases() -> list[tuple[str, dict[str, Any]]]:
    found = [(table, values) for table, cases in VALUES.items() for values in cases]
    tried = {path for table, values in found for path in flat(table, values)}
    for table, record in record_types().items():
        for key, value in other_values_of_record(record).items():
            if f"{table}.{key}" not in tried:
                found.append((table, {key: value}))
    return found


CASES = all_cases()


def tables_with(table: str, values: dict[str, Any]) -> dict[str, Any]:
    tables = dict(BASE)
    tables[table] = {**BASE.get(table, {}), **values}
    return tables


def with_choice(place: tuple[str, ...], chosen: dict[str, Any]) -> dict[str, Any]:
    """The base with a choice at a place; with what its own table has besides it."""
    tables = deepcopy(BASE)
    table = tables
    for part in place[:-1]:
        table = table[part]
    beside = {"partition": tables["data"]["partition"]} if place == ("data",) else {}
    table[place[-1]] = {**chosen, **beside}
    return tables


def at(tables: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        tables = tables[part]
    return tables


def test_every_key_of_every_record_has_a_case() -> None:
    known = {
        f"{table}.{key.name}"
        for table, keys in record_tables.keys_of_tables().items()
        for key in keys
    }
    tried = {path for table, values in CASES for path in flat(table, values)}
    assert tried == known
    assert {*record_types(), *CHOICES, "seed", "folder"} == set(table_names())
    assert {table for table, _ in WALK} == set(table_names())


@pytest.mark.parametrize(("table", "values"), CASES)
def test_a_record_in_python_says_what_its_table_says(table: str, values: dict[str, Any]) -> None:
    tables = tables_with(table, values)
    found = check(tables).resolved()[table]
    record = table_of(record_types()[table]).model_validate(tables[table]).made()
    from_python = Experiment.from_tables({**BASE, table: record})
    assert from_python.resolved()[table] == found
    for key, value in values.items():
        default = table_of(record_types()[table]).model_fields[key].default
        assert value != default, key


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS if KINDS[kind].place for name in registry.builtin(kind)],
)
def test_every_option_of_a_choice_is_settable_from_toml_and_python(
    kind: str, name: str, tmp_path: Path
) -> None:
    place = KINDS[kind].place
    values = other_values(kind, name)
    options = registry.options(kind, name)
    needed = {key: values[key] for key in options if options[key][1] is ...}
    chosen = {KINDS[kind].selector: name, **needed, **ALONG_WITH.get((kind, name), {})}
    for option, value in values.items():
        tables = with_choice(place, {**chosen, option: value})
        file = tmp_path / "c.toml"
        file.write_text(tomli_w.dumps(tables))
        experiment = Experiment.from_toml(file)
        found = at(experiment.resolved(), (*place, option))
        if isinstance(value, dict):
            found = {key: found[key] for key in value}
        assert found == value
        assert Experiment.from_tables(tables) == experiment
        file.write_text(experiment.toml())
        assert Experiment.from_toml(file) == experiment


# --- the walk: from TOML and Python into the folder of a run, and on from there --------------------

# A choice of each table, with options that are not their defaults, and the scalars.
CHOSEN: dict[str, Any] = {
    "data": {"source": "synthetic", "alpha": 2.0, "clients": 8, "partition": {"kind": "given"}},
    "model": {"name": "mlp", "hidden": 7},
    "algorithm": {"name": "fedgroup", "groups": 2, "measure": "madc"},
    "engine": {"name": "serial", "threads": 2},
    "server": {"name": "fedadam", "lr": 0.01},
    "weigh": {"name": "trimmed_mean", "share": 0.2},
    "objective": {"name": "proximal", "mu": 0.2},
    "own_model": {"name": "ditto", "lam": 0.3},
    "task": {"kind": "classification", "metrics": ["accuracy"]},
    "shift": {"kind": "swap_part", "p": 0.5, "pool": "all"},
    "attack": {"kind": "sign_flip", "share": 0.3, "factor": 2.0},
    "seed": 5,
    "folder": ".",
}
WALK = [*CASES, *CHOSEN.items()]
QUICK: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 8}},
    "model": {"name": "mlp", "hidden": 8},
    "local": {"epochs": 1, "batch_size": 200},
    "train": {"rounds": 2, "clients_per_round": 6},
    "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 3},
    "engine": {"name": "serial"},
}


def stop(_: object) -> None:
    raise KeyboardInterrupt


def stored(folder: Path) -> dict[str, Any]:
    return Experiment.from_toml(folder / "config.toml").resolved()


def given_in_python(table: str, values: Any) -> dict[str, Any]:
    """The arguments of `coterie.run`."""
    given = {**QUICK, table: values}
    if isinstance(values, dict) and isinstance(QUICK.get(table), dict):
        given[table] = {**QUICK[table], **values}
    given["method"] = given.pop("algorithm")
    return given


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("table", "values"), WALK)
def test_what_is_set_is_in_the_folder_of_a_run_and_stays(
    table: str, values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spans.csv").write_text("client,from,until\n0,0,9\n1,0,9\n2,0,9\n")
    expected = values
    if isinstance(values, dict):
        expected = {key: value for key, value in values.items() if key != "partition"}

    def is_kept(folder: str) -> bool:
        found = stored(Path(folder))[table]
        if isinstance(expected, dict):
            found = {key: found[key] for key in expected}
        return bool(found == expected)

    # By the command, with --set.
    Path("c.toml").write_text(tomli_w.dumps(QUICK))
    sets = [f"--set={assignment}" for assignment in assignments(table, values)]
    assert invoke(["run", "c.toml", "--out", "command", *sets]) == 0
    assert is_kept("command")
    # In Python: in memory and saved, and in a folder, stopped and resumed.
    arguments = given_in_python(table, values)
    if table == "log":
        with refuses(ct.ConfigError, "in-conflict", "log.to"):
            ct.run(**arguments)
    else:
        ct.run(**arguments).save("saved")
        assert is_kept("saved")
    with pytest.raises(KeyboardInterrupt):
        ct.run(**arguments, out="resumed", on_round=stop)
    result = ct.resume("resumed")
    assert is_kept("resumed")
    assert len(result.rows) == stored(Path("resumed"))["train"]["rounds"]


def in_numpy(value: Any) -> Any:
    """The same with numbers of NumPy."""
    if isinstance(value, dict):
        return {key: in_numpy(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [in_numpy(inner) for inner in value]
    kinds: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
    return kinds.get(type(value), type(value))(value)


@pytest.mark.parametrize(("table", "values"), WALK)
def test_numbers_of_numpy_say_the_same(table: str, values: Any) -> None:
    tables = {**QUICK, table: values}
    if isinstance(values, dict) and isinstance(QUICK.get(table), dict):
        tables[table] = {**QUICK[table], **values}
    plain = Experiment.from_tables(tables).toml()
    assert Experiment.from_tables(in_numpy(tables)).toml() == plain
    if table in record_types():
        record = record_types()[table]
        keys = tables[table]
        if all(not isinstance(value, dict | list) for value in keys.values()):
            made = record(**in_numpy(keys))
            assert Experiment.from_tables({**tables, table: made}).toml() == plain


def assignments(table: str, values: Any) -> list[str]:
    """What `--set` takes."""
    if not isinstance(values, dict):
        return [f"{table}={values}"]
    return [f"{table}.{key}={inline(value)}" for key, value in values.items()]


def inline(value: Any) -> str:
    """A value as TOML writes it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)


def test_the_reference_page_has_every_key_and_every_option() -> None:
    folder = Path(__file__).parents[2] / "docs"
    page = (folder / "configuration.md").read_text(encoding="utf-8").splitlines()
    assert {".. records::", ".. options::"} <= set(page)
    for table, keys in record_tables.keys_of_tables().items():
        lines = record_tables.record_lines(table)
        assert [key.name for key in keys if f"   * - ``{key.name}``" not in lines] == []
    for kind in KINDS:
        if KINDS[kind].place:
            lines = record_tables.option_lines(kind)
            options = {
                option for name in registry.builtin(kind) for option in registry.options(kind, name)
            }
            assert [option for option in options if f"     - ``{option}``" not in lines] == []


def test_every_key_is_explained() -> None:
    unexplained = [
        f"{table}.{key.name}"
        for table, keys in record_tables.keys_of_tables().items()
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


# Values other than the defaults of fields that no file can set.
PYTHON_VALUES: dict[str, Any] = {
    "local.steps": 3,
    "bounds.refuse": 7.0,
    "bounds.scores": True,
    "availability.spans": {"0": ((0, 9),)},
    "availability.names": ("0",),
    "asynchronous.concurrency": 2,
    "asynchronous.times": ReplyTimes(median=9.0),
}


def own_method(size: Any = 3, more: Any = None) -> Any:
    return ct.fedavg()


def function(*_: Any) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("train.sampler", function),
        ("train.measures", (function,)),
        ("train.measures", ["cpd", function]),
        ("local.augment", function),
        ("local.augment", (function,)),
        ("local.augment", [{"name": "torch.nn:Identity", "options": {"size": function}}]),
        ("algorithm.size", function),
        ("algorithm.more", {"size": [function]}),
    ],
)
def test_a_value_without_a_name_is_one_line_that_names_the_key(path: str, value: Any) -> None:
    table, key = path.split(".")
    values = {**BASE.get(table, {}), key: value}
    if table == "algorithm":
        values = {"name": f"{__name__}:own_method", key: value}
    experiment = Experiment.from_tables({**BASE, table: values})
    assert [one.path for one in experiment.unnamed()] == [path]
    with refuses(ConfigError, "cannot-be-written", path):
        experiment.toml()


@pytest.mark.parametrize("table", record_types())
def test_a_field_for_python_alone_has_no_name(table: str) -> None:
    kind = record_types()[table]
    known = table_of(kind).model_fields
    required = {key: 3 for key, field in known.items() if field.is_required()}
    for one in fields(kind):
        if one.metadata.get("in_tables", True):
            continue
        value = PYTHON_VALUES[f"{table}.{one.name}"]
        beside = {"kind": "file", "file": "spans.csv"} if table == "availability" else {}
        record = kind(**{**required, **beside, one.name: value})
        # One that a run would fill in is refused before.
        with pytest.raises(ConfigError) as refused:
            Experiment.from_tables({**BASE, table: record}).toml()
        assert [one.path for one in refused.value.problems] == [f"{table}.{one.name}"]


def test_an_experiment_made_by_hand_names_what_it_does_not_read() -> None:
    read = Experiment.from_tables(BASE)
    fields: Any = {"data": read.data, "model": "mclr", "algorithm": "fedavg", "engine": "serial"}
    fields |= {"train": {"rounds": 2}, "privacy": 8.0, "local": None}
    with pytest.raises(ConfigError) as refused:
        Experiment(**fields)
    assert {one.path for one in refused.value.problems} == fields.keys() - {"data"}
    assert {one.code for one in refused.value.problems} == {"wrong-type"}
    made = Experiment(
        data=read.data,
        model=read.model,
        algorithm=ct.fedavg(),
        engine=read.engine,
        train=read.train,
    )
    assert made.train == read.train


def test_a_table_that_is_changed_is_set_and_named() -> None:
    experiment = Experiment.from_tables({**BASE, "train": {"rounds": 2}})
    with refuses(ConfigError, "out-of-range", "train.rounds"):
        experiment.with_table("train", rounds=0)
    with refuses(ConfigError, "out-of-range", "train.clients_per_round"):
        ct.run(experiment.with_table("train", clients_per_round=50))


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
            with pytest.raises(ConfigError) as caught:
                kind(**{**required, key: None})
            paths = [problem.path.split(".")[-1] for problem in caught.value.problems]
            assert key in paths


def test_a_list_of_a_record_has_a_value_in_each_place() -> None:
    with refuses(ConfigError, "wrong-type", "layers.1"):
        PersonalLayers(layers=cast(Any, ("head", None)))

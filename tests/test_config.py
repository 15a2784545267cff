"""Configurations: what is accepted, what is refused and how, and that nothing else ever happens."""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from coterie.config import RunConfig, check, load, registry
from coterie.config.identity import config_hash, differing
from coterie.config.reading import fit_to_clients
from coterie.core.solver import Solver
from coterie.errors import ConfigError

ISSUE = """
seed = 0
[data]
source = "mnist"
[data.partition]
kind = "power_law"            # also classes, dirichlet, ditto, femnist10, natural, iid, planted
clients = 1000
classes_per_client = 2
[model]
name = "mclr"
[local]
epochs = 10
batch_size = 10
lr = 0.03
[train]
rounds = 300
clients_per_round = 20
sampler = "cover_then_uniform" # or "uniform"
[algorithm]
name = "fedgroup"
groups = 3
alpha = 20
measure = "edc"               # or "madc"
[engine]
name = "pool"
workers = 2
"""
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))


@pytest.fixture
def tables() -> dict[str, Any]:
    return tomllib.loads(ISSUE)


def lines(action: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        action()
    return str(caught.value).splitlines()


# --- accepted -------------------------------------------------------------------------------------


def test_the_configuration_of_the_issue_is_accepted(tables: dict[str, Any]) -> None:
    config = check(tables)
    assert config.train.rounds == 300
    assert config.options("algorithm")["alpha"] == 20
    assert config.options("partition") == {"clients": 1000, "classes_per_client": 2}
    assert config.options("source") == {"pixels": "standardised", "hub": False}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_accepted(path: Path) -> None:
    config = load(path)
    assert getattr(config.data, "root", None) is None
    assert check(tomllib.loads(config.toml())).resolved() == config.resolved()


def test_every_dataset_has_an_example() -> None:
    elsewhere = {"file", "nodes"}  # the tutorial and `coterie deploy init` write those
    assert {load(p).data.source for p in EXAMPLES} == set(registry.names("source")) - elsewhere


def test_resolved_holds_every_default_and_survives_toml(tables: dict[str, Any]) -> None:
    resolved = check(tables).resolved()
    assert resolved["checkpoint"] == {"seconds": 10.0, "keep": 2}
    assert resolved["local"]["momentum"] == 0.0
    assert check(tomllib.loads(tomli_w.dumps(resolved))).resolved() == resolved


def test_local_is_the_solver(tables: dict[str, Any]) -> None:
    local = check(tables).local
    names = {f.name for f in dataclasses.fields(Solver)} - {"steps"}
    assert set(type(local).model_fields) == names
    defaults = {name: type(local).model_fields[name].default for name in names}
    assert defaults == {name: getattr(Solver(), name) for name in names}


def test_whole_numbers_pass_for_numbers(tables: dict[str, Any]) -> None:
    tables["local"]["lr"] = 1
    assert isinstance(check(tables).local.lr, float)


def test_overrides(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(ISSUE)
    config = load(
        file,
        ["algorithm.groups=4", "algorithm.measure=madc", "quorum.min_replies = 2"],
        {"seed": 7},
    )
    assert (
        config.algorithm.groups,
        config.algorithm.measure,
        config.quorum.min_replies,
        config.seed,
    ) == (
        4,
        "madc",
        2,
        7,
    )


def test_a_factory_of_the_users_own(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_factories.py").write_text(
        "def algorithm(groups: int = 3, warmth: float = 0.5): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    tables["algorithm"] = {"name": "my_own_factories:algorithm", "groups": 5}
    assert check(tables).options("algorithm") == {"groups": 5, "warmth": 0.5}
    tables["algorithm"]["warm"] = 1
    (line,) = lines(lambda: check(tables))
    assert "did you mean 'warmth'?" in line


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        (
            "algorithm.group",
            3,
            ["unknown key, got 3", "one of name, groups", "did you mean 'groups'?"],
        ),
        ("algorithm.lr", 3, ["unknown key", "did you mean 'local.lr'?"]),
        (
            "algorithm.name",
            "fedgruop",
            ["unknown choice, got 'fedgruop'", "'fedavg'", "did you mean 'fedgroup'?"],
        ),
        (
            "algorithm.measure",
            "EDC",
            ["unknown choice", "one of 'edc', 'madc'", "did you mean 'edc'?"],
        ),
        ("algorithm.groups", 0, ["out of range, got 0; expected an integer >= 1"]),
        ("algorithm.groups", 1001, ["more groups than clients, got 1001; expected at most 1000"]),
        (
            "algorithm.alpha",
            500,
            ["alpha * groups = 1500 clients, got 500; expected at most 333: 1000"],
        ),
        (
            "train.clients_per_round",
            1001,
            ["more than there are clients, got 1001; expected at most 1000"],
        ),
        ("train.rounds", True, ["wrong type, got true; expected an integer >= 1"]),
        ("train.rounds", 3.0, ["wrong type, got 3.0; expected an integer >= 1"]),
        ("train.rounds", 10**30, ["out of range", "<= 2147483647"]),
        ("train.rounds", None, ["wrong type, got nothing"]),
        ("local.lr", float("nan"), ["not finite, got nan; expected a number > 0"]),
        ("local.lr", float("inf"), ["not finite, got inf"]),
        ("local.lr", 0, ["out of range, got 0; expected a number > 0"]),
        ("local.momentum", 1, ["expected a number >= 0 and < 1"]),
        ("local.steps", 4, ["unknown key"]),
        ("engine.workers", 0, ["expected an integer >= 1 and <= 1024"]),
        ("engine.round_timeout", 0, ["expected a number > 0"]),
        (
            "quorum",
            {"min_replies": 21},
            ["more replies than clients are asked, got 21; expected at most 20"],
        ),
        ("seed", -1, ["expected an integer >= 0"]),
        ("data.partition.kind", "powerlaw", ["did you mean 'power_law'?"]),
        ("data.partition", 3, ["wrong type, got 3; expected a table"]),
        ("data.source", ["mnist"], ["unknown choice, got ['mnist']"]),
        ("model", "mclr", ["wrong type, got 'mclr'; expected a table"]),
        ("model.name", "no_such_module:net", ["cannot be used (ModuleNotFoundError"]),
        ("my key\n", 1, ["'my key\\n': unknown key"]),
    ],
)
def test_one_line_says_what_is_wrong(
    tables: dict[str, Any], path: str, value: Any, parts: list[str]
) -> None:
    *parents, last = path.split(".")
    at = tables
    for part in parents:
        at = at[part]
    at[last] = value
    (line,) = lines(lambda: check(tables, "c.toml"))
    assert line.startswith("c.toml: " + (path if path.isprintable() else "'my key"))
    for part in parts:
        assert part in line


def test_all_errors_at_once(tables: dict[str, Any]) -> None:
    tables["algorithm"] |= {"groups": 2000, "measure": "x"}
    tables["data"]["partition"]["kinds"] = 1
    tables["local"]["epochs"] = "ten"
    del tables["train"]["rounds"]
    found = lines(lambda: check(tables, "c.toml"))
    paths = {line.split(": ")[1] for line in found}
    assert paths == {
        "algorithm.groups",
        "algorithm.measure",
        "data.partition.kinds",
        "local.epochs",
        "train.rounds",
    }


def test_what_is_missing_is_named() -> None:
    paths = {line.split(": ")[1] for line in lines(lambda: check({}, "c.toml"))}
    assert paths == {"data", "model", "train", "algorithm"}


def test_the_number_of_clients_may_come_with_the_data(tables: dict[str, Any]) -> None:
    tables["data"]["partition"] = {"kind": "natural", "column": "writer_id"}
    config = check(tables, "c.toml")
    fit_to_clients(config, 60)
    found = lines(lambda: fit_to_clients(config, 10))
    assert [line.split(": ")[1] for line in found] == ["train.clients_per_round", "algorithm.alpha"]
    assert lines(lambda: fit_to_clients(config, 2))[1] == (
        "c.toml: algorithm.groups: more groups than clients, got 3; expected at most 2"
    )


def test_defaults_are_what_few_clients_allow(tables: dict[str, Any]) -> None:
    del tables["train"]["clients_per_round"], tables["algorithm"]["alpha"]
    many = check(tables)
    assert (many.train.clients_per_round, many.options("algorithm")["alpha"]) == (20, 20)
    tables["data"]["partition"]["clients"] = 12
    few = check(tables)
    assert (few.train.clients_per_round, few.options("algorithm")["alpha"]) == (12, 4)
    # What the run's folder holds is explicit, and good.
    assert check(few.resolved()).resolved() == few.resolved()
    tables["data"]["partition"] = {"kind": "natural", "column": "writer_id"}
    unknown = check(tables)
    assert fit_to_clients(unknown, 12).resolved()["train"]["clients_per_round"] == 12
    tables["algorithm"]["alpha"] = 20
    (line,) = lines(lambda: fit_to_clients(check(tables, "c.toml"), 12))
    assert "algorithm.alpha: a cold start of alpha * groups = 60 clients, got 20" in line


def test_a_quorum_is_compared_with_the_cohort_that_few_clients_allow(
    tables: dict[str, Any],
) -> None:
    del tables["train"]["clients_per_round"], tables["algorithm"]["alpha"]
    tables["data"]["partition"]["clients"] = 12
    tables["quorum"] = {"min_replies": 13}
    (line,) = lines(lambda: check(tables))
    assert "quorum.min_replies: more replies than clients are asked, got 13" in line


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xff\xfe", "not UTF-8 at byte 0, got 0xff"),
        (b"seed = = 1", "not TOML"),
        (b"a = " + b"[" * 5000, "c.toml: "),
        (b"a = " + b"9" * 5000, "not TOML"),
        (b"a = 1979-05-27", "a: unknown key, got '1979-05-27'"),
        (b"", "train: missing"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(content)
    found = lines(lambda: load(file))
    assert any(what in line for line in found)
    assert all(line.startswith(str(file)) for line in found)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "No such file" in lines(lambda: load(tmp_path / "c.toml"))[0]
    assert "Is a directory" in lines(lambda: load(tmp_path))[0]
    assert "cannot be read" in lines(lambda: load("a" * 5000))[0]
    assert len(lines(lambda: load("a\0b"))) == 1


@pytest.mark.parametrize("override", ["seed", "=3", "a..b=1", "seed.x=1", "train.rounds=1\nseed=3"])
def test_overrides_that_are_none(tmp_path: Path, override: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(ISSUE)
    assert len(lines(lambda: load(file, [override]))) == 1


# --- identity -------------------------------------------------------------------------------------


def test_the_hash_is_of_what_can_change_results(tables: dict[str, Any]) -> None:
    one = check(tables).resolved()
    tables["engine"] = {"name": "serial"}
    tables["checkpoint"] = {"seconds": 1}
    tables["data"]["root"] = "elsewhere"
    assert config_hash(check(tables).resolved()) == config_hash(one)
    tables["local"]["lr"] = 0.1
    assert config_hash(check(tables).resolved()) != config_hash(one)
    assert differing(check(tables).resolved(), one) == ["local.lr"]


def test_of_the_engine_only_its_name_and_its_workers_cannot_change_results(
    tables: dict[str, Any],
) -> None:
    one = check(tables).resolved()
    tables["engine"]["round_timeout"] = 5
    assert differing(check(tables).resolved(), one) == ["engine.round_timeout"]


def test_places_do_not_depend_on_the_folder(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.npz").touch()
    monkeypatch.chdir(tmp_path)
    file = {
        "source": "file",
        "features": "x",
        "label": "y",
        "root": "data",
        "partition": {"kind": "iid", "clients": 60},
    }
    for path, kept in (
        ("here.npz", str(tmp_path / "here.npz")),
        ("below_the_root.npz", "below_the_root.npz"),
    ):
        resolved = check(tables | {"data": file | {"path": path}}).resolved()
        assert resolved["data"]["path"] == kept
        assert resolved["data"]["root"] == str(tmp_path / "data")
        monkeypatch.chdir("/")
        assert check(resolved).resolved() == resolved
        monkeypatch.chdir(tmp_path)


def test_a_factory_is_found_from_another_folder(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factories_elsewhere.py").write_text("def algorithm(): ...\n")
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    tables["algorithm"] = {"name": "factories_elsewhere:algorithm"}
    resolved = check(tables).resolved()
    assert resolved["folder"] == str(tmp_path)
    monkeypatch.chdir("/")
    monkeypatch.setattr("sys.path", [p for p in sys.path if p != str(tmp_path)])
    sys.modules.pop("factories_elsewhere")
    assert check(resolved).resolved() == resolved
    assert differing(resolved, {**resolved, "folder": "elsewhere"}) == []


def test_a_default_written_out_is_the_same_configuration(tables: dict[str, Any]) -> None:
    one = config_hash(check(tables).resolved())
    tables["algorithm"]["eta_g"] = 0
    assert config_hash(check(tables).resolved()) == one


# --- fuzz -----------------------------------------------------------------------------------------

VALUES = [
    *(
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        20,
        10**6,
        2**31,
        2**63,
        2**64,
        10**400,
        16**6000,
        0.0,
        -0.0,
        0.5,
        1.0,
        1e308,
        5e-324,
    ),
    *(
        float("nan"),
        float("inf"),
        "",
        "edc",
        "fedgroup",
        "pool",
        "a\nb",
        "\x1b[2J",
        "ü" * 300,
        "x:y",
        ":",
        "..:a",
        "a.b:c",
    ),
    *(
        [],
        [1],
        [[1]],
        ["a", 1],
        {},
        {"a": 1},
        {"kind": "iid"},
        {"name": "mlp", "hidden": 0},
        {"": {"": 1}},
    ),
]
KEYS = [
    "clients",
    "groups",
    "group",
    "alpha",
    "name",
    "kind",
    "source",
    "seed",
    "lr",
    "",
    "a b",
    "a\nb",
    "ß",
    "__class__",
]


def _paths(tables: Mapping[str, Any], at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in tables.items():
        found.append((*at, key))
        if isinstance(value, Mapping):
            found += _paths(value, (*at, key))
    return found


def _mutated(rng: random.Random) -> dict[str, Any]:
    """A valid configuration of random choices, damaged in some places."""
    tables = tomllib.loads(ISSUE)
    for kind, table, key in (
        ("source", tables["data"], "source"),
        ("partition", tables["data"]["partition"], "kind"),
        ("model", tables["model"], "name"),
        ("algorithm", tables["algorithm"], "name"),
    ):
        if rng.random() < 0.3:
            table[key] = rng.choice(sorted(registry.names(kind)))
    for _ in range(rng.choice([0, 1, 1, 2, 3, 6])):
        *parents, last = rng.choice(_paths(tables) or [("seed",)])
        at: Any = tables
        for part in parents:
            at = at[part]
        action = rng.randrange(4)
        if action == 0:
            del at[last]
        elif action == 1:
            at[last] = rng.choice(VALUES)
        elif action == 2:
            at[rng.choice(KEYS)] = rng.choice(VALUES)
        else:
            at[last[:-1] + rng.choice("xs_")] = at.pop(last)
    return tables


def test_2000_fuzzed_configurations_are_accepted_or_refused_by_lines_with_a_key() -> None:
    rng = random.Random(2)
    accepted = 0
    refusals = 0
    for _ in range(2000):
        tables = _mutated(rng)
        try:
            config = check(tables, "c.toml")
        except ConfigError as error:
            refusals += 1
            _assert_lines(str(error), tables)
        else:
            accepted += 1
            assert isinstance(config, RunConfig)
            assert len(config_hash(tomllib.loads(config.toml()))) == 64
    assert min(accepted, refusals) > 200


def _assert_lines(message: str, tables: Mapping[str, Any]) -> None:
    keys = {part for path in _paths(tables) for part in path}
    known = {
        "seed",
        "data",
        "model",
        "local",
        "train",
        "algorithm",
        "engine",
        "quorum",
        "checkpoint",
        "configuration",
    }
    for line in message.splitlines():
        assert line.startswith("c.toml: ")
        assert line.isprintable()
        assert ", got " in line
        assert "; expected " in line
        head = line.removeprefix("c.toml: ").split(": ")[0].split(".")[0]
        assert head in known or head.strip("'") in keys or head.startswith(("'", '"'))


def test_a_thousand_damaged_files_are_accepted_or_refused(tmp_path: Path) -> None:
    rng = random.Random(3)
    file = tmp_path / "c.toml"
    for _ in itertools.repeat(None, 1000):
        data = bytearray(ISSUE.encode())
        for _ in range(rng.choice([1, 2, 8])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data)
        found = ""
        try:
            load(file)
        except ConfigError as error:
            found = str(error)
        assert all(line.startswith(str(file)) for line in found.splitlines())

"""Which configurations are the same run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from coterie.config.identity import config_hash, differing
from coterie.config.schema import to_plain
from coterie.errors import Code, ConfigError
from coterie.experiment import check
from coterie.experiment.tables import record_types
from tests.refusals import refuses


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


def test_runs_of_today_stay_the_same_runs(tables: dict[str, Any]) -> None:
    """A failure means that an option was added which existing folders do not have. It should be off,
    or stand in `ADDED` with its default."""
    needed = {"train": {"rounds": 1}, "privacy": {"noise": 1.0}, "personal": {"layers": ("head",)}}
    fixed = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 30}},
        "model": {"name": "mclr"},
        "train": {"rounds": 1},
        "algorithm": {"name": "fedavg"},
    }
    resolved = check(fixed).resolved()
    for name, record in record_types().items():
        resolved[name] = to_plain(record(**needed.get(name, {})))
    assert config_hash(resolved) == (
        "177b9b67cb7765f4f0a06a78874021f170505a01c445a57d7c8b7d1c5c2b1dc4"
    )
    resolved["engine"]["threads"] = 2
    resolved["local"]["precision"] = "bfloat16"
    resolved["train"]["over_selection"] = 1.5
    assert config_hash(resolved) == (
        "3fe22bd745619ed16a603c7a16984fca6d2b2b1aeb564881001eb3d4b5bb53cb"
    )


def test_what_is_off_in_a_record_is_as_what_is_not_set(tables: dict[str, Any]) -> None:
    """So an option that is added, and is off, leaves the identity of runs as it was."""
    resolved = check(tables).resolved()
    later = {**resolved, "local": {**resolved["local"], "added_later": False}}
    assert config_hash(later) == config_hash(resolved)
    later["local"]["added_later"] = True
    assert differing(later, resolved) == ["local.added_later"]
    for table, key in (("train", "evaluate_loss"), ("evaluate", "unseen_labels")):
        off = {**resolved, table: {key: False}}
        assert differing(off, {**resolved, table: {}}) == sorted([table, f"{table}.{key}"])


def test_a_default_written_out_is_the_same_configuration(tables: dict[str, Any]) -> None:
    one = config_hash(check(tables).resolved())
    tables["algorithm"]["eta_g"] = 0
    assert config_hash(check(tables).resolved()) == one


def test_an_option_that_came_later_counts_where_it_is_used(tables: dict[str, Any]) -> None:
    one = check(tables).resolved()
    before = {name: table for name, table in one.items() if name != "evaluate"}
    assert config_hash(before) == config_hash(one)
    tables["evaluate"] = {"local": True}
    assert differing(check(tables).resolved(), before) == ["evaluate.local"]


def test_keys_of_other_versions_are_unknown(tables: dict[str, Any]) -> None:
    tables["train"]["evaluate_local"] = True
    with refuses(ConfigError, "unknown-key", "train.evaluate_local"):
        check(tables)


def test_personal_layers_are_part_of_a_run_where_there_are_any(tables: dict[str, Any]) -> None:
    one = check(tables).resolved()
    tables["personal"] = {"layers": []}
    assert config_hash(check(tables).resolved()) == config_hash(one)
    tables["personal"] = {"layers": ["head"]}
    assert differing(check(tables).resolved(), one) == ["personal.layers"]


def test_threads_are_part_of_a_run_where_there_are_several(tables: dict[str, Any]) -> None:
    one = check(tables).resolved()
    assert one["engine"]["threads"] == 1
    before = {**one, "engine": {k: v for k, v in one["engine"].items() if k != "threads"}}
    assert config_hash(before) == config_hash(one)
    tables["engine"]["threads"] = 2
    assert differing(check(tables).resolved(), one) == ["engine.threads"]
    wrong: dict[Any, Code] = {
        0: "out-of-range",
        257: "out-of-range",
        1.5: "wrong-type",
        "two": "wrong-type",
    }
    for got, code in wrong.items():
        tables["engine"]["threads"] = got
        with refuses(ConfigError, code, "engine.threads"):
            check(tables)


def test_an_engine_without_threads_refuses_them(tables: dict[str, Any]) -> None:
    tables["engine"] = {"name": "vmap", "threads": 2}
    with refuses(ConfigError, "in-conflict", "engine.threads"):
        check(tables)

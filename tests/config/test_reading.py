"""Configurations that are accepted, files and overrides, and defaults."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from coterie.config import registry
from coterie.config.schema import table_of
from coterie.core.solver import Solver
from coterie.experiment import check, load_config
from coterie.experiment.experiment import fit_to_clients
from tests.config.complete import COMPLETE
from tests.conftest import config_errors

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def test_the_complete_configuration_is_accepted(tables: dict[str, Any]) -> None:
    config = check(tables)
    assert config.train.rounds == 300
    assert config.options("algorithm")["alpha"] == 20
    assert config.options("partition") == {"clients": 1000, "classes_per_client": 2}
    assert config.options("source") == {"pixels": "standardised", "hub": False}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_accepted(path: Path) -> None:
    config = load_config(path)
    assert getattr(config.data, "root", None) is None
    assert check(tomllib.loads(config.toml())).resolved() == config.resolved()


def test_every_dataset_has_an_example() -> None:
    # The tutorial, docs/scaling.md, `coterie deploy init` and runs from Python write those.
    elsewhere = {"file", "hub", "image_folder", "nodes", "saved"}
    shown = {load_config(p).name("source") for p in EXAMPLES}
    missing = set(registry.names("source")) - elsewhere - shown
    assert not missing, f"{missing}: add a configuration to examples"


def test_resolved_holds_every_default_and_survives_toml(tables: dict[str, Any]) -> None:
    resolved = check(tables).resolved()
    assert resolved["checkpoint"] == {"seconds": 10.0, "keep": 2}
    assert resolved["local"]["momentum"] == 0.0
    assert check(tomllib.loads(tomli_w.dumps(resolved))).resolved() == resolved


def test_local_is_the_solver(tables: dict[str, Any]) -> None:
    names = {f.name for f in dataclasses.fields(Solver)} - {"steps"}
    fields = table_of(Solver).model_fields
    assert isinstance(check(tables).local, Solver)
    assert set(fields) == names
    assert {name: fields[name].default for name in names} == {
        name: getattr(Solver(), name) for name in names
    }


def test_whole_numbers_pass_for_numbers(tables: dict[str, Any]) -> None:
    tables["local"]["lr"] = 1
    assert isinstance(check(tables).local.lr, float)


def test_overrides(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(COMPLETE)
    config = load_config(
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


def test_a_custom_factory(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "custom_factories.py").write_text(
        "def algorithm(groups: int = 3, warmth: float = 0.5): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    tables["algorithm"] = {"name": "custom_factories:algorithm", "groups": 5}
    assert check(tables).options("algorithm") == {"groups": 5, "warmth": 0.5}
    tables["algorithm"]["warm"] = 1
    (line,) = config_errors(lambda: check(tables))
    assert "did you mean 'warmth'?" in line


def test_the_number_of_clients_may_come_with_the_data(tables: dict[str, Any]) -> None:
    tables["data"]["partition"] = {"kind": "natural", "column": "writer_id"}
    config = check(tables, "c.toml")
    fit_to_clients(config, 60)
    found = config_errors(lambda: fit_to_clients(config, 10))
    assert [line.split(": ")[1] for line in found] == ["train.clients_per_round", "algorithm.alpha"]
    assert config_errors(lambda: fit_to_clients(config, 2))[1] == (
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
    (line,) = config_errors(lambda: fit_to_clients(check(tables, "c.toml"), 12))
    assert "algorithm.alpha: a cold start of alpha * groups = 60 clients, got 20" in line


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xff\xfe", "not UTF-8 at byte 0 (0xff)"),
        (b"seed = = 1", "not valid TOML"),
        (b"a = " + b"[" * 5000, "c.toml: "),
        (b"a = " + b"9" * 5000, "not valid TOML"),
        (b"a = 1979-05-27", "a: unknown key, got '1979-05-27'"),
        (b"", "train: missing"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(content)
    found = config_errors(lambda: load_config(file))
    assert any(what in line for line in found)
    assert all(line.startswith(str(file)) for line in found)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "no such file" in config_errors(lambda: load_config(tmp_path / "c.toml"))[0]
    assert "Is a directory" in config_errors(lambda: load_config(tmp_path))[0]
    assert "cannot be read" in config_errors(lambda: load_config("a" * 5000))[0]
    assert len(config_errors(lambda: load_config("a\0b"))) == 1


@pytest.mark.parametrize("override", ["seed", "=3", "a..b=1", "seed.x=1", "train.rounds=1\nseed=3"])
def test_overrides_that_are_none(tmp_path: Path, override: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(COMPLETE)
    assert len(config_errors(lambda: load_config(file, [override]))) == 1

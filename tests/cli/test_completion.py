"""Shell completion: the names are those of the registries, and a shell gets them without waiting
for torch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from coterie.cli.completion import complete_algorithms, complete_run, complete_set
from coterie.cli.declarations import keys_in_tables, options_in, registered
from coterie.config import registry
from coterie.config.kinds import KINDS
from coterie.experiment.tables import CHOICES
from coterie.listed import LISTED
from coterie.studies.reproduce import PAPERS
from tests.docs.pages import record_tables


def test_the_names_are_those_of_the_registries() -> None:
    for name, kind in KINDS.items():
        if kind.place:
            assert registered(kind.path) == list(registry.names(name))
    assert set(LISTED.values()) == set(KINDS)
    assert all(registry.names(kind) for kind in LISTED.values())
    folder = resources.files("coterie.studies.reproduce")
    assert all(folder.joinpath(f"{paper}.toml").is_file() for paper in PAPERS)


def test_the_keys_are_those_of_the_records() -> None:
    tables = record_tables.keys_of_tables()
    keys = {f"{table}.{key.name}" for table, keys in tables.items() for key in keys}
    keys |= {"seed", "folder", "data.root"}
    # A table within a table is completed by its own keys.
    assert set(keys_in_tables()) == keys - set(tables)
    assert complete_set("local.step_schedule.w") == ["local.step_schedule.warmup="]
    assert complete_set("see") == ["seed="]


@pytest.mark.parametrize("table", sorted(set(CHOICES)))
def test_the_options_are_those_of_the_factories(table: str) -> None:
    known = {
        ".".join((*where.place, option))
        for kind, where in KINDS.items()
        if where.place[:1] == (table,)
        for name in registry.builtin(kind)
        for option in registry.options(kind, name)
    }
    # An option that is a table is completed by its own keys.
    assert {
        path if path in known else path.rpartition(".")[0] for path in options_in(table)
    } == known


def test_options_of_choices_follow_their_table() -> None:
    assert complete_set("engine.wor") == ["engine.workers="]
    assert complete_set("algorithm.group") == ["algorithm.groups=", "algorithm.group_init="]
    assert complete_set("data.window.h") == ["data.window.horizon="]
    assert complete_set("data.roo") == ["data.root="]
    assert complete_set("algo") == ["algorithm.name="]


def test_lists_and_assignments() -> None:
    assert complete_algorithms("ifca,fesem,if") == []
    assert complete_algorithms("fedclu") == ["fedclust"]
    assert complete_set("algorithm.name=fedgr") == [
        "algorithm.name=fedgroup",
        "algorithm.name=fedgrouprox",
    ]
    assert complete_set("shift.kind=swap_a") == ["shift.kind=swap_all"]
    assert complete_set("no.such=") == []


def test_run_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a", "runs/b", "runs/sweep/c", "here", "runs/.hidden"):
        Path(name).mkdir(parents=True)
        (Path(name) / "config.toml").touch()
    (tmp_path / "other").mkdir()
    assert complete_run("") == ["here", "runs/a", "runs/b"]
    assert complete_run("runs/") == ["runs/a", "runs/b"]
    assert complete_run("runs/s") == ["runs/sweep/"]
    assert complete_run("runs/sweep/") == ["runs/sweep/c"]
    assert complete_run(f"{tmp_path}/h") == [f"{tmp_path}/here"]
    assert complete_run("nowhere/") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("coterie list alg", "algorithms"),
        ("coterie compare x --algorithms ifca,flexc", "ifca,flexcfl"),
        ("coterie watch he", "here"),
        ("coterie exp", "export"),
        ("coterie run x.toml --set algorithm.restar", "algorithm.restarts="),
    ],
)
def test_a_shell_gets_them(words: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.toml").touch()
    script = (
        "import sys, atexit\n"
        "from coterie.cli.main import main\n"
        "atexit.register(lambda: print(*{'torch', 'pydantic'} & set(sys.modules)))\n"
        "main()"
    )
    asked = {
        "_COTERIE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **asked},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [expected], done.stderr

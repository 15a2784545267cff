"""The cells of Python versions and dependencies: what pip is told."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools import version_matrix
from tools.version_matrix import ROOT, Cell, constraints, interpreter, lowest


def test_every_dependency_has_a_lowest_version(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(lowest(project["dependencies"])) == len(project["dependencies"])
    flag, file = constraints(Cell("3.11", "lowest"), tmp_path)
    assert flag == "-c"
    assert "numpy==2.2.*" in Path(file).read_text(encoding="utf-8").splitlines()
    assert constraints(Cell("3.11", "newest"), tmp_path) == []


def test_the_cell_of_flower_installs_it_and_tests_the_strategy(tmp_path: Path) -> None:
    cell = Cell("3.11", "flower")
    assert constraints(cell, tmp_path) == []
    assert cell.package == f"{ROOT}[flower]"
    assert all((ROOT / folder).is_dir() for folder in cell.tests)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (flower,) = (
        line for line in lowest(project["optional-dependencies"]["flower"]) if "flwr" in line
    )
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    # So the lowest version is that of every other run of these tests.
    assert any(line.startswith(flower.removesuffix("*")) for line in pinned)


def test_a_python_that_is_not_there_is_said_and_not_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter("3.14t") is None
    found = version_matrix.run(Cell("3.14t", "newest"), [], tmp_path)
    assert found == "not run: no such Python on this machine"

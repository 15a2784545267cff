"""Algorithms, networks, datasets and engines of other packages, found by their entry points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.cli.main import invoke
from coterie.config import check, choices, plugins, registry
from coterie.engines.serial import SerialEngine
from coterie.errors import ConfigError

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"
TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
    "model": {"name": "mclr"},
    "local": {"epochs": 1},
    "train": {"rounds": 1},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "serial"},
}


# --- the example, installed -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package installed in it."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    shutil.copytree(PLUGIN, source)  # the build writes beside it
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--no-build-isolation", "--target", str(folder / "site"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def python(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package installed."""
    paths = [str(ROOT / "src"), str(site)]
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def coterie(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(site, folder, "-m", "coterie.cli", *arguments)


LISTS = """
from coterie.cli.main import invoke

assert invoke(["list", "algorithms"]) == 0
print("---")
assert invoke(["list", "models"]) == 0
"""


def test_the_example_is_listed_with_its_package(site: Path, tmp_path: Path) -> None:
    done = python(site, tmp_path, "-c", LISTS)
    assert done.returncode == 0, done.stderr
    for listed, name in zip(done.stdout.split("---\n"), ("clipped", "narrow"), strict=True):
        assert name in listed
        assert "coterie-clipped" in listed


def test_the_example_runs(site: Path, tmp_path: Path) -> None:
    done = coterie(site, tmp_path, "run", str(PLUGIN / "clipped.toml"), "--out", "run")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["algorithm"], summary["model"], summary["rounds"]) == ("clipped", "narrow", 3)


def test_its_options_are_validated_by_its_signature(site: Path, tmp_path: Path) -> None:
    setting = "algorithm.largest_step=-1"
    done = coterie(site, tmp_path, "run", str(PLUGIN / "clipped.toml"), "--set", setting)
    assert done.returncode == ConfigError.code
    assert "algorithm.largest_step: out of range, got -1; expected a number > 0" in done.stderr


# --- entry points made up -------------------------------------------------------------------------


class Package:
    def __init__(self, name: str) -> None:
        self.name = name


def entry(name: str, value: str, group: str, package: str) -> EntryPoint:
    point = EntryPoint(name, value, group)
    vars(point)["dist"] = Package(package)  # as importlib does it
    return point


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Pretends that entry points are installed: ``install(("name", "module:factory", ...))``."""
    caches = (plugins.find_plugins, registry.table_model, choices._model, choices._engine_model)

    def forget() -> None:
        for cached in caches:
            cached.cache_clear()

    def pretend(*points: tuple[str, str, str, str]) -> None:
        found = [entry(*point) for point in points]
        monkeypatch.setattr(
            plugins, "entry_points", lambda group: [one for one in found if one.group == group]
        )
        forget()

    yield pretend
    forget()


def clumsy(power: float = 1.0) -> ct.Method:
    """FedAvg under another name."""
    return ct.fedavg()


def failing(power: float = 1.0) -> ct.Method:
    """It cannot be made."""
    raise RuntimeError("out of tea")


def few_digits(rows: int = 40) -> Any:
    """The first of the digits."""
    from dataclasses import replace

    from coterie.data import load_samples

    samples = load_samples({"kind": "digits"})
    return replace(samples, x=samples.x[:rows], y=samples.y[:rows], train_rows=rows)


def slow(simulation: Any, pause: float = 0.0) -> SerialEngine:
    """One client after another."""
    return SerialEngine(simulation.runner)


HERE = __name__
ALGORITHMS = "coterie.algorithms"


def test_every_kind_of_plugin_runs(install: Install, tmp_path: Path) -> None:
    from coterie.runs.run import run_config

    install(
        ("clumsy", f"{HERE}:clumsy", ALGORITHMS, "tea"),
        ("few_digits", f"{HERE}:few_digits", "coterie.datasets", "tea"),
        ("slow", f"{HERE}:slow", "coterie.engines", "tea"),
    )
    tables = TABLES | {
        "algorithm": {"name": "clumsy", "power": 2.0},
        "data": {"source": "few_digits", "rows": 60, "partition": {"kind": "iid", "clients": 4}},
        "engine": {"name": "slow", "pause": 0.5},
    }
    config = check(tables)
    assert config.engine.options["pause"] == 0.5
    assert run_config(config, tmp_path / "run")["rounds"] == 1
    assert registry.package("algorithm", "clumsy") == "tea"
    assert registry.package("algorithm", "fedavg") is None


def test_a_broken_plugin_is_one_line_and_breaks_no_other(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        ("broken", "no_such_module:factory", ALGORITHMS, "tea"),
        ("clumsy", f"{HERE}:clumsy", ALGORITHMS, "tea"),
    )
    assert check(TABLES | {"algorithm": {"name": "clumsy"}}).algorithm.name == "clumsy"
    with pytest.raises(ConfigError) as caught:
        check(TABLES | {"algorithm": {"name": "broken"}}, "c.toml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("c.toml: plugin: cannot be loaded (ModuleNotFoundError")
    assert "got 'broken' of package 'tea' (entry point coterie.algorithms)" in line
    assert invoke(["list", "algorithms"]) == 0
    shown = capsys.readouterr()
    assert "clumsy" in shown.out
    assert "fedavg" in shown.out
    assert "'broken' of package 'tea'" in shown.err


def test_a_plugin_that_fails_is_one_line(install: Install) -> None:
    install(("failing", f"{HERE}:failing", ALGORITHMS, "tea"))
    with pytest.raises(ConfigError, match=r"^algorithm.name: failed \(RuntimeError: out of tea\)"):
        registry.build("algorithm", {"name": "failing"})


def test_a_name_of_coteries_own_stays_coteries(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(("fedavg", f"{HERE}:clumsy", ALGORITHMS, "tea"))
    assert registry.find("algorithm", "fedavg") is ct.fedavg
    assert invoke(["list", "algorithms"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "Coterie has one of this name, got 'fedavg' of tea" in line
    assert line.endswith("expected another name")


def test_a_name_of_two_packages_is_refused(install: Install) -> None:
    install(
        ("clumsy", f"{HERE}:clumsy", ALGORITHMS, "tea"),
        ("clumsy", f"{HERE}:failing", ALGORITHMS, "coffee"),
    )
    with pytest.raises(ConfigError) as caught:
        check(TABLES | {"algorithm": {"name": "clumsy"}})
    (line,) = str(caught.value).splitlines()
    assert "several packages have one of this name, got 'clumsy' of coffee, tea" in line
    assert check(TABLES).algorithm.name == "fedavg"

"""Algorithms, networks, datasets and engines of other packages, found by their entry points."""

from __future__ import annotations

import json
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
from coterie.config import registry
from coterie.engines.simulation import SerialEngine
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.experiment import model as choices
from tests.refusals import refuses
from tests.runs.calls import sweeps_here

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


CACHES = (registry.find_plugins, registry.table_model, choices._model, choices._engine_model)


def forget() -> None:
    """Look for entry points again."""
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example package is installed for this process."""
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield
    forget()
    for name in [name for name in sys.modules if name.startswith("coterie_clipped")]:
        del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_the_example_is_listed_with_its_package(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in (("algorithms", "clipped"), ("models", "narrow")):
        assert invoke(["list", kind]) == 0
        listed = capsys.readouterr().out
        assert name in listed
        assert "coterie-clipped" in listed


@pytest.mark.usefixtures("installed")
def test_the_example_runs(tmp_path: Path) -> None:
    command = ["run", str(PLUGIN / "clipped.toml"), "--out", str(tmp_path / "run")]
    assert invoke(command) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["algorithm"], summary["model"], summary["rounds"]) == ("clipped", "narrow", 3)


@pytest.mark.usefixtures("installed")
def test_the_example_stands_on_the_scoreboard_beside_the_published_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = ["--methods", "clipped", "--federations", "rotation", "--no-tune", "--jobs", "1"]
    with sweeps_here():
        assert invoke(["scoreboard", "small", *one, "--merge", "published", "--out", "board"]) == 0
    page = (tmp_path / "board" / "scoreboard.md").read_text(encoding="utf-8")
    ranks = page.partition("## Scores, defaults, equal work")[2].partition("##")[0]
    shown = [line.split("|")[1].strip() for line in ranks.splitlines() if line.startswith("| ")]
    assert "clipped" in shown
    assert "cornflqs" in shown


@pytest.mark.usefixtures("installed")
def test_its_options_are_validated_by_its_signature(capsys: pytest.CaptureFixture[str]) -> None:
    setting = "algorithm.largest_step=-1"
    assert invoke(["run", str(PLUGIN / "clipped.toml"), "--set", setting]) == ConfigError.code
    said = capsys.readouterr().err
    assert "algorithm.largest_step: out of range, got -1; expected a number > 0" in said


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

    def pretend(*points: tuple[str, str, str, str]) -> None:
        found = [entry(*point) for point in points]
        monkeypatch.setattr(
            registry, "entry_points", lambda group: [one for one in found if one.group == group]
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

    samples = load_samples({"source": "digits"})
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
    with refuses(ConfigError, "failed", "algorithm.name"):
        registry.build("algorithm", {"name": "failing"})


def test_a_name_of_coteries_own_stays_coteries(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(("fedavg", f"{HERE}:clumsy", ALGORITHMS, "tea"))
    assert registry.find("algorithm", "fedavg") is ct.fedavg
    assert invoke(["list", "algorithms"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "Coterie already has this name, got 'fedavg' of tea" in line
    assert line.endswith("expected another name")


def test_a_name_of_two_packages_is_refused(install: Install) -> None:
    install(
        ("clumsy", f"{HERE}:clumsy", ALGORITHMS, "tea"),
        ("clumsy", f"{HERE}:failing", ALGORITHMS, "coffee"),
    )
    with pytest.raises(ConfigError) as caught:
        check(TABLES | {"algorithm": {"name": "clumsy"}})
    (line,) = str(caught.value).splitlines()
    assert "several packages define this name, got 'clumsy' of coffee, tea" in line
    assert check(TABLES).algorithm.name == "fedavg"

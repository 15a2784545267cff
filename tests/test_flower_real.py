"""Federations of real processes, ``make test-flower``: minutes each, on two cores half an hour and more in all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.config import RunConfig, check, read
from coterie.deploy import local as here
from coterie.deploy.folder import init
from coterie.deploy.run import follow, submit
from coterie.deploy.settings import Settings, load
from coterie.experiment import run_config
from tests.test_deploy import CONFIG, difference, left_behind
from tests.test_flower import METHODS

pytestmark = pytest.mark.flower
LONG = 900.0


class Site:
    """A federation that is up, and runs on it."""

    def __init__(self, folder: Path, up: here.Local, config: RunConfig, settings: Settings) -> None:
        self.folder, self.up, self.config, self.settings = folder, up, config, settings
        self.count = 0

    def with_algorithm(self, rounds: int = 5, **algorithm: Any) -> RunConfig:
        """The configuration with another method."""
        tables = read(self.folder / "run.toml") | {"algorithm": algorithm}
        tables["train"] |= {"rounds": rounds, "evaluate_every": rounds}
        return check(tables)

    def run(
        self,
        config: RunConfig,
        on_round: Callable[[Mapping[str, Any]], None] = lambda row: None,
        out: Path | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> Path:
        """Submit a run, follow it to its end; returns its folder."""
        self.count += 1
        out = out or self.folder / "runs" / f"run-{self.count}"
        known = replace(self.settings, **settings)
        number = submit(self.folder, config, known, str(out), resume)
        follow(self.folder, config, number, on_round)
        return out

    def simulated(self, config: RunConfig, name: str) -> Path:
        """The same run on the serial engine."""
        out = self.folder / "simulated" / name
        run_config(check(config.resolved() | {"engine": {"name": "serial"}}), out)
        return out


@contextmanager
def site(folder: Path, clients: int, up: int | None = None, **settings: Any) -> Iterator[Site]:
    folder.mkdir(parents=True, exist_ok=True)
    text = CONFIG.replace("clients = 3", f"clients = {clients}").replace("_per_round = 3", f"_per_round = {clients}")
    (folder / "c.toml").write_text(text)
    init(folder / "d", folder / "c.toml")
    config, known = load(folder / "d")
    with here.local(folder / "d", up or clients) as local:
        known = replace(here.settings_here(known, local), longest_wait=LONG, reply_wait=LONG, **settings)
        yield Site(folder / "d", local, config, known)
    assert not left_behind(folder)


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("six"), 6) as up:
        yield up


@pytest.mark.parametrize("name", METHODS)
def test_six_nodes_five_rounds_are_the_serial_engine(name: str, six: Site) -> None:
    config = six.with_algorithm(name=name, **METHODS[name])
    begun = time.monotonic()
    out = six.run(config)
    gap = difference(out, six.simulated(config, name))
    print(f"{name}: {time.monotonic() - begun:.0f} s, largest difference {gap:g}")
    assert gap <= 1e-6
    assert not any(row["refused"] for row in rows_of(out))

"""The engine over Flower's grid, without Flower's processes: equal to the simulation, whatever happens on the way."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from safetensors.torch import load_file

from coterie.config import check
from coterie.deploy.serve import serve
from coterie.experiment import run_config
from tests.fake_grid import FakeGrid, Meddle, contexts

METHODS: Mapping[str, dict[str, Any]] = {
    "fedavg": {},
    "fedgroup": {"groups": 2, "alpha": 2},
    "flexcfl": {"groups": 2, "alpha": 2, "eta_g": 0.1},
    "ifca": {"groups": 2},
    "fedclust": {},
    "fedgsp": {"beta": 2},
    "rfedavg": {"l_star": 0.5},
}
SETTINGS = {
    "clients": 6, "shape": [1, 8, 8], "classes": [str(c) for c in range(10)], "min_clients": 6, "longest_wait": 5.0,
    "reply_wait": 2.0, "most_samples": 1e6,
}  # fmt: skip


def tables(name: str = "fedavg", rounds: int = 2, clients: int = 6, **options: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {"source": "digits", "partition": {"kind": "planted", "clients": clients, "groups": 2}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "engine": {"name": "serial"},
        "train": {"rounds": rounds, "clients_per_round": 6},
        "algorithm": {"name": name, **METHODS.get(name, {}), **options},
    }


class Told:
    """What the server told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.lines: list[str] = []

    def __call__(self, what: str, value: Any) -> None:
        if what == "round":
            self.rows.append(value)
        if what == "say":
            self.lines.append(value)

    @property
    def refused(self) -> Counter[str]:
        return sum((Counter(row["refused"]) for row in self.rows), Counter())


def deploy(
    folder: Path, config: Mapping[str, Any], grid: FakeGrid | None = None, *, resume: bool = False, **settings: Any
) -> Told:
    """Run a configuration on nodes in this process."""
    told, changed = Told(), {**SETTINGS, **settings}
    grid = grid or nodes(folder, config)
    given = {
        "config": tomli_w.dumps(config), "settings": json.dumps(changed), "out": str(folder / "run"), "resume": resume
    }  # fmt: skip
    serve(grid, given, told)
    return told


def nodes(folder: Path, config: Mapping[str, Any], clients: int = 6, meddle: Meddle | None = None) -> FakeGrid:
    return FakeGrid(contexts(config, SETTINGS, range(clients), folder), *([meddle] if meddle else []))


def models(run: Path) -> torch.Tensor:
    files = sorted((run / "models").glob("*.safetensors"))
    return torch.stack([torch.cat([t.ravel() for _, t in sorted(load_file(file).items())]) for file in files])


def groups(run: Path) -> list[int]:
    with (run / "groups.csv").open() as file:
        return [int(row["group"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("name", METHODS)
def test_models_are_those_of_the_serial_engine(name: str, tmp_path: Path) -> None:
    config = tables(name)
    told = deploy(tmp_path, config)
    run_config(check(config), tmp_path / "here")
    assert not told.refused
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    assert groups(tmp_path / "run") == groups(tmp_path / "here")

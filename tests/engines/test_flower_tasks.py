"""Other tasks than classification over nodes: the models and the figures are those of the serial
engine."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

import coterie as ct
from coterie.core.keys import Key
from coterie.data import Population
from coterie.data.sources.saved import POPULATION, population_bytes, population_digest
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.export import export_run
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.node.cache import NodeCache
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.node import Node
from coterie.flower.settings import form_of
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.engines.fake_grid import FakeGrid, as_deployed, contexts, parts_of
from tests.engines.test_flower import SETTINGS, Reported, deploy, models

FOUR = {"clients": 4, "min_clients": 4}
Targets = Callable[[Tensor], Tensor]


def numbers(x: Tensor) -> Tensor:
    return x.sum(dim=1)


def several(x: Tensor) -> Tensor:
    return x[:, :2] * 2


def positive(x: Tensor) -> Tensor:
    return (x[:, 0] > 0).long()


def labels(x: Tensor) -> Tensor:
    return (x[:, :3] > 0).long()


TASKS: Mapping[str, tuple[dict[str, Any], Targets, str]] = {
    "regression": ({"kind": "regression", "loss": "huber"}, numbers, "mae"),
    "two-targets": ({"kind": "regression"}, several, "mae"),
    "binary": ({"kind": "binary"}, positive, "auroc"),
    "multilabel": ({"kind": "multilabel"}, labels, "macro_f1"),
}


def write(folder: Path, population: Population, task: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run on a population."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / POPULATION).write_bytes(population_bytes(population))
    return {
        "seed": 3,
        "data": {
            "source": "saved",
            "root": str(folder),
            "digest": population_digest(population),
            "partition": {"kind": "given"},
        },
        "task": dict(task),
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "engine": {"name": "serial"},
        "train": {"rounds": 2, "clients_per_round": 4, "evaluate_loss": True},
        "algorithm": {"name": "fedavg"},
    }


def four_clients(x: Tensor, y: Tensor, classes: int = 0) -> Population:
    parts = np.arange(len(x)).reshape(4, -1)
    return Population(x, y, tuple(parts[:, :8]), tuple(parts[:, 8:]), classes)


def compare(tmp_path: Path, config: dict[str, Any], headline: str) -> tuple[Reported, FakeGrid]:
    """A run on nodes beside that of the serial engine."""
    form = form_of(check(config))
    settings = {
        **SETTINGS,
        **FOUR,
        "shape": form.shape,
        "classes": form.classes,
        "target_shape": form.target_shape,
    }
    grid = FakeGrid(contexts(config, settings, range(4), tmp_path))
    reported = deploy(tmp_path, config, grid, **settings)
    run_config(check(as_deployed(config)), tmp_path / "here")
    assert not reported.refused
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    rows = [RunFolder(tmp_path / run).rows() for run in ("run", "here")]
    # A node scores its own rows alone, the simulation those of all clients of a model together. On
    # some processors the last bits of a matrix product depend on the rows beside.
    figures = (headline, f"{headline}_groups", "test_loss", "metrics")
    for one, other in zip(*rows, strict=True):
        for what in figures:
            assert one[what] == pytest.approx(other[what], abs=1e-6)
        assert one["transfers"] == other["transfers"]
    assert RunFolder(tmp_path / "run").headline.name == headline
    return reported, grid


@pytest.mark.parametrize("name", TASKS)
def test_a_task_over_nodes_is_that_of_the_serial_engine(name: str, tmp_path: Path) -> None:
    task, targets, headline = TASKS[name]
    x = torch.randn(48, 5, generator=Key(1).torch())
    y = targets(x)
    population = four_clients(x, y, 2 if name == "binary" else 0)
    config = write(tmp_path, population, task)
    _, grid = compare(tmp_path, config, headline)
    sent = {
        field
        for message in grid.replied
        for note, fields in parts_of(message)
        if note.get("purpose", "").endswith("evaluate")
        for field in fields
    }
    assert "loss" in sent
    if name == "regression":
        assert sent == {"absolute", "squared", "target", "target_squared", "size", "loss"}
    done = export_run(tmp_path / "run")
    last = RunFolder(tmp_path / "run").rows()[-1]
    assert done.card.figures.score == last[f"{headline}_all"]
    assert f"after {len(RunFolder(tmp_path / 'run').rows())} rounds" in (
        done.folder / "README.md"
    ).read_text(encoding="utf-8")


def test_tokens_over_nodes_are_those_of_the_serial_engine(tmp_path: Path) -> None:
    x = torch.randint(0, 7, (48, 6), generator=Key(2).torch())
    y = torch.cat([x[:, 1:], torch.full((48, 1), -100)], dim=1)
    config = write(tmp_path, four_clients(x, y), {"kind": "next_token"})
    config["model"] = {
        "name": "transformer",
        "width": 8,
        "heads": 2,
        "layers": 1,
        "per_token": True,
    }
    compare(tmp_path, config, "perplexity")


OWN = """
from torch import nn

class PerToken(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.embed = nn.Embedding(outputs, 3)
        self.dense = nn.Linear(3, outputs)

    def forward(self, x):
        return self.dense(self.embed(x))

def dense(shape, outputs):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.ReLU(), nn.Linear(4, outputs))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*TASKS, "classification", "next_token"])
def test_a_network_of_the_users_own_does_every_task(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By tables, in a folder, on nodes, read again, gone on with, and exported."""
    (tmp_path / "their_network.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    x = torch.randn(48, 5, generator=Key(1).torch())
    model = "their_network:dense"
    match name:
        case "next_token":
            x = torch.randint(0, 7, (48, 6), generator=Key(2).torch())
            task, headline = {"kind": "next_token"}, "perplexity"
            data = four_clients(x, torch.cat([x[:, 1:], torch.full((48, 1), -100)], dim=1))
            model = "their_network:PerToken"
        case "classification":
            task, headline = {"kind": "classification"}, "accuracy"
            data = four_clients(x, positive(x) + positive(-x.flip(1)), 3)
        case _:
            task, targets, headline = TASKS[name]
            data = four_clients(x, targets(x), 2 if name == "binary" else 0)
    config = write(tmp_path, data, task)
    config["model"] = {"name": model}
    if name != "classification":  # which `test_flower.py` has on nodes
        compare(tmp_path, config, headline)
    folder = tmp_path / "python"
    more = {"task": task, "engine": "serial", "out": folder, "local": ct.Solver(epochs=1)}
    ct.run(ct.fedavg(), data=data, model=model, rounds=1, **more)
    further = ct.resume(folder, rounds=2, trust=True)
    assert len(further.scores) == 2
    again = ct.Result.open(folder, trust=True)
    load = runpy.run_path(str(export_run(folder).folder / "load.py"))["load"]
    with torch.no_grad():
        assert torch.equal(load("0")(x), again.model_for(0)(x))


def test_a_method_that_counts_classes_is_refused_for_numbers(tmp_path: Path) -> None:
    x = torch.randn(48, 5, generator=Key(1).torch())
    config = write(tmp_path, four_clients(x, numbers(x)), {"kind": "regression"})
    config["algorithm"] = {"name": "fedgsp", "beta": 2}
    with refuses(ConfigError, "does-not-fit", "task.kind"):
        compare(tmp_path, config, "mae")


def test_a_node_whose_targets_the_task_cannot_learn_takes_no_part(tmp_path: Path) -> None:
    x = torch.randn(48, 5, generator=Key(1).torch())
    config = write(tmp_path, four_clients(x, labels(x)), {"kind": "multilabel"})
    spec = FederationSpec.of(check(config), form_of(check(config)), 4)
    assert spec.form.classes == ("0", "1", "2")
    wrong = ClientData.of((x, 2 * labels(x)), None, spec.form)
    with refuses(DataError, "does-not-fit", "task.kind"):
        Node(spec, wrong, NodeCache(tmp_path / "cache", "run"))

"""Clients scored on the samples that they train on."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import coterie as ct
from coterie.algorithms.local import local
from coterie.cli.main import invoke
from coterie.data.sources.files import DataForm
from coterie.experiment import check
from coterie.flower.federation_spec import FederationSpec
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.measures.small_runs import digits, measured
from tests.refusals import refuses


def without(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what this option adds, and without times."""
    return {name: v for name, v in row.items() if "training" not in name and name != "seconds"}


def test_the_figures_are_those_of_the_models_by_hand() -> None:
    data = digits()
    result = measured(ct.ifca(groups=2), evaluate={"training": True})
    correct = np.zeros(12)
    loss = 0.0
    for client in range(12):
        weight = result.state.models[result.groups[client]].double()
        x = data.x[data.train[client]].flatten(1).double()
        y = data.y[data.train[client]]
        logits = x @ weight[:640].view(10, 64).T + weight[640:]
        correct[client] = (logits.argmax(dim=1) == y).sum()
        loss += F.cross_entropy(logits, y, reduction="sum").item()
    size = data.sizes("train")
    row = result.rows[-1]
    assert row["evaluated_training"] == 12
    assert row["accuracy_training"] == pytest.approx(correct.sum() / size.sum())
    assert row["accuracy_training_mean"] == pytest.approx((correct / size).mean())
    assert row["training_loss"] == pytest.approx(loss / size.sum(), rel=1e-5)
    assert row["accuracy_training"] != row["accuracy"]
    assert "metrics_training" not in row
    assert [one.way.name for one in result.client_scores] == ["accuracy", "training"]


METHODS: dict[str, Any] = {
    "fedavg": ct.fedavg(),
    "fedgroup": ct.fedgroup(groups=2, alpha=2),
    "fedem": ct.fedem(groups=2),
    "fedper": ct.fedper(),
    "ditto": ct.ditto(),
    "perfedavg": ct.perfedavg(),
    "local": local(),
    "pooled": ct.pooled(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", METHODS)
def test_nothing_else_of_a_run_changes(name: str) -> None:
    before = measured(METHODS[name], model="mlp")
    after = measured(METHODS[name], model="mlp", evaluate={"training": True})
    assert torch.equal(after.state.models, before.state.models)
    for row, plain in zip(after.rows, before.rows, strict=True):
        assert without(row) == without(plain) == {k: v for k, v in plain.items() if k != "seconds"}
        assert 0 < row["accuracy_training"] <= 1
        assert row["training_loss"] > 0


def test_what_serves_a_client_is_scored() -> None:
    """A client that keeps its whole model fits its samples better than one that shares it."""
    alone = measured(local(), clients_per_round=12, evaluate={"training": True}).rows[-1]
    shared = measured(ct.fedavg(), clients_per_round=12, evaluate={"training": True}).rows[-1]
    assert alone["accuracy_training"] > shared["accuracy_training"] + 0.05
    own = measured(ct.ditto(), clients_per_round=12, evaluate={"training": True}).rows[-1]
    assert own["accuracy_training"] > shared["accuracy_training"] + 0.05


def test_engines_agree_and_other_tasks_have_their_metrics() -> None:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(240, 4)), dtype=torch.float32)
    parts = np.arange(240).reshape(12, 20)
    data = ct.Population(x, x.sum(dim=1), tuple(parts[:, :15]), tuple(parts[:, 15:]))
    options: dict[str, Any] = {"data": data, "task": "regression", "evaluate": {"training": True}}
    options["local"] = ct.Solver(epochs=2, lr=0.01)
    serial = measured(ct.ifca(groups=2), **options)
    pool = measured(ct.ifca(groups=2), **options | {"engine": {"name": "pool", "workers": 2}})
    row = serial.rows[-1]
    assert set(row["metrics_training"]) == {"rmse", "r2"}
    # The squared error of scaled targets is the loss of the task.
    scaled = row["metrics_training"]["rmse"] / serial.scaling.scale[0]
    assert row["training_loss"] == pytest.approx(scaled**2, rel=1e-5)
    for one, other in zip(serial.rows, pool.rows, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_a_sample_is_scored_where_all_are_too_many() -> None:
    rows = measured(ct.fedavg(), train={"evaluate_clients": 3}, evaluate={"training": True}).rows
    assert [row["evaluated_training"] for row in rows] == [3, 3]


def tables() -> dict[str, Any]:
    return {
        "data": {
            "source": "digits",
            "partition": {"kind": "planted", "clients": 12, "groups": 2},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": 3, "clients_per_round": 6},
        "evaluate": {"training": True},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
    }


def test_a_configuration_has_them_in_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run_config(check(tables()), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    last = folder.rows()[-1]
    assert summary["accuracy_training"]["final"] == last["accuracy_training"]
    assert "its own training samples" in summary["protocol"]["accuracy_training"]
    with (folder.path / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    size = sum(int(row["training_samples"]) for row in rows)
    correct = sum(int(row["correct_training"]) for row in rows)
    assert correct / size == pytest.approx(last["accuracy_training"])
    assert sum(int(row["correct"]) for row in rows) > 0
    assert invoke(["show", str(folder.path)]) == 0
    assert "training" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert invoke(["report", str(folder.path), "--out", str(page)]) == 0
    assert "each on its own training samples" in page.read_text()


def test_a_run_that_says_no_is_that_of_before() -> None:
    from coterie.config.identity import config_hash

    plain = tables()
    del plain["evaluate"]
    asked = check(tables()).resolved()
    before = check(plain).resolved()
    assert config_hash(asked) != config_hash(before)
    del before["evaluate"]["training"]
    assert config_hash(before) == config_hash(check(plain).resolved())


def test_what_cannot_be_scored_so_is_refused() -> None:
    with refuses(ct.ConfigError, "in-conflict", "evaluate.training"):
        measured(ct.fedavg(), evaluate={"training": True, "order": "before"})
    with refuses(ct.ConfigError, "in-conflict", "evaluate.training"):
        FederationSpec.of(check(tables()), DataForm((1, 8, 8), tuple("0123456789")), 12)

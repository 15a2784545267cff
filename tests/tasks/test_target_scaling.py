"""Targets of a regression are scaled while networks learn, and nowhere else."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import coterie as ct
from coterie.core.objective import TaskLoss
from coterie.core.solver import Solver
from coterie.core.target_scaling import TargetScaling, in_units, scaling_of, without_units
from coterie.experiment import check
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.trainers import Trainers
from coterie.models import Network
from coterie.runs.compose import compose
from coterie.runs.folder.digests import CONFIG, DIGESTS
from coterie.runs.folder.store import RunFolder
from coterie.tasks import Regression, fit_task, regression
from coterie.tasks.scaling import reported_scaling

CENTER = 5000.0
SPREAD = 300.0
LOSSES = ("squared", "absolute", "huber", "quantile")


def population(targets: int = 1, clients: int = 4, each: int = 40) -> ct.Population:
    """Clients with targets far from 0; the last quarter of each is for testing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * each, 4)).astype(np.float32)
    w = rng.normal(size=(4, targets))
    y = CENTER + SPREAD * (x @ w + 0.05 * rng.normal(size=(len(x), targets)))
    y *= 10.0 ** np.arange(targets)
    y = y.astype(np.float32)
    parts = np.arange(len(x)).reshape(clients, each)
    cut = each * 3 // 4
    return ct.Population(
        x, y if targets > 1 else y[:, 0], tuple(parts[:, :cut]), tuple(parts[:, cut:])
    )


def run(data: Any, task: Any = None, rounds: int = 3, **options: Any) -> ct.Result:
    local = {"epochs": 4, "lr": 0.05, "batch_size": 10}
    if task is None:
        task = {"kind": "regression"}
    return ct.run(
        "fedavg",
        data=data,
        model="mclr",
        task=task,
        rounds=rounds,
        local=local,
        engine="serial",
        **options,
    )


def persisting(path: Path) -> Path:
    """A table of four stations whose values are far from 0."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(160, 3)), columns=["a", "b", "c"])
    frame["y"] = CENTER + SPREAD * (frame.a - frame.b + 0.1 * rng.normal(size=160))
    frame["client"] = np.arange(160) // 40
    frame.to_csv(path, index=False)
    return path


def tables(path: Path, **task: Any) -> dict[str, Any]:
    return {
        "data": {
            "source": "file",
            "path": str(path),
            "features": "*",
            "label": "y",
            "client": "client",
            "partition": {"kind": "natural"},
        },
        "task": {"kind": "regression", **task},
    }


def test_the_first_round_is_better_than_the_mean_of_all_targets() -> None:
    data = population()
    scores = run(data).scores
    mean = reported_scaling(data).center[0]
    test = torch.cat([data.y[torch.from_numpy(rows)] for rows in data.test])
    baseline = (test - mean).abs().mean().item()
    assert scores[0] < baseline
    assert scores[-1] < baseline / 4


@pytest.mark.parametrize("targets", [1, 3])
def test_the_scale_is_that_of_all_training_targets(targets: int) -> None:
    data = population(targets)
    held = np.concatenate(data.train)
    y = data.y.double().numpy()[held].reshape(len(held), targets)
    scaling = reported_scaling(data)
    np.testing.assert_allclose(scaling.center, y.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scaling.scale, y.std(axis=0), rtol=1e-12)


def test_targets_with_a_single_value_are_not_divided() -> None:
    data = ct.Population(torch.zeros(4, 2), torch.full((4,), 7.0), ([0, 1], [2, 3]), ([], []))
    assert reported_scaling(data) == TargetScaling((7.0,), (1.0,))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("targets", [1, 3])
def test_losses_are_of_scaled_errors_and_metrics_of_errors(kind: Any, targets: int) -> None:
    data = population(targets)
    scaling = reported_scaling(data)
    plain = fit_task(regression(kind, delta=200.0, quantile=0.3), data)
    task = fit_task(regression(kind, delta=200.0, quantile=0.3), data, scaling)
    outputs = torch.randn(len(data.y), targets)
    predictions = scaling.to_targets(outputs)
    torch.testing.assert_close(task.predict(outputs), predictions)
    for name, added in plain.added(predictions, data.y).items():
        close = 1e-5 * float(added.abs().max())
        torch.testing.assert_close(task.added(outputs, data.y)[name], added, rtol=1e-4, atol=close)
    scale = torch.tensor(scaling.scale) ** (2 if kind in ("squared", "huber") else 1)
    errors = (data.y.reshape(len(data.y), targets) - predictions).double()
    expected = plain._losses(errors) / scale
    torch.testing.assert_close(
        task.loss(outputs, data.y).double(), expected.mean(dim=1), rtol=1e-3, atol=1e-5
    )


def test_compiled_code_trains_on_scaled_targets() -> None:
    data = population()
    scaling = reported_scaling(data)
    task = fit_task(regression(), data, scaling)
    network = Network.of("mlp", (4,), 1, 0, 0.0, {"hidden": 8})
    trainers = Trainers(network.module, network.decay)
    solver = Solver(epochs=2, batch_size=10, lr=0.05)
    objective = TaskLoss(task)
    samples = TrainingSamples(data.x[:30], data.y[:30])
    start = torch.cat([p.detach().ravel() for p in network.module.parameters()])
    found = []
    for trainer in (trainers.of(objective, solver), trainers.autograd(objective, solver)):
        out = torch.empty_like(start)
        trained = trainer.train(samples, start, out, solver, ct.Key(0))
        found.append((out, trained.loss))
    assert type(trainers.of(objective, solver)) is not type(trainers.autograd(objective, solver))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-6)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)
    assert found[0][0].abs().max() < 2


def test_a_model_of_a_result_predicts_in_the_units_of_the_targets() -> None:
    data = population()
    result = run(data, rounds=2)
    errors = []
    for client in range(data.clients):
        rows = torch.from_numpy(data.test[client])
        with torch.no_grad():
            predicted = result.model_for(client)(data.x[rows])[:, 0]
        errors.append((data.y[rows] - predicted).abs())
    assert torch.cat(errors).mean().item() == pytest.approx(result.scores[-1], rel=1e-5)


def test_a_model_of_a_result_may_begin_another_run() -> None:
    data = population()
    model = run(data, rounds=3).model_for(0)
    again = ct.run(
        "fedavg",
        data=data,
        model=model,
        task={"kind": "regression"},
        rounds=1,
        local={"lr": 0.01},
        engine="serial",
    )
    assert again.scores[0] < run(data, rounds=1).scores[0]
    assert without_units(model) is not model
    plain = torch.nn.Linear(2, 1)
    assert without_units(plain) is plain
    assert in_units(plain, None) is plain


def test_none_leaves_targets_as_they_are() -> None:
    data = population()
    result = run(data, {"kind": "regression", "scaling": "none"}, rounds=1)
    assert result.scaling is None
    assert result.scores[0] != run(data, rounds=1).scores[0]


def test_a_private_run_does_not_report_targets(tmp_path: Path) -> None:
    path = persisting(tmp_path / "t.csv")
    config = {
        **tables(path),
        "data": {**tables(path)["data"], "client": "client", "features": ["a", "b", "c"]},
        "model": {"name": "mclr"},
        "train": {"rounds": 1, "sampler": "poisson", "clients_per_round": 2},
        "algorithm": {"name": "fedavg"},
        "privacy": {"epsilon": 8.0},
    }
    assert scaling_of(compose(check(config)).spec.task) is None
    del config["privacy"]
    assert scaling_of(compose(check(config)).spec.task) is not None


# --- folders --------------------------------------------------------------------------------------


def saved(tmp_path: Path, name: str, rounds: int, **task: Any) -> Path:
    path = tmp_path / "t.csv"
    if not path.exists():
        persisting(path)
    run(**_of(tables(path, **task)), rounds=rounds, out=tmp_path / name)
    return tmp_path / name


def _of(config: dict[str, Any]) -> dict[str, Any]:
    return {"data": config["data"], "task": config["task"]}


def rows_of(folder: Path) -> list[Any]:
    return [row["mae"] for row in RunFolder.open(folder).rows()]


def test_a_resumed_run_equals_a_straight_one_and_counts_reports_once(tmp_path: Path) -> None:
    straight = saved(tmp_path, "straight", 4)
    ct.resume(saved(tmp_path, "run", 2), rounds=4)
    assert rows_of(tmp_path / "run") == rows_of(straight)
    record = json.loads((straight / "targets.json").read_text())
    y = pd.read_csv(tmp_path / "t.csv").y
    assert record["center"][0] == pytest.approx(y.mean(), rel=0.05)
    assert record["scale"][0] == pytest.approx(y.std(), rel=0.2)


def test_a_folder_of_an_earlier_version_keeps_its_unscaled_targets(tmp_path: Path) -> None:
    """Earlier versions had no key and no file: what they left is read, predicts, goes on and is
    exported with targets as they were."""
    straight = saved(tmp_path, "straight", 4, scaling="none")
    old = saved(tmp_path, "run", 2, scaling="none")
    assert not (old / "targets.json").exists()
    text = (old / CONFIG).read_text()
    assert 'scaling = "none"' in text
    (old / CONFIG).write_text(text.replace('scaling = "none"\n', "", 1))
    # `resume` makes a new record of the files as they are.
    (old / DIGESTS).unlink()
    ct.resume(old, rounds=4)
    assert rows_of(old) == rows_of(straight)
    found = ct.Result.open(old)
    assert found.scaling is None
    expected = ct.Result.open(straight).predict(tmp_path / "t.csv").frame()
    pd.testing.assert_frame_equal(found.predict(tmp_path / "t.csv").frame(), expected)


def test_clients_that_join_do_not_change_the_scale(tmp_path: Path) -> None:
    folder = saved(tmp_path, "run", 2)
    frame = pd.read_csv(tmp_path / "t.csv")
    frame["client"] = "new"
    frame["y"] *= 100
    frame.to_csv(tmp_path / "new.csv", index=False)
    before = ct.Result.open(folder).scaling
    ct.resume(folder, rounds=3, data=tmp_path / "new.csv")
    assert ct.Result.open(folder).scaling == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize("targets", [1, 2])
def test_predictions_and_exports_are_in_the_units_of_the_targets(
    tmp_path: Path, targets: int
) -> None:
    path = persisting(tmp_path / "t.csv")
    config = _of(tables(path))
    if targets == 2:
        frame = pd.read_csv(path)
        frame["z"] = -1000 * frame.y + 3
        frame.to_csv(path, index=False)
        config["data"] |= {"label": ["y", "z"], "features": ["a", "b", "c"]}
    run(**config, rounds=6, out=tmp_path / "run")
    result = ct.Result.open(tmp_path / "run")
    table = result.predict(path).frame()
    frame = pd.read_csv(path)
    names = {"y": "prediction"} if targets == 1 else {n: f"prediction of {n}" for n in ("y", "z")}
    for label, column in names.items():
        error = (table[column] - frame[label]).abs().mean()
        assert error < 0.5 * (frame[label] - frame[label].mean()).abs().mean()
    # The export does the same without Coterie.
    done = result.export(tmp_path / "export")
    command = [sys.executable, str(done.folder / "predict.py"), str(path), "out.csv"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    alone = pd.read_csv(tmp_path / "out.csv")
    for column in names.values():
        np.testing.assert_allclose(alone[column], table[column], rtol=1e-5)
    # Also a network of one's own takes the weights and predicts.
    load = runpy.run_path(str(done.folder / "load.py"))
    x = torch.randn(5, 3)
    own = without_units(result.model_for(0))
    for _ in range(2):
        loaded = load["load"](0, own)
    with torch.no_grad():
        close = 1e-5 * float(loaded(x).abs().max())
        torch.testing.assert_close(loaded(x), load["load"](0)(x), rtol=1e-5, atol=close)
        torch.testing.assert_close(loaded(x), result.model_for(0)(x), rtol=1e-5, atol=close)
    shutil.rmtree(done.folder)


def test_a_task_is_fitted_anew(tmp_path: Path) -> None:
    data = population()
    task = fit_task(regression(), data, reported_scaling(data))
    assert isinstance(task, Regression)
    assert fit_task(task, data).scaling is None

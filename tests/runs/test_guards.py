"""What a run warns of: divergence, models that predict one class, and figures beside the headline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.served import Served
from coterie.core.vectors import flatten
from coterie.data import Population
from coterie.engines.attacks import sign_flip
from coterie.runs.guards import DivergenceWatch, one_class_line
from coterie.tasks import Binary, binary, fit_task, regression
from tests.conftest import blobs
from tests.data.test_tables import columns, write


def federation(y: list[int]) -> Population:
    """Two clients that test on the second half of their samples."""
    labels = torch.tensor(y)
    rows = np.arange(len(y)).reshape(2, 2, -1)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return Population(x, labels, tuple(rows[:, 0]), tuple(rows[:, 1]), classes=2)


def line(population: Population, weights: list[list[float]], outputs: int = 2) -> str | None:
    """What is said of linear models with these weights and biases, one a client."""
    net = nn.Linear(1, outputs)
    served = Served(torch.tensor(weights), np.arange(len(weights)))
    assert served.models.shape[1] == len(flatten(net))
    task = fit_task(binary() if outputs == 1 else None, population)
    return one_class_line(task, population, net, served)


def test_models_of_one_class_are_said() -> None:
    mixed = federation([0, 1, 0, 1, 0, 1, 0, 0])
    always_zero = [[0.0, 0.0, 1.0, 0.0]] * 2
    said = line(mixed, always_zero)
    assert said is not None
    assert "predict class 0 for all 4 test samples (75.0 % are of this class)" in said
    # The second client's model predicts the other class.
    assert line(mixed, [always_zero[0], [0.0, 0.0, 0.0, 1.0]]) is None
    # All have the same label: then it is no fault.
    assert line(federation([0, 1, 0, 0, 0, 1, 0, 0]), always_zero) is None
    assert line(mixed, [[0.0, -3.0]] * 2, outputs=1) is not None
    assert line(mixed, [[1.0, -5.5]] * 2, outputs=1) is None
    assert isinstance(fit_task(binary(), mixed), Binary)


def test_the_majority_class_stands_beside_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that cannot learn predicts one class, and its accuracy is the baseline."""
    table = columns()
    table["y"] = np.where(np.arange(len(table["y"])) % 5 == 0, "ill", "well")
    file = tmp_path / "c.toml"
    file.write_text(
        f'[data]\nsource = "file"\npath = "{write(tmp_path, table)}"\nfeatures = ["age"]\n'
        '[data.partition]\nkind = "natural"\ntest_fraction = 0.5\n[model]\nname = "mclr"\n'
        "[local]\nepochs = 30\nlr = 0.1\n[train]\nrounds = 2\n"
        '[engine]\nname = "serial"\n[algorithm]\nname = "fedavg"\n'
    )
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["accuracy"]["final"] == pytest.approx(summary["baseline"])
    page = tmp_path / "page.html"
    assert invoke(["report", str(tmp_path / "run"), "--out", str(page)]) == 0
    shown = f"Without a model: {100 * summary['baseline']:.1f} % without looking at the inputs"
    # Without breaks before a unit.
    assert shown in page.read_text().replace("\xa0", " ")
    assert f"{100 * summary['baseline']:.1f} % without looking at the inputs" in printed.out
    assert "the models predict class 1 for all 120 test samples" in printed.err


FAST = ct.Solver(epochs=2, batch_size=5, lr=30.0)


def numbers() -> ct.Population:
    """A regression whose loss has no upper end."""
    data = blobs()
    return ct.Population(data.x * 3, data.x.sum(dim=1), data.train, data.test)


def test_replies_that_are_not_finite_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"local": FAST, "rounds": 2, "engine": "serial", "task": regression()}
    ct.run(ct.fedavg(), data=numbers(), model="mclr", **options)
    said = capsys.readouterr().err
    assert said.count("diverges") == 1
    assert "lower local.lr (currently 30)" in said


def test_a_loss_that_grows_is_a_warning() -> None:
    watch = DivergenceWatch(0.1)
    losses = [2.0, 19.0, None, 21.0, 400.0]
    found = [watch.line({"round": t, "loss": at, "refused": {}}) for t, at in enumerate(losses)]
    assert [line is None for line in found] == [True, True, True, False, True]
    lost = {"round": 0, "loss": float("nan"), "refused": {}}
    assert "is not finite; lower local.lr" in str(DivergenceWatch(0.1).line(lost))


def test_a_step_of_the_server_that_diverges_names_the_servers_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    calm = ct.Solver(epochs=1, batch_size=5, lr=0.05)
    options: dict[str, Any] = {"local": calm, "rounds": 3, "engine": "serial", "task": regression()}
    ct.run(
        ct.fedavg(), data=numbers(), model="mclr", server={"name": "fedavgm", "lr": 1e45}, **options
    )
    said = capsys.readouterr().err
    assert said.count("diverges") == 1
    assert "server.lr" in said
    assert "local.lr" not in said


def test_a_run_that_learns_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    calm = ct.Solver(epochs=1, batch_size=5, lr=0.05)
    for attack in (None, sign_flip(share=0.2)):
        options: dict[str, Any] = {"local": calm, "rounds": 3, "engine": "serial", "attack": attack}
        ct.run(ct.fedavg(), data=blobs(), model="mclr", **options)
    assert capsys.readouterr().err == ""

"""Exports of every task on a table: their program predicts what `coterie predict` predicts."""

from __future__ import annotations

import csv
import importlib
import json
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.task import headline_of
from coterie.experiment import check
from coterie.export import export_run
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.data.test_tables import write
from tests.refusals import refuses

CLIENTS = 8
ROWS = 40


def table(seed: int = 0) -> dict[str, Any]:
    """Clients of two kinds that mean different things by the same value."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=CLIENTS * ROWS)
    kind = np.repeat(np.arange(CLIENTS), ROWS) % 2
    hidden = (value + 0.2 * rng.normal(size=len(value))) * np.where(kind, -1, 1)
    return {
        "value": [None if rng.random() < 0.1 else float(one) for one in value],
        "ward": rng.choice(["a", "b"], len(value)),
        "seen": [f"2024-0{1 + at % 9}-11" for at in range(len(value))],
        "ill": np.where(hidden > 0, "yes", "no"),
        "dose": hidden,
        "days": 3 * hidden + 1,
        "fever": (hidden > 0.5).astype(int),
        "cough": (hidden < -0.5).astype(int),
        "client": [f"h{at // ROWS}" for at in range(len(value))],
    }


TASKS: dict[str, dict[str, Any]] = {
    "classification": {"label": "ill"},
    "binary": {"label": "ill", "task": {"kind": "binary"}},
    "regression": {"label": "dose", "task": {"kind": "regression", "loss": "huber"}},
    "targets": {"label": ["dose", "days"], "task": {"kind": "regression"}},
    "multilabel": {"label": ["fever", "cough"], "task": {"kind": "multilabel"}},
}
OTHERS = {"ill", "dose", "days", "fever", "cough"}


def tables(path: str, label: Any, task: dict[str, Any] | None = None) -> dict[str, Any]:
    names = [label] if isinstance(label, str) else label
    found = {
        "data": {
            "source": "file",
            "path": path,
            "features": "*",
            "label": label,
            "encode": {"leave_out": sorted(OTHERS - set(names))},
            "partition": {"kind": "natural"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 3, "lr": 0.1},
        "train": {"rounds": 2, "hold_out": 0.2},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 4},
        "engine": {"name": "serial"},
    }
    if task is not None:
        found["task"] = task
    return found


@contextmanager
def program_of(folder: Path) -> Iterator[ModuleType]:
    """``predict.py`` of an export as a user in its folder imports it."""
    names = ("predict", "load", "inputs", "outputs")
    before = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield importlib.import_module("predict")
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = before
        for name in names:
            sys.modules.pop(name, None)


def new_rows() -> dict[str, Any]:
    """Rows of known clients, of one like the odd ones with a few labels, and of one without any."""
    rows = table(seed=1)
    take = [*range(3), *range(ROWS, ROWS + 30), *range(2 * ROWS, 2 * ROWS + 4)]
    found = {name: [values[at] for at in take] for name, values in rows.items()}
    found["client"] = ["h0"] * 3 + ["=like odd"] * 30 + ["unknown"] * 4
    for name in OTHERS:
        values = [None if at % 4 else value for at, value in enumerate(found[name])]
        found[name] = [*values[:33], *[None] * 4]
    found["ward"][1] = "never seen"
    return found


def test_the_program_for_many_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It read models once for each, and printed their names as they were."""
    run_config(check(tables(write(tmp_path, table()), "ill")), tmp_path / "run")
    done = export_run(tmp_path / "run")
    rows = table(seed=1)
    known = rows["client"]
    new = [f"new \x1b[2J{at % 50}" for at in range(len(known))]
    rows["client"] = [(known, new)[at % 2][at] for at in range(len(known))]
    with program_of(done.folder) as program:
        read = []
        whole = program.load.load_model
        monkeypatch.setattr(
            program.load, "load_model", lambda *given: (read.append(given[:1]), whole(*given))[1]
        )
        program.main(write(tmp_path, rows, "new.csv"), tmp_path / "program.csv")
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "new \\x1b[2J49: group" in said
    assert 0 < len(read) == len(set(read))


@pytest.mark.parametrize("name", TASKS)
def test_the_program_predicts_what_the_command_predicts(name: str, tmp_path: Path) -> None:
    run_config(check(tables(write(tmp_path, table()), **TASKS[name])), tmp_path / "run")
    new = write(tmp_path, new_rows(), "new.csv")
    command = [
        "predict",
        str(tmp_path / "run"),
        "--data",
        new,
        "--out",
        str(tmp_path / "command.csv"),
    ]
    assert invoke(command) == 0
    done = export_run(tmp_path / "run")
    with program_of(done.folder) as program:
        program.main(new, tmp_path / "program.csv")
    # To the last digit: both compute with the same functions.
    assert (tmp_path / "program.csv").read_text() == (tmp_path / "command.csv").read_text()
    with (tmp_path / "program.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    by = {row["client"]: (row["group"], row["placed by"]) for row in rows}
    groups = dict(np.loadtxt(done.folder / "groups.csv", str, delimiter=",", skiprows=1)[:, :2])
    assert by["h0"] == (groups["h0"], "known client")
    assert by["'=like odd"] == (groups["h1"], "its labels in 8 rows")
    assert by["unknown"] == ("-1", "no labels: the model for clients without a group")
    calibrated = any(column.startswith("calibrated") for column in rows[0])
    assert calibrated == (name in ("binary", "classification"))


@pytest.mark.parametrize("name", ["binary", "targets"])
def test_the_card_has_the_headline_of_the_task(name: str, tmp_path: Path) -> None:
    run_config(check(tables(write(tmp_path, table()), **TASKS[name])), tmp_path / "run")
    done = export_run(tmp_path / "run")
    text = (done.folder / "README.md").read_text()
    assert "ccuracy" not in text.replace("train.", "")
    composed = compose(RunFolder(tmp_path / "run").config(), tmp_path / "run" / "partition.npz")
    headline = headline_of(composed.spec.task)
    assert f"metrics: {json.dumps([headline.name])}" in text
    # The run's own figure after its last round, of all clients together.
    last = RunFolder(tmp_path / "run").rows()[-1]
    assert done.card.figures.score == pytest.approx(last[headline.keys.all], abs=1e-12)
    assert headline.text(done.card.figures.score) in text


def test_a_series_is_predicted_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hours = 60
    rows = {
        "hour": list(range(hours)) * 3,
        "load": rng.normal(size=3 * hours).round(3),
        "client": np.repeat(["n", "o", "p"], hours),
    }
    config = tables(write(tmp_path, rows), "load", {"kind": "regression"})
    config["data"] |= {
        "encode": {},
        "window": {"time": "hour", "past": 6, "horizon": 2, "stride": 3},
    }
    config["train"] = {"rounds": 1}
    config["algorithm"] = {"name": "fedavg"}
    run_config(check(config), tmp_path / "run")
    shuffled = {
        name: np.asarray(values)[rng.permutation(3 * hours)[:100]] for name, values in rows.items()
    }
    new = write(tmp_path, {**shuffled, "hour": rng.permutation(100)}, "new.csv")
    command = [
        "predict",
        str(tmp_path / "run"),
        "--data",
        new,
        "--out",
        str(tmp_path / "command.csv"),
    ]
    assert invoke(command) == 0
    with program_of(export_run(tmp_path / "run").folder) as program:
        program.main(new, tmp_path / "program.csv")
    assert (tmp_path / "program.csv").read_text() == (tmp_path / "command.csv").read_text()
    with (tmp_path / "program.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert all(np.isfinite(float(row["prediction of load"])) for row in found)
    times = [int(row["time"]) for row in found]
    with Path(new).open(newline="") as file:
        given = [int(row["hour"]) for row in csv.DictReader(file)]
    assert times == [given[int(row["row"])] + 2 for row in found]


def test_a_model_of_tokens_is_exported(tmp_path: Path) -> None:
    """There are no rows of a table to predict, but the network is written and loaded."""
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (40, 5)))
    x[0] = torch.arange(4, 9)
    held = [list(range(at, at + 10)) for at in range(0, 40, 10)]
    data = ct.Population(x, x.roll(-1, 1), [rows[:8] for rows in held], [rows[8:] for rows in held])
    result = ct.run(
        ct.fedavg(),
        data=data,
        model={"name": "transformer", "width": 4, "heads": 1, "layers": 1, "per_token": True},
        task="next_token",
        rounds=1,
        engine="serial",
        out=tmp_path / "run",
    )
    done = result.export()
    card = (done.folder / "README.md").read_text()
    assert "perplexity on other clients" in card
    assert card.count('"text-generation"') == 2
    assert "Inputs are int64 of shape" in card
    assert not (done.folder / "predict.py").exists()
    load = runpy.run_path(str(done.folder / "load.py"))["load"]
    with torch.no_grad():
        assert torch.equal(load(0)(x), result.model_for(0)(x))
    with refuses(ct.ConfigError, "does-not-fit", "task.kind"):
        result.predict(tmp_path / "any.csv")


class Tokens(torch.nn.Module):
    """A network of the user's own for rows of five tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 4)
        self.head = torch.nn.Linear(4, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x.long()))


def test_a_model_of_tokens_from_a_file_is_opened_and_exported(tmp_path: Path) -> None:
    """The record of its columns does not say how many tokens there are."""
    x = np.random.default_rng(0).integers(0, 9, (40, 5))
    x[0] = np.arange(4, 9)
    client = np.repeat(np.arange(4), 10)
    np.savez(tmp_path / "t.npz", x=x.astype(np.float32), y=np.roll(x, -1, 1), client=client)
    source = {"source": "file", "path": str(tmp_path / "t.npz"), "features": "x", "label": "y"}
    config = {
        "data": {**source, "client": "client", "partition": {"kind": "natural"}},
        "model": {"name": f"{__name__}:Tokens"},
        "task": {"kind": "next_token"},
        "algorithm": {"name": "fedavg"},
        "train": {"rounds": 1},
    }
    run_config(check(config), tmp_path / "run")
    result = ct.Result.open(tmp_path / "run")
    load = runpy.run_path(str(export_run(tmp_path / "run").folder / "load.py"))["load"]
    with torch.no_grad():
        given = torch.from_numpy(x).float()  # as the file has them
        assert torch.equal(load(0)(given), result.model_for(0)(given))

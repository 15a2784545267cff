"""[task] of a configuration, from the file to the commands that read a run's folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli.main import invoke
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.runs.folder.store import RunFolder
from tests.refusals import refuses
from tests.runs.calls import sweeps_here


def write_data(path: Path, targets: int = 1) -> None:
    """Eight clients with numbers to predict, of which two share each linear function."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(320, 4)).astype(np.float32)
    w = rng.normal(size=(4, targets))
    y = (x @ w + 0.05 * rng.normal(size=(320, targets))).astype(np.float32)
    split = np.where(np.arange(320) % 4 == 3, "test", "train")
    np.savez(path, x=x, y=y if targets > 1 else y[:, 0], client=np.arange(320) // 40, split=split)


def configuration(folder: Path, **tables: Any) -> Path:
    """A configuration of these data."""
    file = folder / "c.toml"
    task = tables.get("task", '[task]\nkind = "regression"\nunit = "mm"\n')
    file.write_text(
        f'[data]\nsource = "file"\npath = "{folder / "data.npz"}"\n'
        '[data.partition]\nkind = "natural"\ncolumn = "client"\n'
        '[model]\nname = "mclr"\n[local]\nepochs = 2\nlr = 0.05\n'
        "[train]\nrounds = 4\nclients_per_round = 8\nevaluate_loss = true\n"
        '[engine]\nname = "serial"\n'
        f'[algorithm]\nname = "fedavg"\n{task}'
    )
    return file


def call(*arguments: Any) -> int:
    """The exit code of a command."""
    return invoke([str(one) for one in arguments])


def test_a_regression_from_its_file_to_its_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path / "data.npz")
    run = tmp_path / "run"
    assert call("run", configuration(tmp_path), "--out", run) == 0
    printed = capsys.readouterr().out
    assert "MAE" in printed
    assert "accuracy" not in printed
    summary = json.loads((run / "summary.json").read_text())
    assert summary["headline"] == {
        "name": "mae",
        "better": "lower",
        "unit": "mm",
        "label": "MAE",
    }
    assert summary["mae"]["min"] == min(row["mae"] for row in RunFolder(run).rows())
    assert summary["mae"]["final"] < summary["baseline"]
    assert "accuracy" not in summary
    with (run / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    last = RunFolder(run).rows()[-1]
    mean = np.mean([float(row["mae"]) for row in rows])
    assert mean == pytest.approx(last["mae_mean"])
    for command in (["show", run], ["watch", run, "--once"]):
        assert call(*command) == 0
        printed = capsys.readouterr().out
        assert " mm" in printed
        assert "%" not in printed.split("\n", 3)[-1]


def test_a_classification_by_macro_f1_from_its_file_to_its_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz") as data:
        arrays = dict(data)
    classes = np.digitize(arrays["y"], [-1.5, 1.5])
    np.savez(tmp_path / "data.npz", **{**arrays, "y": classes})
    asked = (
        '[task]\nkind = "classification"\nheadline = "macro_f1"\nmetrics = ["balanced_accuracy"]\n'
    )
    file = configuration(tmp_path, task=asked)
    out = tmp_path / "sweep"
    with sweeps_here():
        assert call("compare", file, "--algorithms", "ifca,fesem", "--out", out) == 0
    printed = capsys.readouterr().out
    assert "macro-F1" in printed
    runs = sorted(path.parent for path in out.rglob("summary.json"))
    summary = json.loads((runs[0] / "summary.json").read_text())
    assert summary["headline"]["name"] == "macro_f1"
    last = RunFolder(runs[0]).rows()[-1]
    assert set(last["metrics"]) == {"accuracy", "balanced_accuracy"}
    assert last["macro_f1"] == pytest.approx(summary["macro_f1"]["final"])
    with (runs[0] / "clients.csv").open() as lines:
        each = [float(row["macro_f1"]) for row in csv.DictReader(lines)]
    assert np.mean(each) == pytest.approx(last["macro_f1_mean"])
    page = tmp_path / "page.html"
    assert call("report", *runs, "--out", page) == 0
    assert "Macro-F1 by round" in page.read_text()
    capsys.readouterr()
    for command in (["show", runs[0]], ["watch", runs[0], "--once"]):
        assert call(*command) == 0
        assert "macro-F1" in capsys.readouterr().out


def test_several_targets_are_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, a=x[:, 0], b=x[:, 1] + 1, client=np.arange(60) // 10)
    tables = {
        "data": {
            "source": "file",
            "path": str(tmp_path / "data.npz"),
            "label": ["a", "b"],
            "partition": {"kind": "iid", "clients": 4},
        },
        "model": {"name": "mlp"},
        "train": {"rounds": 1},
        "algorithm": {"name": "fedavg"},
        "task": {"kind": "regression"},
    }
    from coterie.runs.compose import compose

    composed = compose(check(tables))
    assert composed.population.y.shape == (60, 2)
    assert composed.spec.task.outputs == 2
    tables["task"] = {"kind": "classification"}
    with refuses(DataError, "does-not-fit", "data.label"):
        compose(check(tables))
    tables["task"] = {"kind": "regression"}
    tables["data"]["partition"] = {"kind": "dirichlet", "clients": 4, "beta": 0.5}  # type: ignore[index]
    with refuses(ConfigError, "does-not-fit", "data.partition.kind"):
        compose(check(tables))


def test_a_comparison_says_which_way_is_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path / "data.npz")
    out = tmp_path / "sweep"
    command = ["compare", configuration(tmp_path), "--algorithms", "fedavg,ifca"]
    with sweeps_here():
        assert call(*command, "--out", out, "--target", "5", "--figure", "max") == 0
    printed = capsys.readouterr().out
    assert "MAE (best), mm" in printed
    assert "rounds to 5 mm" in printed
    assert "Lower is better." in printed
    with (out / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["mae"]) > 0
    assert float(rows[0]["rounds_to_target"]) >= 1


@pytest.mark.parametrize(
    ("task", "line"),
    [
        ('[task]\nkind = "regresion"\n', "task.kind: unknown choice"),
        ('[task]\nkind = "regression"\nloss = "cubic"\n', "task.loss: unknown choice"),
        ('[task]\nkind = "regression"\nquantile = 1.5\n', "task.quantile: out of range"),
        ('[task]\nkind = "regression"\nepochs = 3\n', "task.epochs: unknown key"),
        ('[task]\nkind = "classification"\nheadline = "f1"\n', "task.headline: unknown choice"),
        ('[task]\nkind = "classification"\nmetrics = ["f1"]\n', "task.metrics"),
        ('[task]\nkind = "no_module:here"\n', "task.kind: cannot be used"),
        ('[task]\nkind = "builtins:object"\n', "task.kind: builtins:object does not return a task"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, line: str
) -> None:
    write_data(tmp_path / "data.npz")
    code = call("run", configuration(tmp_path, task=task), "--out", tmp_path / "run")
    printed = capsys.readouterr().err
    assert code != 0
    assert line in printed
    assert "Traceback" not in printed


def test_a_resumed_run_keeps_its_headline(tmp_path: Path) -> None:
    from coterie.runs.compose import compose
    from coterie.runs.run import execute, make_folder

    write_data(tmp_path / "data.npz")
    from coterie.experiment import load_config

    composed = compose(load_config(configuration(tmp_path)))
    folder = make_folder(composed, tmp_path / "run")
    summary = execute(composed, folder)
    assert RunFolder.open(tmp_path / "run").headline.title == "MAE"
    again = execute(composed, folder, checkpoint=folder.checkpoints.latest(), resume=True)
    assert again["mae"] == summary["mae"]


def test_a_report_is_of_the_headline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path / "data.npz")
    file = configuration(tmp_path)
    runs = []
    for name in ("fedavg", "ifca"):
        runs.append(tmp_path / name)
        command = ["run", file, "--set", f"algorithm.name={name}", "--out", runs[-1]]
        assert call(*command) == 0
    page = tmp_path / "page.html"
    assert call("report", *runs, "--out", page) == 0
    text = page.read_text()
    assert "MAE by round" in text
    assert "MAE, mm" in text
    assert "lower is better" in text
    assert "Accuracy by round" not in text
    assert call("plot", *runs, "--chart", "accuracy", "--out", tmp_path / "chart.svg") == 0
    capsys.readouterr()
    accuracy = tmp_path / "accuracy"
    binary = '[task]\nkind = "binary"\nheadline = "accuracy"\n'
    with np.load(tmp_path / "data.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "data.npz", **{**arrays, "y": (arrays["y"] > 0).astype(int)})
    assert call("run", configuration(tmp_path, task=binary), "--out", accuracy) == 0
    assert call("report", accuracy, "--out", page) == 0
    capsys.readouterr()
    assert call("report", runs[0], accuracy, "--out", page) != 0
    assert "different headline metrics (accuracy, mae)" in capsys.readouterr().err


def test_the_best_is_the_least_where_lower_is_better() -> None:
    from coterie.headline import Headline
    from coterie.measures.client_table import ScoredClients
    from coterie.report.figures.gains import gain_sections
    from coterie.report.series import series_of
    from coterie.report.titles import headline
    from coterie.report.view import RunView

    mae = Headline("mae", "lower", "mm", "MAE")

    def view(name: str, groups: list[int], value: float, own: list[float]) -> RunView:
        rows = [{"round": 0, "mae": value}]
        member = np.array(groups)
        clients = ScoredClients(["a", "b"], member, np.array([50, 50]), {"mae": np.array(own)})
        return RunView(name, rows, member, "ab", client_table=clients, headline=mae)

    plain = view("FedAvg", [0, 0], 4.0, [3.0, 5.0])
    grouped = view("FedGroup", [0, 1], 2.5, [1.0, 6.0])
    assert headline([plain, grouped]) == "FedGroup reached MAE 2.5 mm, FedAvg 4 mm"
    [found] = gain_sections(series_of([plain, grouped]), series_of([plain])[0], 1)
    assert found["note"].startswith("1 of 2 clients gained")

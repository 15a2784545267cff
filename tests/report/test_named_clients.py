"""Single clients by name: who is served worst, and who is in which group."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli.watch import watch
from coterie.experiment import check
from coterie.headline import Headline
from coterie.measures.client_table import ScoredClients
from coterie.measures.seeds import Split
from coterie.report.runs_table import runs_section, scores_section
from coterie.report.series import series_of
from coterie.report.view import RunView
from coterie.report.write import write_report
from coterie.runs.run import run_config
from coterie.terminal import summary_table


def tables(folder: Path, algorithm: dict[str, Any]) -> dict[str, Any]:
    """Four clients, of one of which the labels are the other way round."""
    table = folder / "t.csv"
    rng = np.random.default_rng(0)
    lines = ["client,a,y"]
    for client, sign in (("ann", 1), ("bob", 1), ("cat", 1), ("dan", -1)):
        for value in rng.normal(size=400):
            lines.append(f"{client},{value:.3f},{int(sign * value > 0)}")
    table.write_text("\n".join(lines) + "\n")
    return {
        "data": {
            "source": "file",
            "path": str(table),
            "features": ["a"],
            "label": "y",
            "client": "client",
            "partition": {"kind": "natural"},
        },
        "task": {"kind": "binary"},
        "model": {"name": "mclr"},
        "local": {"epochs": 2, "lr": 0.5},
        "train": {"rounds": 2, "clients_per_round": 4},
        "algorithm": algorithm,
        "engine": {"name": "serial"},
    }


def test_the_client_that_is_served_worst_is_named(tmp_path: Path) -> None:
    """A score over all samples hides it."""
    summary = run_config(check(tables(tmp_path, {"name": "fedavg"})), tmp_path / "run")
    found = summary["over_clients"]
    with open(tmp_path / "run" / "clients.csv", newline="") as file:
        scores = {row["client"]: float(row["auroc"]) for row in csv.DictReader(file)}
    assert found["client"] == "dan"
    assert found["worst"] == min(scores.values()) < 0.5
    assert found["mean"] == pytest.approx(sum(scores.values()) / 4)
    text = summary_table(summary, "run").plain
    low, high = found["interval"]
    assert low <= found["worst"] < high
    assert found["samples"] == 40
    assert f"worst {found['worst']:.4g} ({low:.3g} to {high:.3g}) at dan, 40 samples, " in text
    # Beside the score over all samples.
    names = [line.split()[0] for line in text.splitlines()]
    assert names.index("clients") == names.index("AUROC") + 1
    assert "not trained further" in text
    assert "all were accepted" in text
    assert "1: all clients the same" in text
    assert "Jain" not in text
    page = write_report([tmp_path / "run"]).read_text()
    assert "serves dan worst" in page


def test_the_clients_of_each_group_are_named(tmp_path: Path) -> None:
    algorithm = {"name": "fedgroup", "groups": 2, "alpha": 2}
    run_config(check(tables(tmp_path, algorithm)), tmp_path / "run")
    page = write_report([tmp_path / "run"]).read_text()
    with open(tmp_path / "run" / "groups.csv", newline="") as file:
        group = {row["client"]: row["group"] for row in csv.DictReader(file)}
    alone = [name for name in group if list(group.values()).count(group[name]) == 1]
    assert alone == ["dan"]
    assert "ann, bob, cat" in page.split("At the end: ")[1][:60]


def view(seed: int, auroc: list[float], half: list[float], moved: int) -> RunView:
    columns = {
        "auroc": np.array(auroc),
        "auroc_low": np.array(auroc) - half,
        "auroc_high": np.array(auroc) + half,
    }
    clients = ScoredClients(["va", "swiss"], np.zeros(2, int), np.array([50, 31]), columns)
    transfers = {"down_bytes": moved, "up_bytes": moved}
    row = {"round": 0, "auroc": 0.8, "transfers": transfers, "seconds": {"total": 1.0 + seed}}
    tables = {"seed": seed, "algorithm": {"name": "local"}}
    headline = Headline("auroc", "higher", "", "AUROC")
    known = {"tables": tables, "client_table": clients, "headline": headline}
    return RunView("local", [row], np.zeros(2, int), ["va", "swiss"], **known)


def split_with(division: bytes) -> Split:
    """A split of samples that are divided among clients in this way."""
    return Split(np.array([1], np.uint8), np.array([2], np.uint8), 0.5, division)


def test_the_client_that_is_served_worst_is_that_of_the_means_over_seeds() -> None:
    """In the first seed it is another one, and one with a lower figure is named as well."""
    half = [0.1, 0.5]
    runs = [view(0, [0.9, 0.8], [0.1, 0.1], 1000), view(1, [0.5, 0.5], half, 3000)]
    [series] = series_of(runs)
    assert [row[-3:] for row in runs_section([series], None)["rows"]] == [
        ["-", ("4.0 kB", "figure"), ("1.5 s", "figure")]
    ]
    assert runs_section([series], None)["rows"][0][-4] == "a model each"
    fairness = {"auroc_fairness": {"worst_tenth": 0.5, "spread": 0.1, "jain": 0.9}}
    rows = [{**runs[0].rounds[0], **fairness}]
    [section] = scores_section(series_of([replace(run, rounds=rows) for run in runs]))
    assert "local (2 seeds) serves va worst: 0.7" in section["note"]
    assert "figure of swiss is lower, but less certain: 0.65" in section["note"]
    # If each seed draws its clients, those of the first seed are told, and called so.
    drawn = [
        replace(run, client_table=replace(run.client_table, split=split), rounds=rows)
        for run, split in zip(runs, map(split_with, (b"one", b"other")), strict=True)
        if run.client_table is not None
    ]
    [section] = scores_section(series_of(drawn))
    assert "local (first seed) serves swiss worst: 0.8" in section["note"]
    # Figures that read the same are not called lower and higher.
    alike = replace(view(0, [0.75, 0.749999], half, 1000), rounds=rows)
    [section] = scores_section(series_of([alike]))
    assert section["note"].count("0.75") == 1


def test_a_prediction_without_a_model_that_is_better_is_marked(tmp_path: Path) -> None:
    summary = run_config(check(tables(tmp_path, {"name": "fedavg"})), tmp_path / "run")
    final = summary["auroc"]["final"]
    for value, better in ((final + 0.01, True), (final, False), (final - 0.01, False)):
        text = summary_table(summary | {"naive": {"persistence": value}}, "run").plain
        assert ("better than the model" in text) is better


def test_training_alone_has_a_model_for_each_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run_config(check(tables(tmp_path, {"name": "local"})), tmp_path / "run")
    text = summary_table(summary, "run").plain
    watch(tmp_path / "run", once=True)
    for shown in (text, capsys.readouterr().out):
        assert "each of 4 clients has a model of its own" in shown
        assert "one model" not in shown

"""Single clients by name: who is served worst, and who is in which group."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.experiment import check
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

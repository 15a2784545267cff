"""A federation of real processes on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.config import check
from coterie.config.reading import read
from coterie.runs.run import run_config
from tests.deploy.conftest import write_deployment
from tests.live.federations import difference, left_behind


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    return write_deployment(tmp_path)


def test_a_federation_of_real_processes(deployment: Path) -> None:
    """Three nodes, three rounds, TLS and authentication, and the models of the serial engine."""
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    line = [
        sys.executable,
        "-c",
        "from coterie.cli.main import main; main()",
        "deploy",
        "local",
        str(deployment),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=420)
    logs = "".join(
        f"\n== {log.name}\n" + log.read_text()[-1500:]
        for log in (deployment / "logs").glob("*.log")
    )
    assert done.returncode == 0, done.stderr + done.stdout + logs
    assert "round 3/3" in done.stdout
    assert not left_behind(deployment)
    (run,) = (deployment / "runs").iterdir()
    run_config(
        check(read(deployment / "run.toml") | {"engine": {"name": "serial"}}), deployment / "here"
    )
    assert difference(run, deployment / "here") <= 1e-6
    names = ("config.toml", "rounds.jsonl", "summary.json", "groups.csv", "models", "checkpoints")
    assert all((run / name).exists() for name in names)
    rows = [json.loads(row) for row in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert not any(row["refused"] for row in rows)
    mine, theirs = (
        json.loads((path / "summary.json").read_text()) for path in (run, deployment / "here")
    )
    assert mine["accuracy"]["final"] == pytest.approx(theirs["accuracy"]["final"])
    assert invoke(["show", str(run)]) == 0

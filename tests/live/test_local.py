"""A federation of real processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from coterie.cli.main import invoke
from coterie.cli.signals import stop_once
from coterie.config.toml_text import read
from coterie.errors import RemoteError
from coterie.experiment import check
from coterie.flower.operate.local import LocalFederation, local_federation
from coterie.flower.operate.proxy import find_nginx
from coterie.runs.run import run_config
from tests.conftest import PATIENCE
from tests.flower.conftest import write_deployment
from tests.live.federations import ROUNDING, left_behind, relative_difference


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    return write_deployment(tmp_path)


def logs(deployment: Path) -> str:
    """The ends of what the processes wrote."""
    files = sorted((deployment / "logs").glob("*.log"))
    return "".join(f"\n== {log.name}\n{log.read_text()[-1500:]}" for log in files)


def with_train(tables: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A configuration with other values of its table ``train``."""
    return tables | {"train": tables["train"] | values}


def test_a_federation_of_real_processes(deployment: Path) -> None:
    """Three nodes, two rounds, TLS and authentication, and the models of the serial engine."""
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    run_file = deployment / "run.toml"
    # A process starts for each message, which takes seconds.
    run_file.write_text(tomli_w.dumps(with_train(read(run_file), rounds=2, evaluate_every=2)))
    line = [
        sys.executable,
        "-c",
        "from coterie.cli.main import main; main()",
        "deploy",
        "local",
        str(deployment),
    ]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{error.stdout!r}{logs(deployment)}") from None
    assert done.returncode == 0, done.stderr + done.stdout + logs(deployment)
    assert "round 2/2" in done.stdout
    assert not left_behind(deployment)
    (run,) = (deployment / "runs").iterdir()
    run_config(
        check(read(deployment / "run.toml") | {"engine": {"name": "serial"}}), deployment / "here"
    )
    assert relative_difference(run, deployment / "here") <= ROUNDING
    names = ("config.toml", "rounds.jsonl", "summary.json", "groups.csv", "models", "checkpoints")
    assert all((run / name).exists() for name in names)
    rows = [json.loads(row) for row in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1]
    assert not any(row["refused"] for row in rows)
    mine, theirs = (
        json.loads((path / "summary.json").read_text()) for path in (run, deployment / "here")
    )
    assert mine["accuracy"]["final"] == pytest.approx(theirs["accuracy"]["final"])
    assert invoke(["show", str(run)]) == 0


# Half a minute until a node sends a sign of life.
HEARTBEAT = pytest.param("send-node-heartbeat", marks=pytest.mark.flower)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["pull-messages", HEARTBEAT])
def test_a_node_that_gets_an_unexpected_answer_ends_the_trial(deployment: Path, path: str) -> None:
    """Flower's own process stayed after it, without a connection: nobody saw that it was gone."""
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    if find_nginx() is None:
        pytest.skip("nginx is not installed")
    with (
        local_federation(deployment, 1) as up,
        pytest.raises(RemoteError, match=r"client-00: ended with 1 \(.*500"),
    ):
        _refuse_a_node(up, path)
    assert not left_behind(deployment)


def _refuse_a_node(up: LocalFederation, path: str) -> None:
    """Have nginx answer a node with 500, and wait."""
    with stop_once(), up.watched():
        wait_for_words(up.log_of("client-00"), "SuperNode ID")
        assert up.proxy is not None
        config = up.home / "nginx" / "nginx.conf"
        text = config.read_text()
        refusing = f"location /v1/fleet/{path} {{ return 500; }}\n        location /v1/fleet/ {{"
        config.write_text(text.replace("location /v1/fleet/ {", refusing))
        os.kill(up.proxy.pid, signal.SIGHUP)
        time.sleep(PATIENCE)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_command(deployment: Path) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    # One node is enough: the server still waits for the others.
    words = [sys.executable, "-m", "coterie", "deploy", "local", str(deployment), "--clients", "1"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_words(deployment / "logs" / "client-00.log", "SuperNode ID")
    link = [one for one in psutil.Process(command.pid).children() if _is_superlink(one)]
    link[0].kill()
    _, said = command.communicate(timeout=PATIENCE)
    assert command.returncode == 7
    assert "superlink: ended with -9" in said
    assert not left_behind(deployment)


def _is_superlink(process: psutil.Process) -> bool:
    return any("flower-superlink" in word for word in process.cmdline())


def wait_for_words(log: Path, words: str) -> None:
    end = time.monotonic() + PATIENCE
    while not log.exists() or words not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)

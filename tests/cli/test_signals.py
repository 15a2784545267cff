"""What SIGINT and SIGTERM do to a run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from tests.conftest import PATIENCE


# By default tests of `reproduce` end theirs by SIGTERM.
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_saves_the_state(config: str, number: int, code: int, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "coterie.cli.main",
        "run",
        config,
        "--out",
        "r",
        "--set",
        "train.rounds=100000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round 1/"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    stopped = re.search(
        r"error: stopped after (\d+) of 100000 rounds; `coterie resume r` continues", err
    )
    assert stopped
    assert os.listdir("r/checkpoints") == [f"round-{int(stopped[1]):06d}.safetensors"]


def test_an_interrupt_is_130(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.experiment.load_config", interrupted)
    assert invoke(["run", config]) == 130

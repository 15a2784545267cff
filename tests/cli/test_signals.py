"""What SIGINT and SIGTERM do to a run."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from tests.conftest import PATIENCE
from tests.forks import command


# By default tests of `reproduce` end theirs by SIGTERM.
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_a_signal_saves_the_state(config: str, number: int, code: int, tmp_path: Path) -> None:
    process = command("run", config, "--out", "r", "--set", "train.rounds=100000")
    rows = Path("r/rounds.jsonl")
    until = time.monotonic() + PATIENCE
    while not (rows.exists() and rows.stat().st_size) and time.monotonic() < until:
        assert process.poll() is None, process.ended()
        time.sleep(0.005)
    process.send_signal(number)
    ended, _, err = process.ended()
    assert ended == code
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

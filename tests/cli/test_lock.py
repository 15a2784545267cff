"""One writer of a run folder: several `resume` at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import invoke
from coterie.runs.folder.store import RunFolder
from tests.cli.conftest import errors
from tests.conftest import PATIENCE
from tests.forks import Forked, command

ROUNDS = 40
SLOW = ["--set", "local.epochs=20", "--set", f"train.rounds={ROUNDS}"]
OFTEN = ["--set", "checkpoint.seconds=0"]


def left(run: str) -> dict[str, Any]:
    """What a run leaves, but for wall-clock times."""
    rows = [json.loads(line) for line in Path(run, "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"], row["chain"]
    files = [Path(run, "groups.csv"), Path(run, "clients.csv"), *Path(run, "models").iterdir()]
    return {"rows": rows, **{file.name: file.read_bytes() for file in files}}


def rows(run: str) -> int:
    file = Path(run, "rounds.jsonl")
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for(count: int, process: Forked) -> None:
    """Wait until a run has so many rounds; what it said if it ended before."""
    until = time.monotonic() + PATIENCE
    while rows("r") < count and time.monotonic() < until:
        assert process.poll() is None, process.ended()
        time.sleep(0.005)


@pytest.mark.parametrize("count", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5))])
def test_of_several_resume_one_runs_and_the_others_say_which(
    count: int, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "straight", *SLOW, *OFTEN]) == 0
    run = command("run", config, "--out", "r", *SLOW, *OFTEN)
    try:
        wait_for(4, run)
        # Halted, so that it is not over before the other has started.
        run.send_signal(signal.SIGSTOP)
        assert 4 <= rows("r") < ROUNDS
        capsys.readouterr()
        assert invoke(["resume", "r"]) == 10
    finally:
        run.kill()
        run.ended()
    (error,) = errors(capsys)
    assert f"process {run.pid} on {socket.gethostname()} since 20" in error
    processes = [command("resume", "r") for _ in range(count)]
    results = [process.ended() for process in processes]
    winners = [
        process.pid for process, (code, *_) in zip(processes, results, strict=True) if not code
    ]
    losers = [error for code, _, error in results if code == 10]
    assert len(winners) >= 1
    assert len(winners) + len(losers) == count
    for error in losers:
        assert error.startswith("error: r: the run is in progress (process ")
        assert any(f"process {pid} " in error for pid in winners)
    assert left("r") == left("straight")
    assert not Path("r/.holder.json").exists()


def test_a_lock_without_a_holder_is_waited_for_and_a_dead_ones_workers(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    capsys.readouterr()
    held = "import fcntl, sys, time; f = open('r/.lock', 'w'); fcntl.flock(f, 2); print(flush=True)"
    for holder, seconds in ((None, 0.5), (2**22 + 1, 1.0)):
        if holder is not None:
            known = {"pid": holder, "host": socket.gethostname(), "since": "then"}
            Path("r/.holder.json").write_text(json.dumps(known))
        script = f"{held}; time.sleep({seconds})"
        other = subprocess.Popen([sys.executable, "-c", script], stdout=-1)
        assert other.stdout is not None
        other.stdout.readline()
        assert invoke(["resume", "r"]) == 0
        other.wait()
        other.stdout.close()
    with RunFolder(Path("r")).locked():
        assert invoke(["show", "r"]) == 0
        assert invoke(["report", "r"]) == 0
        capsys.readouterr()
        assert invoke(["resume", "r"]) == 10
    (line,) = errors(capsys)
    assert f"process {os.getpid()} on " in line


def test_rows_that_are_not_in_order_are_refused(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r", *OFTEN]) == 0
    folder = RunFolder.open("r")
    found = folder.rows()
    Path("r/rounds.jsonl").unlink()
    for row in [*found[:2], found[1], *found[2:]]:
        folder.append_round(row)
    capsys.readouterr()
    assert invoke(["show", "r"]) == 4
    assert errors(capsys) == ["r/rounds.jsonl: line 3: not in order, got round 1; expected 2"]

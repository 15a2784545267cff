"""Watching a run: what is shown, that it follows a run of another process, and that it ends."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.cli.watch import curve, happened, watch
from coterie.experiment import check
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from coterie.runs.state import read_state
from tests.conftest import PATIENCE

TABLES = {
    "data": {
        "source": "digits",
        "partition": {"kind": "planted", "clients": 12, "groups": 2, "how": "rotate"},
    },
    "model": {"name": "mclr"},
    "local": {"epochs": 1, "lr": 0.1},
    "train": {"rounds": 5, "clients_per_round": 4},
    "algorithm": {"name": "flexcfl", "groups": 2, "alpha": 3, "pretrain_steps": 5},
    "engine": {"name": "serial"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    run_config(check(TABLES), path)
    return path


@pytest.fixture
def going(finished: Path, tmp_path: Path) -> RunFolder:
    """The same run after two of its rounds."""
    folder = RunFolder.create(tmp_path / "run", RunFolder.open(finished).resolved)
    (folder.path / "partition.npz").write_bytes((finished / "partition.npz").read_bytes())
    for row in RunFolder.open(finished).rows()[:2]:
        folder.append_round(row)
    return folder


def finish(folder: RunFolder, finished: Path, pause: float = 0.0) -> None:
    for row in RunFolder.open(finished).rows()[2:]:
        time.sleep(pause)
        folder.append_round(row)
    folder.results.write_summary(RunFolder.open(finished).results.summary())


def test_once_says_how_a_run_stands(going: RunFolder, finished: Path, capsys) -> None:
    assert invoke(["watch", str(going.path), "--once"]) == 0
    printed = capsys.readouterr().out
    rows = RunFolder.open(finished).rows()
    assert "flexcfl on digits, mclr, seed 0" in printed
    assert "round 2/5" in printed
    # The curve says what it is of.
    assert f"accuracy, now {100 * rows[1]['accuracy']:.1f} %\n" in printed
    assert " left\n" in printed
    for size, accuracy in zip(rows[1]["sizes"], rows[1]["accuracy_groups"], strict=True):
        assert any(
            f"{size}  " in line and f"{100 * accuracy:.1f} %" in line
            for line in printed.splitlines()
        )
    assert (
        f"newcomers {rows[0]['newcomers'] + rows[1]['newcomers']} (and {rows[0]['cold_start']} in cold"
        in printed
    )
    finish(going, finished)
    assert invoke(["watch", str(going.path), "--once"]) == 0
    assert "round 5/5" in capsys.readouterr().out


def test_the_time_left_leaves_out_the_first_round(going: RunFolder, finished: Path, capsys) -> None:
    rows = RunFolder.open(finished).rows()
    going.rewind(1)
    watch(going.path, once=True)
    assert " left\n" not in capsys.readouterr().out  # one round says nothing: it has the cold start
    going.append_round({**rows[1], "seconds": {**rows[1]["seconds"], "total": 20.0}})
    watch(going.path, once=True)
    assert " 1 min 0 s left\n" in capsys.readouterr().out


def test_one_model_has_no_table_of_groups(going: RunFolder, finished: Path, capsys) -> None:
    rows = RunFolder.open(finished).rows()
    going.rewind(0)
    going.append_round({**rows[0], "sizes": [1000], "accuracy_groups": [0.5]})
    watch(going.path, once=True)
    printed = capsys.readouterr().out
    assert "one model for 1,000 clients" in printed
    assert "none" not in printed
    assert "group  " not in printed


def test_a_finished_run_shows_its_end(finished: Path, capsys) -> None:
    assert invoke(["watch", str(finished)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("run       flexcfl on digits")
    assert "round " not in printed.splitlines()[0]


def test_plain_lines_follow_a_run_to_its_end(going: RunFolder, finished: Path, capsys) -> None:
    writer = threading.Thread(target=finish, args=(going, finished, 0.15))
    writer.start()
    watch(going.path, interval=0.05)
    writer.join()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 of 5 rounds done"
    assert [line.split(":")[0] for line in lines[1:4]] == ["round 3/5", "round 4/5", "round 5/5"]
    assert lines[4].startswith("run ")


def test_a_run_that_is_wound_back_is_read_anew(going: RunFolder) -> None:
    before = read_state(going)
    assert len(before.rows) == 2
    same = read_state(going, before)
    assert same.rows is before.rows
    going.rewind(1)
    after = read_state(going, same)
    assert len(after.rows) == 1
    with (going.path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 1, "torn')
    assert len(read_state(going, after).rows) == 1


def test_a_silent_run_is_not_said_to_go_on(going: RunFolder, capsys) -> None:
    os.utime(going.path / "rounds.jsonl", (time.time() - 3700, time.time() - 3700))
    watch(going.path, once=True)
    assert (
        "no round for 1 h 1 min; if the run was stopped: coterie resume" in capsys.readouterr().out
    )


def test_what_is_no_run_is_one_line(going: RunFolder, tmp_path: Path, capsys) -> None:
    assert invoke(["watch", str(tmp_path)]) == 2
    with (going.path / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 2, "accuracy": "high", "sizes": 3}) + "\n")
    assert invoke(["watch", str(going.path), "--once"]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("error: ") for line in lines] == [True, True]
    assert "rounds.jsonl: line 3: damaged or of another run" in lines[1]


def test_curve_and_events() -> None:
    assert curve([]) == ["no round has been evaluated yet"]
    assert len(curve([0.5] * 300)) == 8
    assert max(map(len, curve([i / 300 for i in range(300)]))) <= 9 + 60
    shift = {
        "round": 7,
        "shift": [{"shift": "arrivals", "clients": [1, 2]}],
        "skipped": True,
        "migrations": 0,
    }
    assert happened([shift]) == ["round 8: arrivals, 2 clients, skipped, too few replies"]
    assert "\x1b" not in happened([{"round": 0, "notes": {"grouping": "\x1b[2J"}}])[0]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_the_terminal_as_it_was(number: int, going: RunFolder) -> None:
    main, side = pty.openpty()
    command = [sys.executable, "-m", "coterie.cli.main", "watch", str(going.path)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    hears = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # jobs in the background of a shell ignore it
    process = subprocess.Popen(
        command, stdout=side, stderr=side, stdin=side, env=environment, preexec_fn=hears
    )
    os.close(side)
    seen = b""
    asked = False
    until = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < until:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    seen += os.read(main, 65536)
                except OSError:  # the other end was closed
                    break
            if not asked and b"round 2/5" in seen and b"newcomers" in seen:
                process.send_signal(number)
                asked = True
        assert process.wait(timeout=PATIENCE) == 128 + number
    finally:
        process.kill()
        process.wait()
        os.close(main)
    assert b"Traceback" not in seen
    assert seen.rindex(b"\x1b[?25h") > seen.index(b"\x1b[?25l")  # the cursor is back

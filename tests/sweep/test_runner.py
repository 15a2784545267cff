"""Sweeps: every run is done once whatever happens, by one process or several."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from coterie.cli.main import invoke
from coterie.runs.folder.store import RunFolder
from coterie.sweep.comparison import tabulate
from coterie.sweep.grid import read_seeds
from coterie.sweep.plan import SweepPlan, make_plan
from coterie.sweep.run_once import carry_out, is_done, is_taken
from coterie.sweep.runner import sweep
from coterie.sweep.table_files import write_tables
from tests.conftest import PATIENCE
from tests.forks import Forked, command
from tests.runs.calls import sweeps_here

RUNS = ("--algorithms", "fedavg,fedgroup", "--seeds", "0-1", "--target", "0.3", "--out", "s")


def start(*arguments: str) -> Forked:
    return command("compare", "c.toml", *arguments)


def rows(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("*/rounds.jsonl"))


def wait_for(what: Callable[[], bool], process: Forked | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not what() and (process is None or process.poll() is None):
        assert time.monotonic() < end
        time.sleep(0.005)


def kill(process: Forked) -> int:
    """End a sweep and all that it started, at once; the exit code."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    for one in [process, *children]:
        one.kill()
    psutil.wait_procs(children, PATIENCE)
    return process.ended()[0]


def without_seconds(out: Path) -> dict[str, list[str]]:
    """The tables without seconds, and without those of start-up, which files of CSV have."""
    found = {
        name: (out / f"{name}").read_text().splitlines()
        for name in ("table.md", "table.csv", "table.tex")
    }
    found["runs.csv"] = (out / "runs.csv").read_text().splitlines()
    cut = {
        "table.md": r"[^|]*\|$",
        "table.csv": r",[^,]*,[^,]*$",
        "table.tex": r"& [^&]*\\\\$",
        "runs.csv": r",[^,]*,[^,]*$",
    }
    return {name: [re.sub(cut[name], "", line) for line in lines] for name, lines in found.items()}


def check_rows(out: Path, runs: int, rounds: int) -> None:
    """Every run is there once, with every round once."""
    files = list(out.glob("*/rounds.jsonl"))
    assert len(files) == runs
    for file in files:
        assert [json.loads(line)["round"] for line in file.read_text().splitlines()] == list(
            range(rounds)
        )


def straight(plan: SweepPlan) -> None:
    """The sweep that was not killed, one run after another in this process."""
    out = Path("straight")
    out.mkdir()
    for run in plan.runs:
        assert carry_out(run, out)
    write_tables(tabulate(plan, out, "fedavg", 0.3), plan, out)


SLOW = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("COTERIE_SLOW") != "1", reason="takes minutes; COTERIE_SLOW=1 runs it"
    ),
]


@pytest.mark.parametrize(
    ("seeds", "kills", "rounds"),
    [
        pytest.param("0", 1, 20, id="1 of 2 runs"),
        pytest.param("0-14", 5, 40, id="5 of 30 runs", marks=SLOW),
    ],
)
def test_a_killed_sweep_ends_like_one_that_was_not(
    config: str, seeds: str, kills: int, rounds: int
) -> None:
    words = [*RUNS, "--seeds", seeds, "--set", f"train.rounds={rounds}", "--jobs", "2"]
    count = 2 * len(read_seeds(seeds))
    straight(
        make_plan(config, ["fedavg", "fedgroup"], read_seeds(seeds), (), [f"train.rounds={rounds}"])
    )
    done: dict[Path, int] = {}
    landed = []
    for number, part in enumerate(np.random.default_rng(3).random(kills)):
        process = start(*words)
        least = int((number + part) / kills * count * rounds * 0.9)
        wait_for(lambda least=least: rows(Path("s")) > least, process)
        landed.append(kill(process))
        for file in Path("s").glob("*/summary.json"):
            assert done.setdefault(file, file.stat().st_mtime_ns) == file.stat().st_mtime_ns
        assert rows(Path("s")) < count * rounds
    assert landed == [-signal.SIGKILL] * kills
    with sweeps_here():
        assert invoke(["compare", config, *words, "--jobs", "1"]) == 0
    assert all(
        file.stat().st_mtime_ns == at for file, at in done.items()
    )  # what was done was not done again
    check_rows(Path("s"), count, rounds)
    assert without_seconds(Path("s")) == without_seconds(Path("straight"))


def test_two_sweeps_side_by_side_share_the_work(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in processes of its own, and one in this process."""
    both = [*RUNS, "--jobs", "1", "--set", "train.rounds=20"]
    other = start(*both)
    wait_for(lambda: rows(Path("s")) > 0, other)
    with sweeps_here():
        assert invoke(["compare", config, *both]) == 0
    here = capsys.readouterr().out
    code, there, _ = other.ended()
    printed = [there, here]
    assert code == 0
    lines = [line for out in printed for line in out.splitlines() if line.startswith("[")]
    mine = [line.split("] ")[1].split(":")[0] for line in lines if "another sweep" not in line]
    assert len(mine) == 4
    assert len(set(mine)) == 4
    check_rows(Path("s"), 4, 20)
    tables = [re.findall(r"^fed.*$", out, re.MULTILINE) for out in printed]
    assert tables[0]
    assert tables[0] == tables[1]


def test_an_interrupted_sweep_saves_and_goes_on(config: str) -> None:
    long = [*RUNS, "--jobs", "2", "--set", "train.rounds=100000"]
    process = start(*long)
    wait_for(
        lambda: rows(Path("s")) > 3 and len(list(Path("s").glob("*/rounds.jsonl"))) == 2, process
    )
    process.send_signal(signal.SIGINT)
    code, _, err = process.ended()
    assert code == 130
    assert "error: stopped with 0 of 4 runs done; the same command continues, in s" in err
    for folder in Path("s").glob("[0-9a-f]*"):
        checkpoint = RunFolder(folder).checkpoints.latest()
        assert checkpoint is not None
        assert checkpoint.round == len(RunFolder(folder).rows())


def test_workers_of_a_killed_sweep_stop_and_save(config: str) -> None:
    plan = make_plan(
        config, ["fedavg"], overrides=["train.rounds=100000", "checkpoint.seconds=1000"]
    )
    process = start(
        "--algorithms",
        "fedavg",
        "--out",
        "s",
        "--set",
        "train.rounds=100000",
        "--set",
        "checkpoint.seconds=1000",
    )
    wait_for(lambda: rows(Path("s")) > 3, process)
    assert is_taken(plan.runs[0], Path("s"))
    process.kill()
    process.ended()
    wait_for(lambda: not is_taken(plan.runs[0], Path("s")))
    folder = RunFolder(Path("s") / plan.runs[0].id)
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    assert checkpoint.round == len(folder.rows())


def test_a_run_that_fails_or_dies_does_not_stop_the_others(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    Path("sweep_bad.py").write_text(
        "import os, signal\n"
        "def dies(): os.kill(os.getpid(), signal.SIGKILL)\n"
        "def raises(): raise ZeroDivisionError('x')\n"
    )
    names = ["--algorithms", "sweep_bad:dies,sweep_bad:raises,fedavg", "--baseline", "fedavg"]
    assert invoke(["compare", config, *names, "--jobs", "1", "--out", "s"]) == 8
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == 3
    assert re.match(
        r"error: sweep_bad:dies, seed 0 \(s/[0-9a-f]{12}\): engine: the process .*\(SIGKILL\)",
        lines[0],
    )
    assert re.match(r"error: sweep_bad:raises, seed 0 .* failed \(ZeroDivisionError: x\)", lines[1])
    assert lines[2] == "error: compare: runs failed (2 of 3)"
    assert "[3/3] fedavg, seed 0: accuracy" in shown.out
    table = list(csv.DictReader(Path("s/table.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["runs"], bool(row["accuracy"])) for row in table] == [
        ("sweep_bad:dies", "0", False),
        ("sweep_bad:raises", "0", False),
        ("fedavg", "1", True),
    ]


def test_what_fails_whatever_the_seed_is_not_begun_again(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    Path("sweep_begun.py").write_text(
        "import pathlib\n"
        "def raises():\n"
        "    with open('begun', 'a') as file: file.write('x')\n"
        "    raise ZeroDivisionError('x')\n"
    )
    plan = make_plan(config, ["fedavg", "sweep_begun:raises"], [0, 1, 2])
    before = Path("begun").read_text() if Path("begun").exists() else ""
    said = []
    with sweeps_here():
        failures = sweep(
            plan.runs,
            tmp_path / "s",
            report=lambda run, state, reason: said.append((run.algorithm, state, bool(reason))),
        )
    assert len(failures) == 3
    assert all("ZeroDivisionError" in one.line for one in failures)
    assert Path("begun").read_text() == before + "x"
    assert said.count(("fedavg", "done", False)) == 3
    assert said.count(("sweep_begun:raises", "failed", True)) == 3


def test_a_sweep_reports_and_skips(config: str, tmp_path: Path) -> None:
    plan = make_plan(config, ["fedavg"], [0, 1])
    states = []
    with sweeps_here():
        for _ in range(2):
            failures = sweep(
                plan.runs,
                tmp_path / "s",
                report=lambda run, state, reason: states.append((run.seed, state)),
            )
            assert failures == []
    assert states == [(0, "done"), (1, "done"), (0, "skipped"), (1, "skipped")]
    alone = make_plan(config, ["fedavg"], [1]).runs[0]
    assert is_done(alone, tmp_path / "s")  # a part of one sweep is a part of another


@pytest.mark.parametrize(("jobs", "threads"), [(1, "8"), (3, "2"), (20, "1")])
def test_runs_side_by_side_share_the_cores(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, threads: str
) -> None:
    """With a thread per core in each process, two side by side were slower than one by one."""
    started: list[str] = []

    class StoppedHere(Exception):
        pass

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        started.append(env["OMP_NUM_THREADS"])
        raise StoppedHere

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("coterie.sweep.plan.cores", lambda: 8)
    monkeypatch.setattr("coterie.sweep.worker.subprocess.Popen", popen)
    plan = make_plan(config, ["fedavg"], [0])
    with pytest.raises(StoppedHere):
        sweep(plan.runs, tmp_path / "sweep", jobs=jobs)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with pytest.raises(StoppedHere):
        sweep(plan.runs, tmp_path / "sweep", jobs=jobs)
    assert started == [threads, "5"]

"""Sweeps: what is planned, that every run is done once whatever happens, and the table that comes
of it."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tomli_w
import torch
from filelock import Timeout

from coterie.cli.main import invoke
from coterie.errors import ConfigError
from coterie.runs.run import Stopped, read_samples
from coterie.runs.store import RunFolder
from coterie.sweep import plan as plans
from coterie.sweep import table as compare
from coterie.sweep.plan import Plan, make_plan, read_seeds
from coterie.sweep.runner import carry_out, is_done, is_taken, lock_of, sweep
from coterie.sweep.table import (
    Comparison,
    Difference,
    Measured,
    Row,
    paired,
    tabulate,
    write_tables,
)

TABLES: dict[str, Any] = {
    "data": {
        "source": "digits",
        "partition": {"kind": "planted", "clients": 12, "groups": 2, "how": "swap"},
    },
    "model": {"name": "mclr"},
    "local": {"epochs": 1, "lr": 0.1},
    "train": {"rounds": 3, "clients_per_round": 6},
    "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 3, "pretrain_steps": 5},
    "engine": {"name": "serial"},
    "checkpoint": {"seconds": 0},
}
HOSTILE = "a|b_c & <i> 5% \\x [y] ~^"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(tomli_w.dumps(TABLES))
    return "c.toml"


def ids(plan: Plan) -> list[str]:
    return [run.id for run in plan.runs]


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.removeprefix("error: ") for line in capsys.readouterr().err.splitlines()]


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_crosses_algorithms_grid_and_seeds(config: str) -> None:
    plan = make_plan(
        config, ["fedavg", "fedgroup"], [0, 1], ["local.lr=0.1,0.2", "algorithm.groups=2,3"]
    )
    assert len(plan.points) == 4
    assert len(plan.cells) == 2 * 4 * 2
    assert (
        len(plan.runs) == 2 * 2 + 4 * 2
    )  # FedAvg has no groups, so two points of the grid are one run
    assert [run.name for run in plan.runs[:2]] == [
        "fedavg, local.lr=0.1, seed 0",
        "fedavg, local.lr=0.1, seed 1",
    ]
    assert plan.runs[-1].tables["algorithm"]["groups"] == 3
    assert plan.runs[-1].tables["local"]["lr"] == 0.2
    assert all(re.fullmatch("[0-9a-f]{12}", name) for name in ids(plan))


def test_what_a_plan_defaults_to(config: str) -> None:
    plan = make_plan(config)
    assert (plan.algorithms, plan.seeds, plan.keys, plan.points) == (("fedgroup",), (0,), (), ((),))


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("engine.name=pool", True),
        ("engine.workers=2", True),
        ("checkpoint.seconds=5", True),
        ("seed=1", False),
        ("local.lr=0.2", False),
        ("train.rounds=4", False),
        ("algorithm.groups=3", False),
        ("data.partition.clients=13", False),
    ],
)
def test_only_what_changes_results_makes_another_run(
    config: str, override: str, same: bool
) -> None:
    assert (ids(make_plan(config, overrides=[override])) == ids(make_plan(config))) is same


def test_other_data_make_another_run(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ids(make_plan(config))

    def changed(config: Any) -> Any:
        samples = read_samples(config)
        samples.x[0, 0, 0, 0] += torch.tensor(1.0)
        return samples

    monkeypatch.setattr(plans, "read_samples", changed)
    assert ids(make_plan(config)) != before


def test_another_dealing_makes_another_run(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    before = ids(make_plan(config))
    dealt = plans.deal
    monkeypatch.setattr(
        plans, "deal", lambda c, s: replace(p := dealt(c, s), train=(p.train[0][:-1], *p.train[1:]))
    )
    assert ids(make_plan(config)) != before


def test_data_are_read_once_for_all_seeds(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(plans, "read_samples", lambda c: asked.append(1) or read_samples(c))
    make_plan(config, ["fedavg", "ifca"], range(5), ["local.lr=0.1,0.2"])
    assert len(asked) == 1


def test_whose_options_are_whose(config: str) -> None:
    names = ["fedgroup", "ifca", "pacfl", "fedgsp", "fedprox", "fedgrouprox"]
    every = make_plan(
        config,
        names,
        overrides=["fedgsp.alpha=1.5", "algorithm.mu=0.2", "fedprox.mu=0.3"],
        values={"data.root": "x"},
    )
    table = {run.algorithm: run.tables["algorithm"] for run in every.runs}
    assert table["fedgroup"]["alpha"] == 3
    assert table["ifca"]["groups"] == 2  # the same option
    assert "groups" not in table["pacfl"]  # of the same name, with another default
    assert table["fedgsp"]["alpha"] == 1.5  # another thing of the same name
    assert (table["fedprox"]["mu"], table["fedgrouprox"]["mu"]) == (0.3, 0.2)
    assert table["fedgrouprox"]["pretrain_steps"] == 5
    assert every.runs[0].tables["data"]["root"].endswith("/x")


def test_a_grid_of_one_algorithm_is_not_of_the_others(config: str) -> None:
    plan = make_plan(config, ["fedavg", "fedprox"], [0], ["fedprox.mu=0.1,1"])
    assert [run.name for run in plan.runs] == [
        "fedavg, seed 0",
        "fedprox, fedprox.mu=0.1, seed 0",
        "fedprox, fedprox.mu=1, seed 0",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--algorithms", "fedavgg"],
            "--algorithms: unknown choice, got 'fedavgg'; .*did you mean 'fedavg'\\?",
        ),
        (["--algorithms", "fedavg,fedavg"], "--algorithms: one of them twice"),
        (["--algorithms", "fedavg,"], "--algorithms: unknown choice, got ''"),
        (["--algorithms", "fedavg,ifca", "--baseline", "ifc"], "--baseline: .*did you mean 'ifca'"),
        (["--figure", "maxx"], "--figure: .*did you mean 'max'"),
        (["--seeds", "4-0"], "--seeds: a range that holds none"),
        (["--seeds", "0-999999999"], "--seeds: a range that holds none, or too many"),
        (["--seeds", "-1"], "--seeds: not seeds"),
        (["--seeds", "1,,2"], "--seeds: not seeds"),
        (["--grid", "local.lr"], "--grid: not a key and its values"),
        (["--grid", "local.lr=1,"], "--grid: not a key and its values"),
        (["--grid", "seed=1,2"], "--grid: a key that is set elsewhere"),
        (["--grid", "local.lr=1,2", "--grid", "local.lr=3"], "--grid: a key that is set elsewhere"),
        (["--grid", "algorithm.grups=1"], "--grid: an option of none.*did you mean 'groups'"),
        (["--grid", "local.lrr=1"], "c.toml: local.lrr: unknown key.*did you mean 'lr'"),
        (
            ["--grid", "algorithm.groups=0,2"],
            "algorithm.groups: out of range, got 0; .*\\(fedgroup\\)",
        ),
        (["--set", "algorithm.grups=1"], "--set: an option of none.*did you mean 'groups'"),
        (["--target", "90"], "--target"),
        (["--jobs", "0"], "--jobs"),
        (
            ["--seeds", "0-9998", "--grid", "local.lr=1,2"],
            "more runs than a sweep holds, got 19998",
        ),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["compare", config, *arguments]) == 2
    (line,) = errors(capsys)
    assert re.search(words, line), line
    assert not Path("runs").exists()


def test_a_misspelt_option_is_refused_though_its_algorithm_does_not_run(config: str) -> None:
    Path(config).write_text(
        tomli_w.dumps({**TABLES, "algorithm": {"name": "fedgroup", "grups": 2}})
    )
    with pytest.raises(
        ConfigError, match=r"algorithm\.grups: unknown key, got 2; .*did you mean 'groups'"
    ):
        make_plan(config, ["fedavg"])


def test_seeds_and_values() -> None:
    assert read_seeds("3,0-2, 2") == [3, 0, 1, 2]
    assert plans.split_values("edc,madc") == ["edc", "madc"]


# --- one run, and who has it ----------------------------------------------------------------------


def test_a_run_is_done_stopped_resumed_and_left_alone(config: str, tmp_path: Path) -> None:
    (run,) = make_plan(config).runs
    out = tmp_path / "s"
    out.mkdir()
    (out / f".{run.id}.tmp-1").mkdir()  # what a kill left
    with pytest.raises(Stopped):
        carry_out(run, out, lambda: signal.SIGTERM)
    assert not is_done(run, out)
    assert len(RunFolder(out / run.id).rows()) == 1
    (out / run.id / "partition.npz").unlink()  # as if killed before it was written
    assert carry_out(run, out)
    assert is_done(run, out)
    assert (out / run.id / "partition.npz").exists()
    at = (out / run.id / "summary.json").stat().st_mtime_ns
    assert not carry_out(run, out)
    assert (out / run.id / "summary.json").stat().st_mtime_ns == at
    (out / run.id / "summary.json").write_text("{")
    assert not is_done(run, out)
    assert carry_out(run, out)
    assert [row["round"] for row in RunFolder(out / run.id).rows()] == [0, 1, 2]
    assert not list(out.glob(".*.tmp-*"))


def test_a_run_that_somebody_has_is_taken(config: str, tmp_path: Path) -> None:
    (run,) = make_plan(config).runs
    assert not is_taken(run, tmp_path)
    with lock_of(run, tmp_path):
        assert is_taken(run, tmp_path)
        with pytest.raises(Timeout):
            carry_out(run, tmp_path)
    assert not is_taken(run, tmp_path)


# --- the sweep ------------------------------------------------------------------------------------

RUNS = ("--algorithms", "fedavg,fedgroup", "--seeds", "0-1", "--target", "0.3", "--out", "s")


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "coterie.cli.main", "compare", "c.toml", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("*/rounds.jsonl"))


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 120
    while not what() and (process is None or process.poll() is None):
        assert time.monotonic() < end
        time.sleep(0.005)


def kill(process: subprocess.Popen[str]) -> None:
    """End a sweep and all that it started, at once."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    for one in [process, *children]:
        one.kill()
    process.communicate()
    psutil.wait_procs(children, 30)


def without_seconds(out: Path) -> dict[str, list[str]]:
    """The tables, each without its last column."""
    found = {
        name: (out / f"{name}").read_text().splitlines()
        for name in ("table.md", "table.csv", "table.tex")
    }
    found["runs.csv"] = (out / "runs.csv").read_text().splitlines()
    cut = {
        "table.md": r"[^|]*\|$",
        "table.csv": r",[^,]*$",
        "table.tex": r"& [^&]*\\\\$",
        "runs.csv": r",[^,]*$",
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


def straight(plan: Plan) -> None:
    """The sweep that nobody killed, one run after another in this process."""
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
    command = [*RUNS, "--seeds", seeds, "--set", f"train.rounds={rounds}", "--jobs", "2"]
    count = 2 * len(read_seeds(seeds))
    straight(
        make_plan(config, ["fedavg", "fedgroup"], read_seeds(seeds), (), [f"train.rounds={rounds}"])
    )
    done: dict[Path, int] = {}
    landed = []
    for number, part in enumerate(np.random.default_rng(3).random(kills)):
        process = start(*command)
        least = int((number + part) / kills * count * rounds * 0.9)
        wait_for(lambda least=least: rows(Path("s")) > least, process)
        kill(process)
        landed.append(process.returncode)
        for file in Path("s").glob("*/summary.json"):
            assert done.setdefault(file, file.stat().st_mtime_ns) == file.stat().st_mtime_ns
        assert rows(Path("s")) < count * rounds
    assert landed == [-signal.SIGKILL] * kills
    assert invoke(["compare", config, *command]) == 0
    assert all(
        file.stat().st_mtime_ns == at for file, at in done.items()
    )  # what was done was not done again
    check_rows(Path("s"), count, rounds)
    assert without_seconds(Path("s")) == without_seconds(Path("straight"))


def test_two_sweeps_side_by_side_share_the_work(config: str) -> None:
    both = [start(*RUNS, "--set", "train.rounds=20") for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    lines = [line for out, _ in said for line in out.splitlines() if line.startswith("[")]
    mine = [line.split("] ")[1].split(":")[0] for line in lines if "another sweep" not in line]
    assert len(mine) == 4
    assert len(set(mine)) == 4
    check_rows(Path("s"), 4, 20)
    tables = [re.findall(r"^fed.*$", out, re.MULTILINE) for out, _ in said]
    assert tables[0] == tables[1]


def test_an_interrupted_sweep_saves_and_goes_on(config: str) -> None:
    long = [*RUNS, "--jobs", "2", "--set", "train.rounds=100000"]
    process = start(*long)
    wait_for(
        lambda: rows(Path("s")) > 3 and len(list(Path("s").glob("*/rounds.jsonl"))) == 2, process
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "error: stopped with 0 of 4 runs done; the same command goes on, in s" in err
    for folder in Path("s").glob("[0-9a-f]*"):
        checkpoint = RunFolder(folder).latest_checkpoint()
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
    process.communicate()
    wait_for(lambda: not is_taken(plan.runs[0], Path("s")))
    folder = RunFolder(Path("s") / plan.runs[0].id)
    checkpoint = folder.latest_checkpoint()
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
    names = "sweep_bad:dies,sweep_bad:raises,fedavg"
    assert (
        invoke(["compare", config, "--algorithms", names, "--baseline", "fedavg", "--out", "s"])
        == 8
    )
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == 3
    assert re.match(
        r"error: sweep_bad:dies, seed 0 \(s/[0-9a-f]{12}\): engine: the process .*got SIGKILL",
        lines[0],
    )
    assert re.match(r"error: sweep_bad:raises, seed 0 .* failed \(ZeroDivisionError: x\)", lines[1])
    assert lines[2] == "error: compare: runs failed, got 2 of 3; expected none"
    assert "[3/3] fedavg, seed 0: accuracy" in shown.out
    table = list(csv.DictReader(Path("s/table.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["runs"], bool(row["accuracy"])) for row in table] == [
        ("sweep_bad:dies", "0", False),
        ("sweep_bad:raises", "0", False),
        ("fedavg", "1", True),
    ]


def test_a_sweep_tells_and_skips(config: str, tmp_path: Path) -> None:
    plan = make_plan(config, ["fedavg"], [0, 1])
    told = []
    for _ in range(2):
        assert (
            sweep(plan, tmp_path / "s", told=lambda run, state: told.append((run.seed, state)))
            == []
        )
    assert told == [(0, "done"), (1, "done"), (0, "skipped"), (1, "skipped")]
    alone = make_plan(config, ["fedavg"], [1]).runs[0]
    assert is_done(alone, tmp_path / "s")  # a part of one sweep is a part of another


# --- the table ------------------------------------------------------------------------------------


def test_paired_differences() -> None:
    found = paired([0.02, 0.04, 0.03])
    assert found is not None
    assert found.mean == pytest.approx(0.03)
    assert found.half == pytest.approx(
        4.302652729911275 * 0.01 / 3**0.5
    )  # t of 0.975, two degrees of freedom
    assert paired([0.1]) == Difference(0.1, None, 1)
    assert paired([]) is None
    assert paired([0.5, 0.5]) == Difference(0.5, 0.0, 2)


@pytest.fixture
def tabled(config: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Comparison]:
    """The table of made-up measures: (algorithm, seed) -> accuracy, ``None`` for a run that is not
    done."""

    def made(
        accuracy: dict[tuple[str, int], float | None], grid: tuple[str, ...] = (), **options: Any
    ) -> Comparison:
        names, seeds = (list(dict.fromkeys(key[at] for key in accuracy)) for at in (0, 1))
        plan = make_plan(config, names, seeds, grid)
        known = {run.id: accuracy[run.algorithm, run.seed] for run in plan.runs}
        monkeypatch.setattr(compare, "is_done", lambda run, out: known[run.id] is not None)
        monkeypatch.setattr(
            compare,
            "measure",
            lambda path, *_: Measured(
                known[path.name], 4 if known[path.name] > 0.5 else None, 1000, 2.0
            ),
        )
        return tabulate(plan, Path("s"), options.pop("baseline", names[0]), **options)

    return made


def test_a_row_is_over_seeds_and_a_missing_run_is_said(tabled: Callable[..., Comparison]) -> None:
    table = tabled(
        {("fedavg", 0): 0.5, ("fedavg", 1): 0.6, ("ifca", 0): 0.7, ("ifca", 1): None}, target=0.5
    )
    one, other = table.rows
    assert (one.mean, one.sd, one.difference, one.reached) == (
        pytest.approx(0.55),
        pytest.approx(0.1 / 2**0.5),
        None,
        1,
    )
    assert (other.done, other.planned, other.sd) == (1, 2, None)
    assert other.difference == Difference(pytest.approx(0.2), None, 1)
    lines = compare.cells(table)
    assert lines[0] == ["fedavg", "2", "55.00", "7.07", "-", "-", "4.0 (1 of 2)", "1.0 kB", "2.0"]
    assert lines[1] == ["ifca", "1 of 2", "70.00", "-", "+20.00", "-", "4.0", "1.0 kB", "2.0"]


def test_one_seed_has_no_interval_and_says_so(tabled: Callable[..., Comparison]) -> None:
    table = tabled({("fedavg", 0): 0.5, ("ifca", 0): 0.4})
    assert compare.cells(table)[1][3:6] == ["-", "-10.00", "-"]
    assert "With one seed there is no interval." in " ".join(compare.notes(table))


def test_rows_that_score_different_clients_say_so(tabled: Callable[..., Comparison]) -> None:
    table = tabled({("fedavg", 0): 0.5, ("ifca", 0): 0.4})
    counted = [
        replace(row, scored=scored) for row, scored in zip(table.rows, (30, 12), strict=True)
    ]
    assert "Clients scored at the end: fedavg 30, ifca 12." in " ".join(
        compare.notes(replace(table, rows=counted))
    )
    same = [replace(row, scored=30) for row in table.rows]
    assert "scored" not in " ".join(compare.notes(replace(table, rows=same)))


def test_rows_compared_with_different_baselines_are_told_apart(
    tabled: Callable[..., Comparison],
) -> None:
    both = {("fedavg", 0): 0.5, ("fedgroup", 0): 0.7}
    grid = ("algorithm.groups=2,3",)
    assert [row.values for row in tabled(both, grid).rows] == [("-",), ("2",), ("3",)]
    assert [
        (row.algorithm, row.values) for row in tabled(both, grid, baseline="fedgroup").rows
    ] == [
        *(("fedavg", ("2",)), ("fedavg", ("3",))),
        *(("fedgroup", ("2",)), ("fedgroup", ("3",))),
    ]


def test_names_are_escaped_in_every_table() -> None:
    row = Row(HOSTILE, (HOSTILE,), 1, 1, 0.5, None, Difference(-0.01, 0.02, 3), 0, None, 10.0, 1.0)
    table = Comparison((HOSTILE,), (0, 1, 2), HOSTILE, None, "max", (row,))
    head, rule, line = compare.markdown(table).splitlines()[:3]
    assert {len(re.findall(r"(?<!\\)\|", text)) for text in (head, rule, line)} == {10}
    assert "<" not in head + line
    tex = compare.latex(table).splitlines()
    (line,) = (text for text in tex if text.startswith("a|b"))
    assert line.startswith(
        r"a|b\_c \& \textless{}i\textgreater{} 5\% \textbackslash{}x {[}y{]} \textasciitilde{}"
    )
    assert len(re.findall(r"(?<!\\)&", line)) == 8
    assert "$-$1.00 & 2.00" in line
    (read,) = list(csv.reader(compare.comma_separated(table).splitlines()))[1:]
    assert read[:2] == [HOSTILE, HOSTILE]
    assert read[5:8] == ["-0.01", "-0.03", "0.01"]


def test_the_target_counts_once_everybody_has_a_group(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "r", {"seed": 0})
    for t, (accuracy, clients) in enumerate([(0.9, 3), (0.4, 12), (None, 12), (0.8, 12)]):
        moved = {"down_bytes": 10, "up_bytes": 5}
        folder.append_round(
            {"round": t, "accuracy": accuracy, "clients_assigned": clients, "transfers": moved}
        )
    folder.write_summary({"accuracy": {"max": 0.8}, "seconds": {"total": 3.0}})
    assert compare.measure(folder.path, 0.8, "max") == Measured(0.8, 4, 60, 3.0, 12)
    assert compare.measure(folder.path, 0.85, "max") == Measured(0.8, None, None, 3.0, 12)
    assert compare.measure(folder.path, None, "max") == Measured(0.8, None, 60, 3.0, 12)


# --- a chart of a run -----------------------------------------------------------------------------


def test_plot(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    for ending, begin in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF")):
        assert invoke(["plot", "r", "--chart", "mix", "--out", f"deep/x{ending}"]) == 0
        assert Path(f"deep/x{ending}").read_bytes().startswith(begin)
    assert invoke(["plot", "r", "r", "--chart", "accuracy"]) == 0
    assert Path("r/accuracy.png").exists()
    capsys.readouterr()
    for arguments, words in (
        (
            ["--chart", "acuracy"],
            "--chart: .*one of accuracy, bytes, .*mix-0; did you mean 'accuracy'",
        ),
        (
            ["--chart", "accuracy", "--out", "x.gif"],
            "--out: unknown kind of file, got 'x.gif'; .*.png, .svg, .pdf",
        ),
        (["--chart", "accuracy", "--out", "c.toml/x.png"], "--out: cannot be written"),
    ):
        assert invoke(["plot", "r", *arguments]) == 2
        (line,) = errors(capsys)
        assert re.search(words, line), line

"""One run: done once, resumed, and left alone while another process works on it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from filelock import Timeout

from coterie.errors import ConfigError
from coterie.report.load import run_folders
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped
from coterie.sweep.comparison import tabulate
from coterie.sweep.plan import make_plan
from coterie.sweep.run_once import carry_out, is_done, is_taken, lock_of, outdated, plan_of_runs
from tests.refusals import refuses


def test_a_run_is_done_stopped_resumed_and_left_alone(config: str, tmp_path: Path) -> None:
    (run,) = make_plan(config).runs
    out = tmp_path / "s"
    out.mkdir()
    (out / f".{run.id}.tmp-1").mkdir()  # what a kill left
    with pytest.raises(Stopped):
        carry_out(run, out, lambda: signal.SIGTERM)
    assert not is_done(run, out)
    assert len(RunFolder(out / run.id).rows()) == 1
    assert carry_out(run, out)
    assert is_done(run, out)
    at = (out / run.id / "summary.json").stat().st_mtime_ns
    assert not carry_out(run, out)
    assert (out / run.id / "summary.json").stat().st_mtime_ns == at
    (out / run.id / "summary.json").write_text("{")
    assert not is_done(run, out)
    assert carry_out(run, out)
    assert [row["round"] for row in RunFolder(out / run.id).rows()] == [0, 1, 2]
    assert not list(out.glob(".*.tmp-*"))


def test_a_run_that_another_process_has_is_taken(config: str, tmp_path: Path) -> None:
    (run,) = make_plan(config).runs
    assert not is_taken(run, tmp_path)
    with lock_of(run, tmp_path):
        assert is_taken(run, tmp_path)
        with pytest.raises(Timeout):
            carry_out(run, tmp_path)
    assert not is_taken(run, tmp_path)


def test_finished_runs_of_any_folders_are_compared(config: str, tmp_path: Path) -> None:
    plan = make_plan(config, ["fedavg", "ifca"], [0, 1])
    for run in plan.runs:
        carry_out(run, tmp_path)
    folders = [
        (tmp_path / run.id).rename(tmp_path / f"{run.algorithm}-{run.seed}") for run in plan.runs
    ]
    found = tabulate(plan_of_runs(folders), tmp_path, "fedavg")
    assert [(row.algorithm, row.done) for row in found.rows] == [("fedavg", 2), ("ifca", 2)]
    difference = found.rows[1].difference
    assert difference is not None
    assert difference.pairs == 2
    with refuses(ConfigError, "missing", "compare"):
        plan_of_runs(folders[1:])
    with refuses(ConfigError, "in-conflict", "compare"):
        plan_of_runs([*folders, folders[0]])
    (folders[0] / "summary.json").unlink()
    with refuses(ConfigError, "does-not-fit", "compare"):
        plan_of_runs(folders)


OWN = "import coterie as ct\n\n\ndef mine():\n    return ct.fedavg()\n"


@pytest.mark.parametrize("begun", ["finished", "stopped"])
def test_a_run_whose_code_has_changed_is_run_anew(
    begun: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / f"own_{begun}.py"
    code.write_text(OWN)
    (run,) = make_plan(config, [f"own_{begun}:mine"]).runs
    out = tmp_path / "s"
    out.mkdir()
    if begun == "finished":
        carry_out(run, out)
        assert is_done(run, out)
        assert not outdated(run, out)
    else:
        with pytest.raises(Stopped):
            carry_out(run, out, lambda: signal.SIGTERM)
    before = (out / run.id / "rounds.jsonl").read_bytes()
    code.write_text(f"# changed\n{OWN}")
    assert not is_done(run, out)
    assert outdated(run, out) == [str(code)]
    with refuses(ConfigError, "differs", "compare") as caught:
        plan_of_runs([out / run.id])
    assert str(code) in str(caught.value)
    assert carry_out(run, out)
    assert is_done(run, out)
    assert len(RunFolder(out / run.id).rows()) == 3
    # Kept, where no report of the sweep reads it.
    (kept,) = (out / "earlier").glob("*/rounds.jsonl")
    assert kept.read_bytes() == before
    assert len(run_folders([out])) == 1

"""Run folders: what was written comes back, and what was damaged is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.errors import CheckpointError, ConfigError
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder
from tests.refusals import refuses
from tests.runs.stored_runs import RESOLVED, row, state


def test_a_new_folder_holds_the_configuration(folder: RunFolder) -> None:
    assert folder.resolved == RESOLVED
    assert RunFolder.open(folder.path).resolved == RESOLVED


def test_a_folder_in_use_is_refused_and_resume_named(folder: RunFolder, tmp_path: Path) -> None:
    with refuses(ConfigError, "in-use", "out"):
        RunFolder.create(folder.path, RESOLVED)
    (tmp_path / "mine").mkdir()
    RunFolder.create(tmp_path / "mine", RESOLVED)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with refuses(ConfigError, "in-use", "out"):
        RunFolder.create(tmp_path / "full", RESOLVED)
    with refuses(ConfigError, "cannot-be-written", "out"):
        RunFolder.create(tmp_path / "full" / "thesis.tex" / "run", RESOLVED)
    with refuses(ConfigError, "not-found", "run"):
        RunFolder.open(tmp_path / "full")


def test_default_names_are_counted_and_stay_inside(tmp_path: Path) -> None:
    names = [
        RunFolder.create_next(tmp_path, "../my.mod:algo-digits-0", RESOLVED).path for _ in range(2)
    ]
    assert [path.name for path in names] == ["my-mod-algo-digits-0-1", "my-mod-algo-digits-0-2"]
    assert {path.parent for path in names} == {tmp_path}


def test_rows_come_back_and_what_is_not_finite_is_null(folder: RunFolder) -> None:
    folder.append_round(row(0, loss=float("nan"), counts=np.arange(2), n=np.int64(3)))
    folder.append_round(row(1))
    first, second = folder.rows()
    assert (first["loss"], first["counts"], first["n"]) == (None, [0, 1], 3)
    assert second == row(1)


def test_a_torn_last_line_is_left_out_and_a_damaged_one_named(folder: RunFolder) -> None:
    for t in range(3):
        folder.append_round(row(t))
    file = folder.path / "rounds.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert [r["round"] for r in folder.rows()] == [0, 1]
    file.write_bytes(b"{]\n" + whole)
    with refuses(CheckpointError, "damaged", "rounds.jsonl"):
        folder.rows()


def test_rewinding_forgets_what_came_after(folder: RunFolder) -> None:
    for t in range(5):
        folder.append_round(row(t))
    folder.checkpoints.save(Checkpoint(3, state(3), {}))
    folder.checkpoints.save(Checkpoint(5, state(4), {}))
    assert [r["round"] for r in folder.rewind(3)] == [0, 1, 2]
    assert [r["round"] for r in folder.rows()] == [0, 1, 2]
    assert folder.checkpoints.all() == [3]
    with refuses(CheckpointError, "damaged", "rounds.jsonl"):
        folder.rewind(4)


def test_what_is_no_run_is_told_which_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refuses(ConfigError, "not-found", "run"):
        RunFolder.open("nope")
    for name in "edcba":
        RunFolder.create(tmp_path / "runs" / name, {"seed": 0})
    for wrong in ("nope", "runs"):
        with refuses(ConfigError, "not-found", "run"):
            RunFolder.open(wrong)


def test_runs_of_a_comparison_are_named_by_method_and_seed(tmp_path: Path) -> None:
    for at in range(24):
        method = {"name": "local" if at < 12 else "fedavg"}
        RunFolder.create(tmp_path / f"{at:x}", {"seed": at % 12, "algorithm": method})
    (tmp_path / "0" / "config.toml").write_text("seed = ")
    with refuses(ConfigError, "not-found", "run") as caught:
        RunFolder.open(tmp_path)
    said = str(caught.value)
    # The method first, then the seed as a number.
    assert said.index("(fedavg, seed 2)") < said.index("(fedavg, seed 11)") < said.index("(local")
    assert f"{tmp_path / '16'} (fedavg, seed 10)" in said
    assert "4 more" in said
    assert "\n" not in said

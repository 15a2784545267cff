"""Run folders and checkpoints: what was written comes back, and what was damaged never does."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from coterie.config import check
from coterie.core.groups import Groups
from coterie.core.memory import Memory
from coterie.core.vectors import Layout, flatten
from coterie.errors import CheckpointError, ConfigError
from coterie.runs.checkpoint import FORMAT, Checkpoint
from coterie.runs.store import RunFolder
from coterie.runs.summary import summarise
from tests.conftest import same_memory

TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 8}},
    "model": {"name": "mclr"},
    "train": {"rounds": 4, "clients_per_round": 4},
    "algorithm": {"name": "fedavg"},
}
RESOLVED = check(TABLES).resolved()


@dataclass(frozen=True)
class Remembered:
    """What a rule might remember: a tensor, an array, numbers, and nothing."""

    record_name = "remembered"
    direction: torch.Tensor
    known: np.ndarray
    threshold: float
    count: int
    proximity: np.ndarray | None = None


def state(seed: int, k: int = 2) -> Groups:
    rng = torch.Generator().manual_seed(seed)
    models = torch.randn(k, 12, generator=rng)
    optimiser = {"velocity": torch.randn(k, 12, generator=rng), "steps": torch.arange(k)}
    memory = Memory().with_record(
        Remembered(torch.randn(k, 12, generator=rng), np.arange(3) > 1, 0.25, 7)
    )
    member = np.arange(8) % (k + 1) - 1
    return Groups(models, member, optimiser, memory, models[0], np.arange(k) > 0)


def same(a: Groups, b: Groups) -> bool:
    tensors = [(a.models, b.models), *((a.optimiser[n], b.optimiser[n]) for n in a.optimiser)]
    assert a.start is not None
    assert b.start is not None
    tensors += [(a.start, b.start)]
    names = a.optimiser.keys() == b.optimiser.keys() and same_memory(a, b)
    names = names and np.array_equal(a.trained, b.trained)  # type: ignore[arg-type]
    equal = all(x.dtype == y.dtype and torch.equal(x, y) for x, y in tensors)
    return (
        names and equal and a.member.dtype == b.member.dtype and np.array_equal(a.member, b.member)
    )


def row(round: int, **more: Any) -> dict[str, Any]:
    seconds = {
        "training": 0.5,
        "grouping": 0.1,
        "aggregation": 0.1,
        "evaluation": 0.1,
        "total": 1.0 + round,
    }
    transfers = {"models": 8, "down_bytes": 100, "up_bytes": 50}
    return {
        "round": round,
        "accuracy": 0.1 * round,
        "sizes": [3, 5],
        "seconds": seconds,
        "transfers": transfers,
        "refused": {"finite": 1},
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", RESOLVED)


# --- folders --------------------------------------------------------------------------------------


def test_a_new_folder_holds_the_configuration(folder: RunFolder) -> None:
    assert folder.resolved == RESOLVED
    assert RunFolder.open(folder.path).resolved == RESOLVED


def test_a_folder_in_use_is_refused_and_resume_named(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds a run already.*coterie resume"):
        RunFolder.create(folder.path, RESOLVED)
    (tmp_path / "mine").mkdir()
    RunFolder.create(tmp_path / "mine", RESOLVED)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="not empty"):
        RunFolder.create(tmp_path / "full", RESOLVED)
    with pytest.raises(ConfigError, match="cannot be written"):
        RunFolder.create(tmp_path / "full" / "thesis.tex" / "run", RESOLVED)
    with pytest.raises(ConfigError, match="no run"):
        RunFolder.open(tmp_path / "full")


def test_default_names_are_counted_and_stay_inside(tmp_path: Path) -> None:
    names = [
        RunFolder.create_next(tmp_path, "../my.mod:algo-digits-0", RESOLVED).path for _ in range(2)
    ]
    assert [path.name for path in names] == ["my-mod-algo-digits-0-1", "my-mod-algo-digits-0-2"]
    assert {path.parent for path in names} == {tmp_path}


# --- rounds ---------------------------------------------------------------------------------------


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
    with pytest.raises(CheckpointError, match="line 1: damaged"):
        folder.rows()


def test_rewinding_forgets_what_came_after(folder: RunFolder) -> None:
    for t in range(5):
        folder.append_round(row(t))
    folder.save_checkpoint(state(3), 3, {})
    folder.save_checkpoint(state(4), 5, {})
    assert [r["round"] for r in folder.rewind(3)] == [0, 1, 2]
    assert [r["round"] for r in folder.rows()] == [0, 1, 2]
    assert [at for at, _ in folder._checkpoints()] == [3]
    with pytest.raises(CheckpointError, match="rows are missing, got 3; expected 4"):
        folder.rewind(4)


# --- results --------------------------------------------------------------------------------------


def test_models_are_named_tensors(folder: RunFolder) -> None:
    module = nn.Linear(3, 2)
    folder.write_models(Layout.of(module), torch.stack([flatten(module), flatten(module) + 1]))
    tensors = load_file(folder.path / "models" / "group-1.safetensors")
    assert torch.equal(tensors["weight"], module.weight.detach() + 1)
    assert sorted(os.listdir(folder.path / "models")) == [
        "group-0.safetensors",
        "group-1.safetensors",
    ]


def test_groups_are_written_whatever_clients_are_called(folder: RunFolder) -> None:
    names = ["../../etc/passwd", 'a,"b"', "ü\nx"]
    folder.write_groups(names, np.array([0, -1, 1]), np.array([4, -1, 0]))
    with (folder.path / "groups.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["client", "group", "since_round"],
        [names[0], "0", "4"],
        [names[1], "-1", "-1"],
        [names[2], "1", "0"],
    ]


def test_the_summary() -> None:
    rows = [row(0, accuracy=None), *(row(t) for t in range(1, 4))]
    summary = summarise(RESOLVED, rows, clients=8)
    assert summary["accuracy"] == {
        "max": pytest.approx(0.3),
        "final": pytest.approx(0.3),
        "last10_mean": pytest.approx(0.2),
    }
    assert summary["seconds"]["total"] == 10
    assert summary["seconds"]["per_round_median"] == 2.5
    assert summary["transfers"] == {"models": 32, "down_bytes": 400, "up_bytes": 200}
    assert summary["refused"] == {"finite": 4}
    assert (summary["algorithm"], summary["dataset"], summary["model"]) == (
        "fedavg",
        "digits",
        "mclr",
    )
    assert (summary["clients"], summary["rounds"], summary["groups"], summary["complete"]) == (
        8,
        4,
        2,
        True,
    )


def test_the_best_round_is_one_in_which_all_clients_were_scored() -> None:
    def best(*rounds: tuple[int, float | None]) -> float | None:
        rows = [row(t, clients_assigned=n, accuracy=a) for t, (n, a) in enumerate(rounds)]
        return summarise(RESOLVED, rows, clients=8)["accuracy"]["max"]

    assert best((3, 0.9), (6, 0.8), (7, 0.5), (7, 0.6), (7, 0.4)) == 0.6
    assert (
        best((3, 0.9), (6, 0.8), (7, None)) == 0.9
    )  # none of the rounds with everybody was evaluated


def test_a_damaged_summary_is_named(folder: RunFolder) -> None:
    (folder.path / "summary.json").write_text('{"accuracy"')
    with pytest.raises(
        CheckpointError,
        match=r"summary.json: damaged, got JSONDecodeError .*; expected the file as",
    ):
        folder.summary()


def test_the_summary_of_nothing_is_json(folder: RunFolder) -> None:
    folder.write_summary(summarise(RESOLVED, [], clients=8))
    read = folder.summary()
    assert read is not None
    assert read["accuracy"] == {"max": None, "final": None, "last10_mean": None}


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_is_the_state_to_the_bit(folder: RunFolder) -> None:
    assert folder.latest_checkpoint() is None
    folder.save_checkpoint(state(1, k=3), 7, {"since": [1, -1], "nested": {"a": [None, 0.1]}})
    read = folder.latest_checkpoint()
    assert read is not None
    assert (read.round, read.extra, read.warnings) == (
        7,
        {"since": [1, -1], "nested": {"a": [None, 0.1]}},
        (),
    )
    assert same(read.groups, state(1, k=3))


def test_the_last_two_are_kept_and_temporary_folders_cleared(folder: RunFolder) -> None:
    (folder.path / "checkpoints" / ".round-000009.tmp-1").mkdir()
    for t in (1, 2, 3, 3):
        folder.save_checkpoint(state(t), t, {})
    assert sorted(os.listdir(folder.path / "checkpoints")) == ["round-000002", "round-000003"]


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(folder: RunFolder) -> None:
    folder.save_checkpoint(state(1), 1, {})
    place = folder.save_checkpoint(state(2), 2, {})
    (place / "state.safetensors").write_bytes(b"")
    read = folder.latest_checkpoint()
    assert read is not None
    assert read.round == 1
    assert (
        "round-000002: damaged (state.safetensors does not match its checksum)" in read.warnings[0]
    )
    shutil.rmtree(folder.path / "checkpoints" / "round-000001")
    with pytest.raises(CheckpointError, match=r"no valid checkpoint, got .*round-000002"):
        folder.latest_checkpoint()


def test_another_configuration_is_refused_by_its_keys(folder: RunFolder) -> None:
    folder.save_checkpoint(state(1), 1, {})
    other = check({**TABLES, "seed": 5, "local": {"lr": 1}, "engine": {"workers": 7}}).resolved()
    with pytest.raises(CheckpointError, match=r"got other values of local\.lr, seed;"):
        folder.latest_checkpoint(other)


Damage = Callable[[random.Random, Path, Path], None]


def truncate(rng: random.Random, file: Path, other: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data))])


def flip(rng: random.Random, file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def zero(rng: random.Random, file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data))
    data[start : start + 64] = bytes(len(data[start : start + 64]))
    file.write_bytes(data)


def drop(rng: random.Random, file: Path, other: Path) -> None:
    file.unlink()


def swap(rng: random.Random, file: Path, other: Path) -> None:
    mine = file.read_bytes()
    theirs = (other / file.name).read_bytes()
    file.write_bytes(theirs)
    (other / file.name).write_bytes(mine)


def exchange(rng: random.Random, file: Path, other: Path) -> None:
    """The whole folders."""
    mine = file.parent
    between = mine.with_name("between")
    mine.rename(between)
    other.rename(mine)
    between.rename(other)


def survivor(work: RunFolder) -> Checkpoint | None:
    """The checkpoint that is used after a damage, ``None`` where both were refused."""
    try:
        return work.latest_checkpoint()
    except CheckpointError:
        return None


def test_300_damages_are_caught(folder: RunFolder, tmp_path: Path) -> None:
    folder.save_checkpoint(state(1), 1, {"since": [0, 1, 2]})
    folder.save_checkpoint(state(2), 2, {"since": [0, 1, 3]})
    rng = random.Random(4)
    damages = (truncate, flip, flip, zero, drop, swap, exchange)
    original = {p: p.read_bytes() for p in (folder.path / "checkpoints").rglob("*") if p.is_file()}
    for number in range(300):
        work = RunFolder(tmp_path / f"copy-{number}")
        shutil.copytree(folder.path, work.path)
        older, newer = (work.path / "checkpoints" / f"round-00000{t}" for t in (1, 2))
        damage: Damage = rng.choice(damages)
        damage(rng, newer / rng.choice(["state.safetensors", "manifest.json"]), older)
        unchanged = {work.path / p.relative_to(folder.path): data for p, data in original.items()}
        if all(p.exists() and p.read_bytes() == data for p, data in unchanged.items()):
            continue  # a block of zeros was zeroed
        read = survivor(work)
        if read is not None:
            assert (read.round, len(read.warnings)) == (1, 1)
            assert same(read.groups, state(1))
        shutil.rmtree(work.path)


def test_a_manifest_is_readable_json(folder: RunFolder) -> None:
    manifest = json.loads((folder.save_checkpoint(state(1), 12, {}) / "manifest.json").read_bytes())
    assert manifest["round"] == 12
    assert manifest["schema"] == FORMAT
    assert set(manifest["files"]) == {"state.safetensors"}
    assert manifest["config"]["data"]["source"] == "digits"


def test_what_is_no_run_is_told_which_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"got 'nope'; expected the folder of a run, which `coterie run CONFIG.toml`",
    ):
        RunFolder.open("nope")
    for name in "edcba":
        RunFolder.create(tmp_path / "runs" / name, {"seed": 0})
    for wrong in ("nope", "runs"):
        with pytest.raises(
            ConfigError,
            match=r"expected the folder of a run, as runs/a, runs/b, runs/c, runs/d, \.\.\.$",
        ):
            RunFolder.open(wrong)

"""Checkpoints: what was written comes back to the bit, and what was damaged never does."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from coterie.errors import CheckpointError
from coterie.experiment import check
from coterie.runs.folder.checkpoints import FORMAT, Checkpoint
from coterie.runs.folder.store import RunFolder
from tests.runs.damage import Damage, drop, flip, truncate, zero
from tests.runs.stored_runs import TABLES, same, state


def test_a_checkpoint_is_the_state_to_the_bit(folder: RunFolder) -> None:
    assert folder.checkpoints.latest() is None
    folder.checkpoints.save(state(1, k=3), 7, {"since": [1, -1], "nested": {"a": [None, 0.1]}})
    read = folder.checkpoints.latest()
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
        folder.checkpoints.save(state(t), t, {})
    assert sorted(os.listdir(folder.path / "checkpoints")) == ["round-000002", "round-000003"]


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(folder: RunFolder) -> None:
    folder.checkpoints.save(state(1), 1, {})
    place = folder.checkpoints.save(state(2), 2, {})
    (place / "state.safetensors").write_bytes(b"")
    read = folder.checkpoints.latest()
    assert read is not None
    assert read.round == 1
    assert (
        "round-000002: damaged (state.safetensors does not match its checksum)" in read.warnings[0]
    )
    shutil.rmtree(folder.path / "checkpoints" / "round-000001")
    with pytest.raises(CheckpointError, match=r"no valid checkpoint, got .*round-000002"):
        folder.checkpoints.latest()


def test_another_configuration_is_refused_by_its_keys(folder: RunFolder) -> None:
    folder.checkpoints.save(state(1), 1, {})
    other = check({**TABLES, "seed": 5, "local": {"lr": 1}, "engine": {"workers": 7}}).resolved()
    with pytest.raises(CheckpointError, match=r"got other values of local\.lr, seed;"):
        folder.checkpoints.latest(other)


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
        return work.checkpoints.latest()
    except CheckpointError:
        return None


def test_300_damages_are_caught(folder: RunFolder, tmp_path: Path) -> None:
    folder.checkpoints.save(state(1), 1, {"since": [0, 1, 2]})
    folder.checkpoints.save(state(2), 2, {"since": [0, 1, 3]})
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
    manifest = json.loads(
        (folder.checkpoints.save(state(1), 12, {}) / "manifest.json").read_bytes()
    )
    assert manifest["round"] == 12
    assert manifest["schema"] == FORMAT
    assert set(manifest["files"]) == {"state.safetensors"}
    assert manifest["config"]["data"]["source"] == "digits"

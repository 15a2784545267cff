"""Checkpoints: what was written comes back to the bit, and what was damaged never does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np

from coterie.errors import CheckpointError
from coterie.experiment import check
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import FORMAT
from coterie.runs.folder.store import RunFolder
from tests.refusals import refuses
from tests.runs.damage import Damage, drop, flip, truncate, zero
from tests.runs.stored_runs import TABLES, row, same, state


def test_a_checkpoint_is_the_state_to_the_bit(folder: RunFolder) -> None:
    assert folder.checkpoints.latest() is None
    since = np.array([1, -1])
    folder.checkpoints.save(Checkpoint(7, state(1, k=3), {"since": since}))
    read = folder.checkpoints.latest()
    assert read is not None
    assert (read.round, list(read.extra), read.warnings) == (7, ["since"], ())
    assert read.extra["since"].dtype == since.dtype
    assert np.array_equal(read.extra["since"], since)
    assert same(read.groups, state(1, k=3))


def test_the_last_two_are_kept_and_temporary_files_cleared(folder: RunFolder) -> None:
    (folder.path / "checkpoints" / ".round-000009.safetensors.tmp").touch()
    for t in (1, 2, 3, 3):
        folder.checkpoints.save(Checkpoint(t, state(t), {}))
    assert sorted(os.listdir(folder.path / "checkpoints")) == [
        "round-000002.safetensors",
        "round-000003.safetensors",
    ]


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(folder: RunFolder) -> None:
    folder.checkpoints.save(Checkpoint(1, state(1), {}))
    place = folder.checkpoints.save(Checkpoint(2, state(2), {}))
    place.write_bytes(b"")
    read = folder.checkpoints.latest()
    assert read is not None
    assert read.round == 1
    assert "round-000002.safetensors: damaged, got SHA-256 e3b0c44298fc;" in read.warnings[0]
    (folder.path / "checkpoints" / "round-000001.safetensors").unlink()
    with refuses(CheckpointError, "damaged", "run"):
        folder.checkpoints.latest()


def test_another_configuration_is_refused_by_its_keys(folder: RunFolder) -> None:
    folder.checkpoints.save(Checkpoint(1, state(1), {}))
    other = check({**TABLES, "seed": 5, "local": {"lr": 1}, "engine": {"workers": 7}}).resolved()
    with refuses(CheckpointError, "differs", "run"):
        folder.checkpoints.latest(other)


def swap(rng: random.Random, file: Path, other: Path) -> None:
    mine = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(mine)


def survivor(work: RunFolder) -> Checkpoint | None:
    """The checkpoint that is used after a damage, ``None`` where both were refused."""
    try:
        return work.checkpoints.latest()
    except CheckpointError:
        return None


def test_300_damages_are_caught(folder: RunFolder, tmp_path: Path) -> None:
    folder.checkpoints.save(Checkpoint(1, state(1), {"since": np.array([0, 1, 2])}))
    folder.checkpoints.save(Checkpoint(2, state(2), {"since": np.array([0, 1, 3])}))
    rng = random.Random(4)
    damages = (truncate, flip, flip, zero, drop, swap)
    original = {p: p.read_bytes() for p in (folder.path / "checkpoints").rglob("*") if p.is_file()}
    for number in range(300):
        work = RunFolder(tmp_path / f"copy-{number}")
        shutil.copytree(folder.path, work.path)
        older, newer = (work.path / "checkpoints" / f"round-00000{t}.safetensors" for t in (1, 2))
        damage: Damage = rng.choice(damages)
        damage(rng, newer, older)
        unchanged = {work.path / p.relative_to(folder.path): data for p, data in original.items()}
        if all(p.exists() and p.read_bytes() == data for p, data in unchanged.items()):
            continue  # a block of zeros was zeroed
        read = survivor(work)
        # Only where the two were swapped, the one before is damaged, too.
        assert (read is None) == (damage is swap)
        if read is not None:
            assert (read.round, len(read.warnings)) == (1, 1)
            assert same(read.groups, state(1))
        shutil.rmtree(work.path)


def test_the_record_knows_checkpoints_and_rows(folder: RunFolder) -> None:
    folder.append_round(row(0))
    place = folder.checkpoints.save(Checkpoint(1, state(1), {}))
    record = json.loads((folder.path / "digests.json").read_bytes())
    name = "checkpoints/round-000001.safetensors"
    assert record["files"][name] == [hashlib.sha256(place.read_bytes()).hexdigest()]
    (line,) = (folder.path / "rounds.jsonl").read_text().splitlines()
    assert (record["rows"], record["chain"]) == (1, json.loads(line)["chain"])
    assert (record["format"], record["config"]["data"]["source"]) == (FORMAT, "digits")


def test_a_number_comes_back_as_a_number(folder: RunFolder) -> None:
    folder.checkpoints.save(Checkpoint(1, state(1), {"moves": np.array(7)}))
    assert folder.checkpoints.saved().extra["moves"].shape == ()


def test_a_checkpoint_for_more_or_fewer_clients() -> None:
    checkpoint = Checkpoint(3, state(1), {"since": np.array([2, 0]), "other": np.array([5, 6])})
    member = checkpoint.groups.member.tolist()
    more = checkpoint.with_clients(len(member) + 2)
    assert more.groups.member.tolist() == [*member, -1, -1]
    fewer = more.with_clients(1)
    assert fewer.groups.member.tolist() == member[:1]
    assert fewer.since.tolist() == [2]
    assert fewer.extra["other"].tolist() == [5, 6]

"""A kill before any single write of a folder's files leaves a run that is read and goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import coterie.files
from coterie.runs.folder import digests, rows
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder, check_folder
from tests.runs.stored_runs import row, state


class KilledError(BaseException):
    """Ends a process where a kill would."""


def save_a_checkpoint(folder: RunFolder) -> None:
    folder.checkpoints.save(Checkpoint(3, state(3), {}))


def save_one_again(folder: RunFolder) -> None:
    folder.checkpoints.save(Checkpoint(2, state(4), {}))


def go_back(folder: RunFolder) -> None:
    folder.rewind(1)


def replace_a_file(folder: RunFolder) -> None:
    """With other content each time, as a file that follows from the clock has."""
    new = f"new {time.monotonic_ns()}".encode()
    folder.write({"nodes.json": new, "columns.json": b"first"})


def write_results(folder: RunFolder) -> None:
    folder.results.write_groups(["a"], np.zeros(1, np.int64), np.zeros(1, np.int64))
    folder.results.write_summary({"rounds": 3})


STEPS: list[Callable[[RunFolder], None]] = [
    save_a_checkpoint,
    save_one_again,
    go_back,
    replace_a_file,
    write_results,
]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_before_any_write_leaves_a_whole_folder(
    step: Callable[[RunFolder], None], folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for round in range(3):
        folder.append_round(row(round))
    folder.write({"nodes.json": b"old"})
    folder.checkpoints.save(Checkpoint(1, state(1), {}))
    folder.checkpoints.save(Checkpoint(2, state(2), {}))
    survived = 0
    # Each twice: the second kill meets what the first left.
    for killed_after in sorted([*range(20), *range(20)]):
        left = killed_after

        def die(path: Path, data: bytes) -> None:
            nonlocal left
            if not left:
                raise KilledError
            left -= 1
            coterie.files.replace_file(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(digests, "replace_file", die)
            patch.setattr(rows, "replace_file", die)
            try:
                step(folder)
                survived = killed_after
            except KilledError:
                pass
        check_folder(folder)
        assert (folder.file("nodes.json") or b"").startswith((b"old", b"new"))
        found = folder.checkpoints.latest()
        assert found is not None
        assert not found.warnings
        assert len(folder.rows()) >= found.round
        if survived:
            break
    assert survived > 1, "no kill was tried"

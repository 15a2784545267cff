"""A copy of a run folder from which the run can go on, made while the run may go on itself."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from coterie.errors import CheckpointError
from coterie.files import sync_file
from coterie.runs.folder.digests import read_digests
from coterie.runs.folder.store import RunFolder, check_folder

TRIES = 20
PAUSE = 0.5  # seconds; a checkpoint is written in less


def copy_run(source: Path, target: Path) -> int:
    """Copy a run folder; returns the rounds of the checkpoint that the copy goes on from.

    The record of a run, ``digests.json``, changes with every checkpoint. Files that were copied
    between two equal records belong together. Rows that were added meanwhile do no harm: a run that
    goes on cuts those after its checkpoint. Locks and files that are being written are left out.
    """
    for _ in range(TRIES):
        if _copied(source, target):
            return _checked(source, RunFolder(target))
        shutil.rmtree(target, ignore_errors=True)
        time.sleep(PAUSE)
    expected = "a round that lasts longer than a copy"
    raise CheckpointError(
        f"{source}: changes while it is copied, got {TRIES} tries; expected {expected}"
    )


def _checked(source: Path, copy: RunFolder) -> int:
    try:
        check_folder(copy, resumed=True)
        checkpoint = copy.checkpoints.latest()
    except CheckpointError as error:
        # Its reader knows of no copy.
        raise CheckpointError(str(error).replace(str(copy.path), str(source))) from None
    if checkpoint is None:
        return 0
    return checkpoint.round


def _copied(source: Path, target: Path) -> bool:
    """Copy the files; returns whether none of them can be of another moment."""
    before = read_digests(source)
    # A checkpoint that is there when names are listed may be removed before it is copied.
    with suppress(FileNotFoundError, shutil.Error):
        copy_files(source, target)
        return read_digests(source) == before
    return False


def copy_files(source: Path, target: Path) -> None:
    """Copy a folder without hidden files and links, and wait until it is on the disk."""
    target.mkdir(parents=True)
    for one in sorted(source.iterdir()):
        if one.name.startswith(".") or one.is_symlink():
            continue
        if one.is_dir():
            copy_files(one, target / one.name)
        else:
            shutil.copy2(one, target / one.name)
            sync_file(target / one.name)

"""One process writes a run folder at a time: it holds the lock, and others see who that is.

The operating system releases the lock when the process ends, however it ends.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from coterie.errors import InUseError
from coterie.files import MALFORMED, read_json, refuse_unwritable

LOCK = ".lock"
# Next to the lock, since the file of a lock may be emptied by whoever tries to get it.
HOLDER = ".holder.json"
# Workers of a process that was killed hold its lock until they notice.
WAIT = 15.0  # seconds
# The lock is held for a moment before its holder is named, and by whoever asks if it is free.
MOMENT = 2.0  # seconds
POLL = 0.1


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The lock of a run folder, held inside; refused with the name of the process that holds it."""
    lock = FileLock(folder / LOCK, timeout=0)
    with refuse_unwritable(folder):
        _acquire(lock, folder)
    try:
        with refuse_unwritable(folder):
            since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
            (folder / HOLDER).write_text(json.dumps(holder), encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            (folder / HOLDER).unlink()
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether another process writes a folder; ``False`` where there is none."""
    if not folder.is_dir():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        # A folder that cannot be written has no writer.
        return False


def _acquire(lock: FileLock, folder: Path) -> None:
    began = time.monotonic()
    while True:
        try:
            lock.acquire()
            return
        except Timeout:
            holder = _read_holder(folder)
        patience = 0.0
        if not holder:
            patience = MOMENT
        elif _is_dead(holder):
            patience = WAIT
        if time.monotonic() - began >= patience:
            who = "another process"
            if holder:
                who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
            advice = f"follow it with `coterie watch {folder}`"
            raise InUseError("in-use", folder, "the run is in progress", found=who, do=advice)
        time.sleep(POLL)


def _read_holder(folder: Path) -> dict[str, Any]:
    """What the holder wrote; empty where it has not yet."""
    try:
        holder = read_json(folder / HOLDER)
        return {"pid": int(holder["pid"]), **{key: str(holder[key]) for key in ("host", "since")}}
    except (OSError, *MALFORMED):
        return {}


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    if not holder or holder["host"] != socket.gethostname():
        return False
    try:
        # Signal 0 is not delivered: it asks whether the process exists.
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False

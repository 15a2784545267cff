"""How files of a run folder are written: whole after a kill at any moment, by one process at a time.

Who writes a folder holds its lock, and others are told who that is. The operating system releases
the lock when the process ends, however it ends. Values are stored as JSON can hold them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from coterie.errors import CheckpointError, InUseError

# What values of the wrong kind or size raise where they are first used.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
LOCK = ".lock"
# Beside the lock, since the file of a lock may be emptied by whoever tries to get it.
HOLDER = ".holder.json"
# Workers of a process that was killed hold its lock until they notice.
WAIT = 15.0  # seconds
# The lock is held for a moment before its holder is named, and by whoever asks if it is free.
MOMENT = 2.0  # seconds
POLL = 0.1


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that it is the old one or the new one, whole, at any moment."""
    hidden = path.with_name(f".{path.name}.tmp")
    write_synced(hidden, data)
    hidden.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; a rename is not durable before that."""
    # Windows opens no folder as a file.
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until a file that was appended to is on the disk."""
    if path.exists():
        with path.open("ab") as file:
            os.fsync(file.fileno())


def remove_folder(folder: Path) -> None:
    """Remove a folder so that a kill half-way leaves none that looks whole."""
    # A name that `find_checkpoints` does not know, and that the next checkpoint clears away.
    hidden = folder.with_name(f".{folder.name}.tmp-old-{os.getpid()}")
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


@contextmanager
def refuse_unwritable(folder: Path) -> Iterator[None]:
    """Refuse a run folder that cannot be written in one line: a full disk, or a read-only one.

    Raises:
        CheckpointError: if the file system refuses a write.
    """
    try:
        yield
    except TimeoutError:
        # Of a lock that another process holds, which says nothing about the folder.
        raise
    except OSError as error:
        what = f"cannot be written ({error.strerror}), got {error.filename or folder}"
        expected = f"room and the right to write; then `coterie resume {folder}` goes on"
        raise CheckpointError(f"{folder}: {what}; expected {expected}") from None


def damaged(file: Path, error: Exception) -> CheckpointError:
    """The one line for a file of a run that is not what was written."""
    reason = (str(error).splitlines() or [""])[0]
    what = f"{type(error).__name__} ({reason})"
    return CheckpointError(f"{file}: damaged, got {what}; expected the file as the run wrote it")


def canonical_json(value: Any) -> bytes:
    """JSON of plain values, the same bytes whatever the order of the keys."""
    # NaN and Infinity are no JSON; other readers would refuse the file.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed(body: Mapping[str, Any]) -> bytes:
    """JSON that holds the SHA-256 of the rest of itself."""
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    # Canonical, so that a reader gets the same bytes from the parsed values.
    return canonical_json({**body, "sha256": digest}) + b"\n"


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """The values that `sealed` wrote; ``None`` where a single byte is another one."""
    try:
        values: dict[str, Any] = json.loads(data)
        body = {key: value for key, value in values.items() if key != "sha256"}
        # Written again and compared byte by byte: so not even a changed space goes unseen.
        if sealed(body) == data:
            return body
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return None


def plain(value: Any) -> Any:
    """A value as JSON can hold it: arrays as lists, what is not finite as ``None``.

    Example:
        >>> plain({"loss": float("nan"), 1: np.int64(2), "sizes": np.arange(2)})
        {'loss': None, '1': 2, 'sizes': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray) or _is_tensor(value):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    # A loss that diverged is a fact of the run, not an error of its writing.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _is_tensor(value: object) -> bool:
    """Whether it is a tensor; where torch is not loaded, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The lock of a run folder, held inside.

    Raises:
        InUseError: if another process holds it; it says which.
        CheckpointError: if the folder cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0)
    with refuse_unwritable(folder):
        _acquire(lock, folder)
    try:
        with refuse_unwritable(folder):
            _write_holder(folder)
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
            raise InUseError(_who(folder, holder))
        time.sleep(POLL)


def _write_holder(folder: Path) -> None:
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    (folder / HOLDER).write_text(json.dumps(holder), encoding="utf-8")


def _read_holder(folder: Path) -> dict[str, Any]:
    """What the holder wrote; empty where it has not yet."""
    try:
        holder = json.loads((folder / HOLDER).read_bytes())
        return {"pid": int(holder["pid"]), **{key: str(holder[key]) for key in ("host", "since")}}
    except (OSError, *MALFORMED):
        return {}


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    if not holder or holder["host"] != socket.gethostname():
        return False
    try:
        # Signal 0 is sent to nobody: it asks whether the process is there.
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _who(folder: Path, holder: dict[str, Any]) -> str:
    who = "another process"
    if holder:
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    expected = f"nobody else; `coterie watch {folder}` shows how far it is"
    return f"{folder}: the run is in progress, got {who}; expected {expected}"

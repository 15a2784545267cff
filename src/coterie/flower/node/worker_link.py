"""The worker of a node, as the process that Flower starts for each message sees it: found, or
started, and asked.

Importing PyTorch takes longer than most work. So the first message of a node starts a process next
to it that stays, and the processes of later messages hand their work to it. They import neither
PyTorch nor Numba, and so does this module.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from coterie.files import read_json
from coterie.flower.processes.flower_commands import SUPERNODE
from coterie.flower.processes.process import ProcessId, identity_of

_MOST_HEAD = 1 << 26
_MOST_BODY = 1 << 34
_CREDENTIALS = struct.Struct("3i")  # Linux's ucred: process, user, group


def send(connection: Connection, head: Mapping[str, Any], body: bytes = b"") -> None:
    """Send words, as JSON can hold them, and bytes."""
    connection.send_bytes(json.dumps(head).encode())
    connection.send_bytes(body)


def receive(connection: Connection) -> tuple[dict[str, Any], bytes]:
    """What `send` sent; an EOFError, an OSError or a ValueError for anything else."""
    words = read_json(connection.recv_bytes(_MOST_HEAD))
    if not isinstance(words, dict):
        raise ValueError("no message")
    return words, connection.recv_bytes(_MOST_BODY)


def check_peer(connection: socket.socket) -> None:
    """Refuse a process of another user."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(packed)
    if user != os.getuid():
        raise PermissionError(f"a process of another user, {user}")


# --- the worker -----------------------------------------------------------------------------------

# The process at a client: ours, or Flower's command where somebody starts that.
NODES = (SUPERNODE, "flower-supernode")
MEMORY = 4.0  # GiB that a worker may hold after a message, unless the node says otherwise
_ATTEMPTS = 3
_WAITING = 16  # messages of one node that may wait for the worker


class WorkerLostError(Exception):
    """The worker ended while it worked, so what it did is not known."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where the worker of a node listens, and how many GiB it may hold after a message."""

    folder: Path
    node: ProcessId
    command: str
    memory: float

    @property
    def socket(self) -> Path:
        """The socket: one for each process of a node, so that a later process never meets an older
        one's worker."""
        name = hashlib.sha256(f"{self.node.pid} {self.node.born}".encode()).hexdigest()[:16]
        return self.folder / f"{name}.sock"


def find_place(options: Mapping[str, Any], command: str) -> WorkerPlace | None:
    """Where the worker of this process's node is to be; ``None`` if it is switched off, not under a
    node, not on Linux, or no folder is this user's alone."""
    on = options.get("worker", os.environ.get("COTERIE_WORKER", "1"))
    if sys.platform != "linux" or str(on).lower() in ("0", "false", "no"):
        return None
    node = _node_above()
    folder = _private_folder()
    if node is None or folder is None:
        return None
    memory = options.get("worker_memory", os.environ.get("COTERIE_WORKER_MEMORY", MEMORY))
    return WorkerPlace(folder, node, command, float(memory))


def _node_above() -> ProcessId | None:
    """The SuperNode that this process works for."""
    for process in psutil.Process().parents():
        with suppress(psutil.Error):
            # The interpreter and its options come first.
            if any(Path(word).name in NODES for word in process.cmdline()[:4]):
                return identity_of(process)
    return None


def _private_folder() -> Path | None:
    """A folder that this user alone may enter; ``None`` where another user was faster."""
    folder = Path(tempfile.gettempdir()) / f"coterie-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not private or found.st_uid != os.getuid():
        return None
    return folder


def ask_worker(
    place: WorkerPlace, head: Mapping[str, Any], body: bytes
) -> tuple[dict[str, Any], bytes]:
    """Have the worker do a piece of work, starting one where there is none; an OSError where none can
    be started."""
    for _ in range(_ATTEMPTS):
        with _connected(place) as connection:
            try:
                send(connection, head, body)
                taken, _ = receive(connection)
            except (EOFError, OSError):
                # It ended before it took the work, such as after being idle too long.
                continue
            # A worker that was started for another app or version lets the next be started.
            if not taken.get("taken"):
                continue
            try:
                return receive(connection)
            except (EOFError, OSError) as error:
                raise WorkerLostError("the worker of this node ended during a message") from error
    raise OSError("no worker of this node could be started")


@contextmanager
def _connected(place: WorkerPlace) -> Iterator[Connection]:
    """A connection to the worker, which is started if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        # Two messages at once must not start two.
        with _locked(place.socket.with_suffix(".lock")):
            try:
                made.connect(str(place.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                _start(place)
                made.connect(str(place.socket))
        check_peer(made)
        with Connection(made.detach()) as connection:
            yield connection


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _start(place: WorkerPlace) -> None:
    """Start a worker on a socket that listens already: what connects meanwhile waits for it."""
    place.socket.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(place.socket))
        listener.listen(_WAITING)
        arguments: Sequence[Any] = (
            listener.fileno(),
            place.node.pid,
            place.node.born,
            place.memory,
            place.socket,
        )
        subprocess.Popen(
            # -P: nothing is imported from the folder in which the node was started.
            [sys.executable, "-P", "-c", place.command, *map(str, arguments)],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

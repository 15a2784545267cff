"""The worker of a node: a process beside the SuperNode that stays from message to message, with its
imports, its data and its compiled code."""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.deploy.node.worker_link import check_peer, read_frame, send_frame
from coterie.deploy.processes.process import ProcessId, is_running

IDLE = 900.0  # seconds without a message after which a worker ends
_PATIENCE = 60.0  # seconds that a message may take to come over the socket
log = logging.getLogger("flwr")  # the log of the node

# Head and body of a message -> those of the answer.
Handle = Callable[[Mapping[str, Any], bytes], tuple[Mapping[str, Any], bytes]]


@dataclass(slots=True)
class NodeWorker:
    """Does one message after another until its node ends, nobody asks any more, or it is too large.

    Args:
        memory: bytes that it may hold after a message.
        idle: seconds without a message after which it ends.
        identity: what the first message said that it needs; messages that need something else, as
            another version of the app, are left to another worker.
    """

    listener: socket.socket
    handle: Handle
    memory: float
    idle: float = IDLE
    identity: Any = None

    def run(self) -> None:
        self.listener.settimeout(self.idle)
        while self._listens():
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                break
            with connection:
                try:
                    self._serve(connection)
                # A message that could not be read, or whose process is gone, ends nothing else.
                except (EOFError, OSError, ValueError) as error:
                    log.warning("coterie: worker: %s", error)
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        """One message; listens no longer where it shall be the last."""
        check_peer(connection)
        connection.settimeout(_PATIENCE)
        head, body = read_frame(connection)
        if self.identity is None:
            self.identity = head.get("identity")
        if head.get("identity") != self.identity:
            self.close()
            send_frame(connection, {"taken": False})
            return
        send_frame(connection, {"taken": True})
        with _EndsWithAsker(connection):
            answer, data = self.handle(head, body)
        # Closed before the answer, so that the next message does not come here.
        if resident_memory() > self.memory:
            log.info(
                "coterie: worker: holds more than %.1f GiB; starting anew", self.memory / 2**30
            )
            self.close()
        send_frame(connection, answer, data)

    def _listens(self) -> bool:
        # A closed socket has no number.
        return self.listener.fileno() >= 0

    def close(self) -> None:
        self.listener.close()


@dataclass(slots=True)
class _EndsWithAsker:
    """Ends the worker when the process that waits for it ends: Flower stopped the message, and what
    it asked may never end."""

    connection: socket.socket
    done: threading.Event | None = None

    def __enter__(self) -> None:
        self.done = threading.Event()
        threading.Thread(target=self._watch, args=(self.done,), daemon=True).start()

    def _watch(self, done: threading.Event) -> None:
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP | select.POLLHUP)
        while not done.is_set():
            if poll.poll(200) and not done.is_set():
                os._exit(1)

    def __exit__(self, *_: object) -> None:
        assert self.done is not None
        self.done.set()


def resident_memory() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def end_with(node: ProcessId, file: Path) -> None:
    """End this process as soon as another one ends.

    Args:
        file: the socket, which is removed then: no later process has one of this name.
    """

    def watch() -> None:
        with suppress(OSError):
            handle = os.pidfd_open(node.pid)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            # The number may have been given to another process before it was opened.
            if is_running(node):
                poll.poll()
        for left in (file, file.with_suffix(".lock")):
            left.unlink(missing_ok=True)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def run_worker(handle: Handle, arguments: Sequence[str] | None = None) -> None:
    """Serve as a worker, with the arguments that ``coterie.deploy.node.worker_link`` starts it with."""
    listener, pid, born, memory, file = sys.argv[1:] if arguments is None else arguments
    end_with(ProcessId(int(pid), int(born)), Path(file))
    bound = socket.socket(fileno=int(listener))
    NodeWorker(bound, handle, float(memory) * 2**30).run()

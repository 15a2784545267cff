"""The worker of a node: a process next to the SuperNode that stays from message to message, with
its imports, its data and its compiled code."""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

from coterie.flower.node.worker_link import check_peer, receive, send
from coterie.flower.processes.process import ProcessId, is_running

IDLE = 900.0  # seconds without a message after which a worker ends
_PATIENCE = 60.0  # seconds until a process that connected has to begin its message
log = logging.getLogger("flwr")  # the log of the node

# Head and body of a message -> those of the answer.
Handle = Callable[[Mapping[str, Any], bytes], tuple[Mapping[str, Any], bytes]]


class WaitingProcesses:
    """Ends the worker when a process that waits for it ends: Flower stopped the message, and what it
    asked may never end.

    One thread watches for all messages: where memory is short, to start one for a message would
    never return.
    """

    def __init__(self) -> None:
        self._messages: SimpleQueue[tuple[int, threading.Event]] = SimpleQueue()

    def watch(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def ends_with(self, connection: Connection) -> Iterator[None]:
        """Watch the other end of a connection while its message is worked on."""
        done = threading.Event()
        self._messages.put((connection.fileno(), done))
        try:
            yield
        finally:
            done.set()

    def _watch(self) -> None:
        while True:
            descriptor, done = self._messages.get()
            poll = select.poll()
            poll.register(descriptor, select.POLLRDHUP | select.POLLHUP)
            while not done.is_set():
                if poll.poll(200) and not done.is_set():
                    os._exit(1)


@dataclass(slots=True)
class NodeWorker:
    """Handles one message after another until its node ends, no message comes any more, or it is
    too large.

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
    waits: WaitingProcesses = field(default_factory=WaitingProcesses)

    def run(self) -> None:
        self.waits.watch()
        self.listener.settimeout(self.idle)
        # A closed socket has no number.
        while self.listener.fileno() >= 0:
            try:
                made, _ = self.listener.accept()
            except TimeoutError:
                break
            # A message that could not be read, or whose process is gone, ends nothing else.
            try:
                with made:
                    made.settimeout(None)
                    check_peer(made)
                    with Connection(made.detach()) as connection:
                        self._serve(connection)
            except (EOFError, OSError, ValueError) as error:
                log.warning("coterie: worker: %s", error)
        self.close()

    def _serve(self, connection: Connection) -> None:
        """One message; listens no longer where it shall be the last."""
        if not connection.poll(_PATIENCE):
            raise TimeoutError(f"no message in {_PATIENCE:g} s")
        head, body = receive(connection)
        if self.identity is None:
            self.identity = head.get("identity")
        if head.get("identity") != self.identity:
            self.close()
            send(connection, {"taken": False})
            return
        send(connection, {"taken": True})
        with self.waits.ends_with(connection):
            answer, data = self.handle(head, body)
        # Closed before the answer, so that the next message does not come here.
        if psutil.Process().memory_info().rss > self.memory:
            log.info("coterie: worker: uses more than %.1f GiB; restarting", self.memory / 2**30)
            self.close()
        send(connection, answer, data)

    def close(self) -> None:
        self.listener.close()


def end_with(node: ProcessId, file: Path) -> None:
    """End this process as soon as another one ends, and remove its socket: no later process has one
    of this name."""

    def watch() -> None:
        with suppress(psutil.Error):
            process = psutil.Process(node.pid)
            # The number may have been given to another process before.
            if is_running(node):
                process.wait()
        for left in (file, file.with_suffix(".lock")):
            left.unlink(missing_ok=True)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def run_worker(handle: Handle) -> None:
    """Serve as a worker, with the arguments that ``coterie.flower.node.worker_link`` starts it with."""
    listener, pid, born, memory, file = sys.argv[1:]
    end_with(ProcessId(int(pid), float(born)), Path(file))
    bound = socket.socket(fileno=int(listener))
    NodeWorker(bound, handle, float(memory) * 2**30).run()

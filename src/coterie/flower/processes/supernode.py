"""Flower's SuperNode as ``python -m coterie.flower.processes.supernode``: it ends where it could not go on.

Flower 1.41's own command stays, without a connection, after an answer of the server that it does not
expect, such as a proxy's status 500. A process that ends is seen, and started again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any, NoReturn

# Begin the line that says why the process ends; its own processes may write others behind it.
THREAD_FAILED = "a thread failed: "
GAVE_UP = "Flower gave up: "
# Before Coterie's own lines in the log of a node; the others are Flower's.
OWN_LINE = "coterie: "
# In the environment: Flower's number of the node, if a process of it was killed.
BEFORE = "COTERIE_KILLED_NODE"
SEEN = 4.0  # seconds; a server looks for replies every 2
_FAILED = 1  # the exit code
_failures: list[str] = []  # of threads, in words


def says_why(line: str) -> bool:
    """Whether a line of a node's log says why its process ended."""
    return line.startswith((GAVE_UP, THREAD_FAILED))


def main() -> NoReturn:
    """Run the command ``flower-supernode`` with this process's arguments.

    The process ends when the command does, and when one of its threads fails.
    """
    threading.excepthook = _end_with_thread
    errors = LastError()
    logging.getLogger("flwr").addHandler(errors)
    before = os.environ.get(BEFORE, "")
    if before:
        _leave_first(int(before))
    (command,) = entry_points(group="console_scripts", name="flower-supernode")
    try:
        command.load()()
    except SystemExit:
        # Flower's own way to end, which closes what it opened.
        if not _failures:
            raise
        _say(f"{THREAD_FAILED}{_failures[0]}")
    except BaseException:  # noqa: BLE001 - whatever it was, the process has to end
        traceback.print_exc()
    else:
        _say(f"{GAVE_UP}{errors.line}")
    # Not `sys.exit`, which waits for Flower's threads: one of them serves for ever.
    os._exit(_FAILED)


def _leave_first(node: int) -> None:
    """Take leave of the server for a process of this node that was killed and could not: it would not
    let in another one for a minute."""
    # Flower's own client, which signs requests with the key of the node.
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supernode.fleet_http_client import FleetHttpClient

    activate = FleetHttpClient.ActivateNode

    def leave_and_activate(client: FleetHttpClient, request: Any) -> Any:
        # It fails where the process could, or where the server has noticed by itself.
        with suppress(Exception):
            client.DeactivateNode(DeactivateNodeRequest(node_id=node))
            # A run has to see that the node is gone, or it would wait for what the process was
            # asked.
            time.sleep(SEEN)
        return activate(client, request)

    FleetHttpClient.ActivateNode = leave_and_activate


class LastError(logging.Handler):
    """Keeps the first line of the last error that was logged."""

    line = "no reason given"

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().strip().splitlines()
        if lines:
            self.line = lines[0]


def _say(line: str) -> None:
    """Write the line by which the end of the process is explained."""
    print(line, file=sys.stderr, flush=True)


def _end_with_thread(failure: threading.ExceptHookArgs) -> None:
    """End the process with a thread of it: without the one of its signs of life, the server takes
    the node for gone, and the node does not know."""
    threading.__excepthook__(failure)
    # Threads that end in this way did so on purpose, and have said why. Where the server refuses the
    # key, Flower ends the process itself; a second signal would kill it in the middle of that.
    if failure.exc_type is SystemExit or _is_refusal(failure.exc_value):
        return
    _failures.append(f"{failure.exc_type.__name__}: {failure.exc_value}")
    # Not at once: Flower takes its leave of the server first, so that the next process is let in.
    os.kill(os.getpid(), signal.SIGTERM)


def _is_refusal(error: BaseException | None) -> bool:
    """Whether it is the server's refusal of the node's key."""
    from httpx import HTTPStatusError, codes

    return isinstance(error, HTTPStatusError) and error.response.status_code == codes.UNAUTHORIZED


if __name__ == "__main__":
    main()

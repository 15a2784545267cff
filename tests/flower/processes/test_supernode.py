"""The process of a SuperNode ends where Flower's own command would stay without a connection."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from coterie.flower.processes.supernode import BEFORE
from tests.conftest import PATIENCE

# In place of Flower's command: a thread that goes on, as the one that serves the node's processes.
COMMAND = """
import logging
import sys
import threading
import time

from flwr.supercore.exit import register_signal_handlers
from flwr.supercore.telemetry import EventType

from coterie.flower.processes import supernode


def command():
    register_signal_handlers(EventType.RUN_SUPERNODE_LEAVE)
    threading.Thread(target=time.sleep, args=(600,)).start()
    {end}


class Entry:
    def load(self):
        return command


supernode.entry_points = lambda **kind: [Entry()]
supernode.main()
"""


def run(end: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", COMMAND.format(end=end)]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            "logging.getLogger('flwr').error('status 500')",
            "Flower gave up: status 500",
        ),
        ("raise RuntimeError('no port')", "RuntimeError: no port"),
    ],
)
def test_it_ends_with_the_command(end: str, said: str) -> None:
    done = run(end)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == said


def test_it_ends_with_a_thread() -> None:
    """That of the node's signs of life: the server takes a node without them for gone."""
    done = run("threading.Thread(target=lambda: 1 / 0).start(); time.sleep(600)")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "a thread failed: ZeroDivisionError: division by zero"


REFUSED = """
    import os
    import signal

    import httpx

    def send_sign_of_life():
        os.kill(os.getpid(), signal.SIGINT)
        answer = httpx.Response(401, request=httpx.Request("POST", "https://localhost"))
        answer.raise_for_status()

    threading.Thread(target=send_sign_of_life).start()
    time.sleep(600)
"""


def test_a_node_that_the_server_refuses_ends_as_flower_ends_it() -> None:
    """By which its site knows that it was removed: a second signal killed it in the middle."""
    assert run(REFUSED.strip()).returncode == 0


def test_a_thread_may_end_on_purpose() -> None:
    done = run("threading.Thread(target=sys.exit).start(); time.sleep(1); raise KeyError('later')")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "KeyError: 'later'"


KILLED = """
from flwr.supernode.fleet_http_client import FleetHttpClient

from coterie.flower.processes import supernode

FleetHttpClient.ActivateNode = lambda client, request: print("activate", flush=True)
FleetHttpClient.DeactivateNode = lambda client, request: print("leave", request.node_id, flush=True)
supernode.SEEN = 0.0


class Entry:
    def load(self):
        return lambda: object.__new__(FleetHttpClient).ActivateNode(None)


supernode.entry_points = lambda **kind: [Entry()]
supernode.main()
"""


@pytest.mark.parametrize(
    ("killed", "done"), [("475", ["leave 475", "activate"]), ("", ["activate"])]
)
def test_it_takes_leave_for_a_process_that_was_killed(killed: str, done: list[str]) -> None:
    """Else the server would not let it in for a minute."""
    env = {**os.environ, BEFORE: killed}
    line = [sys.executable, "-c", KILLED]
    ended = subprocess.run(line, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stdout.splitlines() == done

"""Starting and stopping Flower's commands."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import psutil
import pytest

from coterie.errors import RemoteError
from coterie.flower.processes import process
from coterie.flower.processes.process import (
    ProcessId,
    free_ports,
    identify,
    is_running,
    refuse_end,
    start,
    stop,
)
from tests.conftest import PATIENCE
from tests.refusals import refuses

# Starts a process that starts another, each in a session of its own, and writes their numbers.
STARTS_TWO = """
import subprocess, sys, time
if len(sys.argv) > 2:
    child = subprocess.Popen([sys.executable, *sys.argv[:-1]], start_new_session=True)
else:
    child = subprocess.Popen(["sleep", "97"], start_new_session=True)
with open(sys.argv[1], "a") as file:
    file.write(f"{child.pid}\\n")
time.sleep(97)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_processes_are_stopped_with_all_that_they_started(tmp_path: Path, killed: bool) -> None:
    """Of a process that was killed, what it started has no known parent any more."""
    program, file = tmp_path / "program.py", tmp_path / "numbers"
    program.write_text(STARTS_TWO)
    process = start([sys.executable, str(program), str(file), "more"], dict(os.environ), None)
    end = time.monotonic() + PATIENCE
    while not file.exists() or len(file.read_text().split()) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    children = [identify(int(number)) for number in file.read_text().split()]
    assert None not in children
    if killed:
        # The one between is gone, too, as Flower's is that sees the end of its parent.
        (between,) = psutil.Process(process.pid).children()
        process.kill()
        between.kill()
        process.wait()
    stop([process], 0.5)
    assert process.poll() is not None
    assert not any(one is not None and is_running(one) for one in children)


def test_a_process_that_ended_or_is_another_one_is_not_running() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert is_running(me)
    # The same number, born at another time: the number was given to another process.
    assert not is_running(ProcessId(me.pid, me.born - 60))
    child = subprocess.Popen(["true"])
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    ended = identify(child.pid)
    assert ended is not None
    assert not is_running(ended)
    child.wait()
    assert identify(child.pid) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system notes the time")
def test_a_clock_that_is_set_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node and a run were taken to be down, and a node started another worker."""
    me = identify(os.getpid())
    assert me is not None
    before = psutil.boot_time()
    # What /proc/stat says after a clock was set back by an hour.
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: before - 3600.0)
    assert is_running(me)
    assert identify(os.getpid()) == me


def test_the_reason_of_an_end_stands_before_what_its_own_processes_write(tmp_path: Path) -> None:
    log = tmp_path / "client-00.log"
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    ended.wait()
    with refuses(RemoteError, "failed", "client-00"):
        refuse_end("client-00", ended, log)
    for written, reason in (
        ("begun\nlast\n\n", "last"),
        ("Flower gave up: status 500\nConnection attempt failed, retrying\n", "status 500"),
    ):
        log.write_text(written)
        with refuses(RemoteError, "failed", "client-00") as caught:
            refuse_end("client-00", ended, log)
        assert str(caught.value).endswith(f"{reason})")


class OneTaken:
    """A socket on a machine where another process has port 7."""

    taken: int | None = 7

    def __enter__(self) -> OneTaken:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def bind(self, address: tuple[str, int]) -> None:
        if address[1] == self.taken:
            raise OSError("Address already in use")


def test_ports_that_are_asked_for_one_by_one_are_different(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes got the same one: the first had not taken it yet when the second asked."""
    monkeypatch.setattr(process, "_PORTS", range(5, 9))
    monkeypatch.setattr(process, "_given", deque(maxlen=3))
    # Sockets of this machine could be taken by what else runs on it.
    monkeypatch.setattr(process.socket, "socket", OneTaken)
    assert sorted(free_ports(1) + free_ports(1) + free_ports(1)) == [5, 6, 8]
    with refuses(RemoteError, "in-use", "this machine"):
        free_ports(1)
    # Those given long ago are given again, else a node that tries for days would run out of them.
    monkeypatch.setattr(OneTaken, "taken", None)
    (again,) = free_ports(1)
    assert again == 7
    assert free_ports(1)[0] in (5, 6, 8)


def test_ports_are_none_of_those_for_outgoing_connections() -> None:
    """Such a connection may have taken the port before the process that it was chosen for."""
    file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not file.exists():
        pytest.skip("not on Linux")
    low, high = map(int, file.read_text().split())
    if low < 32_768:
        pytest.skip("this machine gives more of them than usual")
    assert not any(low <= port <= high for port in free_ports(20))

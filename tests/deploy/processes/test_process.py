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

from coterie.deploy.processes import process
from coterie.deploy.processes.process import (
    ProcessId,
    free_ports,
    identify,
    is_running,
    refuse_end,
    stop,
)
from coterie.errors import RemoteError


def test_processes_are_stopped_with_all_that_they_started() -> None:
    code = "import subprocess, time; subprocess.Popen(['sleep', '97'], start_new_session=True); time.sleep(97)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    end = time.monotonic() + 60
    while not (
        children := subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True
        ).stdout.split()
    ):
        assert time.monotonic() < end
        time.sleep(0.05)
    stop([process], 0.5)
    assert process.poll() is not None
    end = time.monotonic() + 60
    while any(_runs(int(child)) for child in children):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_ended_or_is_another_one_is_not_running() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert is_running(me)
    # The same number, born at another time: the number was given to another process.
    assert not is_running(ProcessId(me.pid, me.born - 60))
    child = subprocess.Popen(["true"])
    born = time.time()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not is_running(ProcessId(child.pid, born))
    child.wait()
    assert identify(child.pid) is None


def test_the_reason_of_an_end_stands_before_what_its_own_processes_write(tmp_path: Path) -> None:
    log = tmp_path / "client-00.log"
    ended = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    ended.wait()
    with pytest.raises(RemoteError, match=r"client-00 ended with 3: .* says nothing"):
        refuse_end("client-00", ended, log)
    log.write_text("begun\nlast\n\n")
    with pytest.raises(RemoteError, match="client-00 ended with 3: last"):
        refuse_end("client-00", ended, log)
    log.write_text("Flower gave up: status 500\nConnection attempt failed, retrying\n")
    with pytest.raises(RemoteError, match="client-00 ended with 3: Flower gave up: status 500"):
        refuse_end("client-00", ended, log)


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
    with pytest.raises(RemoteError, match="too few free ports of 5 to 8, got 0"):
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

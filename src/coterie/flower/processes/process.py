"""Processes of a federation: started in the background, awaited, and ended with all that they
started."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psutil

from coterie.errors import ConfigError, RemoteError
from coterie.flower.processes.flower_commands import find_command
from coterie.flower.processes.supernode import says_why

PR_SET_PDEATHSIG = 1  # of Linux's prctl
# Below those that Linux and macOS give to outgoing connections by default (from 32,768 and
# 49,152).
_PORTS = range(20_000, 32_768)
_REMEMBERED = 1000  # ports: those given longest ago may be given again
_given: deque[int] = deque(maxlen=_REMEMBERED)  # by `free_ports`, in this process
_SAME_BIRTH = 2.0  # seconds, since not every system tells exactly when a process began
_LONGEST_KILL = 2.0  # seconds until a killed process is gone
_LONGEST_START = 90.0  # seconds until a process listens on its port
_MARK = "COTERIE_STARTED_BY"  # in the environment of a process, and of all that it starts


class Popen(subprocess.Popen[bytes]):
    """One of Flower's commands, with the mark by which all that it starts is found.

    What a command started has no known parent when the command was killed, and may be in a session
    of its own. Then its environment alone says where it comes from.
    """

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], **options: Any) -> None:
        self.mark = uuid4().hex
        super().__init__(arguments, env={**env, _MARK: self.mark}, **options)


class ProcessId(NamedTuple):
    """A process, distinguished from a later one with the same number by when it was born, in
    seconds: on Linux since the machine was started, elsewhere since 1970."""

    pid: int
    born: float


def identify(pid: int) -> ProcessId | None:
    """A process by its number; ``None`` where there is none."""
    with suppress(psutil.Error):
        return identity_of(psutil.Process(pid))
    return None


def identity_of(process: psutil.Process) -> ProcessId:
    """What distinguishes a process from all others."""
    born = process.create_time()
    if sys.platform == "linux":
        # Not a time of the clock, which may be set while the process runs.
        born = round(born - psutil.boot_time(), 2)
    return ProcessId(process.pid, born)


def is_running(process: ProcessId) -> bool:
    """Whether a process is running; a zombie is not: its parent has yet to take note of its end."""
    with suppress(psutil.Error):
        found = psutil.Process(process.pid)
        same = abs(identity_of(found).born - process.born) < _SAME_BIRTH
        return same and found.status() != psutil.STATUS_ZOMBIE
    return False


def start(arguments: Sequence[str], env: dict[str, str], out: Path | int | None) -> Popen:
    """Start one of Flower's commands in the background, as the leader of its own session.

    Linux ends the process with the *thread* that starts it, so start it from a lasting thread.
    Output goes to ``out``: a log, ``subprocess.PIPE``, or ``None`` for that of this process.
    """
    if isinstance(out, Path):
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("ab") as log:
            return start(arguments, env, log.fileno())
    preexec = None
    if sys.platform == "linux":
        preexec = _end_with_parent
    return Popen(
        [find_command(arguments[0]), *arguments[1:]],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        # Ctrl-C in a terminal is for this process, which ends its own in order.
        start_new_session=True,
        preexec_fn=preexec,
    )


# Looked up here and not after a fork, where another thread may hold a lock that this needs.
_prctl: Any = None
if sys.platform == "linux":
    _prctl = ctypes.CDLL(None).prctl


def _end_with_parent() -> None:
    """Have Linux send SIGTERM when the parent is gone, even after a SIGKILL."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


# --- waiting --------------------------------------------------------------------------------------


def split_address(address: str, option: str) -> tuple[str, int]:
    """Host and port of ``host:port``, the value of an option."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        expected = "host:port, such as fl.example.org:18001"
        raise ConfigError("wrong-type", option, "not an address", got=address, allowed=expected)
    return host.strip("[]"), int(port)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that no process listens on, and that were not given lately.

    A process takes its port seconds after it is chosen. So the port is none of those that systems
    usually give to outgoing connections in the meantime, and this process gives it once.
    """
    found: list[int] = []
    candidates = sorted(set(_PORTS) - set(_given))
    # Chosen by chance: another command on this machine may be at the same.
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        if len(found) == count:
            break
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    if len(found) < count:
        what = f"too few free ports from {_PORTS[0]} to {_PORTS[-1]}"
        raise RemoteError("in-use", "this machine", what, found=len(found), allowed=count)
    _given.extend(found)
    return found


def listens(port: int) -> bool:
    """Whether a process of this machine listens on a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def wait_for_port(port: int, name: str, process: Popen, log: Path | None) -> None:
    """Wait until a process listens on a port; it writes to ``log``, or to the output of this
    command."""
    end = time.monotonic() + _LONGEST_START
    while not listens(port):
        refuse_end(name, process, log)
        if time.monotonic() > end:
            what = f"does not listen on port {port} after {_LONGEST_START:g} s ({last_words(log)})"
            raise RemoteError("unreachable", name, what)
        time.sleep(0.2)


def refuse_end(name: str, process: Popen, log: Path | None) -> None:
    """Refuse to go on where a process has ended; the other arguments as of `wait_for_port`."""
    code = process.poll()
    if code is not None:
        raise RemoteError("failed", name, f"ended with {code} ({last_words(log)})")


def last_words(log: Path | None) -> str:
    """What a log says last: why the process ended, or else its last line."""
    if log is None:
        return "see its own lines"
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        for line in reversed(lines):
            if says_why(line):
                return line[-200:]
        for line in reversed(lines):
            if line:
                return line[-200:]
    return f"{log} is empty"


# --- ending ---------------------------------------------------------------------------------------


def stop(processes: Sequence[Popen], wait: float = 8.0) -> None:
    """End processes and all that they started: by SIGTERM, and after ``wait`` seconds by SIGKILL."""
    # A second Ctrl-C must not leave processes behind.
    signals = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        _stop(processes, wait)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(processes: Sequence[Popen], wait: float) -> None:
    for process in processes:
        process.terminate()
    end = time.monotonic() + wait
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    for process in processes:
        process.kill()
        process.wait()
    end = time.monotonic() + wait + _LONGEST_KILL
    # Again and again, since one that was found may have started another.
    while (started := _started_by(processes)) and time.monotonic() < end:
        for child in started:
            with suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(started, _LONGEST_KILL)


def _started_by(processes: Sequence[Popen]) -> list[psutil.Process]:
    """What is running of all that these processes started, in their own sessions and in others."""
    marks = {process.mark for process in processes}
    leaders = {process.pid for process in processes}
    found = []
    for one in psutil.process_iter():
        # A process of another user, or one that has just ended, cannot be asked.
        with suppress(psutil.Error, ProcessLookupError):
            # Sessions, too, since nginx writes over its environment.
            related = os.getsid(one.pid) in leaders or one.environ().get(_MARK) in marks
            if related and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def descendants(pid: int) -> list[psutil.Process]:
    """All processes that a process started, and those that they started."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []

"""Long-lived processes: started in the background, awaited, and stopped with all that they
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from coterie.deploy.processes.flower_commands import find_command
from coterie.errors import RemoteError

Popen = subprocess.Popen[bytes]
PR_SET_PDEATHSIG = 1  # of Linux's prctl
# Below those that Linux and macOS give to outgoing connections by default (from 32,768 and
# 49,152).
_PORTS = range(20_000, 32_768)
_REMEMBERED = 1000  # ports: those given longest ago may be given again
_given: deque[int] = deque(maxlen=_REMEMBERED)  # by `free_ports`, in this process


class ProcessId(NamedTuple):
    """A process, told from a later one with the same number by its time of birth.

    Args:
        born: in ticks since the machine started.
    """

    pid: int
    born: int


class ProcessStatus(NamedTuple):
    """What Linux says of a process.

    Args:
        state: a letter; ``Z`` has ended, and its parent has not taken note yet.
        born: in ticks since the machine started.
    """

    state: str
    parent: int
    born: int


def start(arguments: Sequence[str], env: dict[str, str], log: Path) -> Popen:
    """Start one of Flower's commands in the background, as the leader of its own session."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return _start(arguments, env, out.fileno())


def start_piped(arguments: Sequence[str], env: dict[str, str]) -> Popen:
    """The same, with its output in the pipe ``stdout`` of what is returned.

    Linux ends the process with the *thread* that starts it, so that has to be one that lasts.
    """
    return _start(arguments, env, subprocess.PIPE)


def _start(arguments: Sequence[str], env: dict[str, str], out: int) -> Popen:
    preexec = None
    if sys.platform == "linux":
        preexec = _end_with_parent
    return subprocess.Popen(
        [find_command(arguments[0]), *arguments[1:]],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
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


def free_ports(count: int) -> list[int]:
    """Ports of this machine that no process listens on, and that were not given lately.

    A process takes its port seconds after it is chosen. So the port is none of those that systems
    usually give to outgoing connections meanwhile, and this process gives it once.
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
        what = f"too few free ports of {_PORTS[0]} to {_PORTS[-1]}, got {len(found)}"
        raise RemoteError(f"this machine: {what}; expected {count}")
    _given.extend(found)
    return found


def wait_for_port(port: int, process: Popen, log: Path, longest: float = 60.0) -> None:
    """Wait until a process listens on a port.

    Args:
        longest: seconds to wait.
    """
    end = time.monotonic() + longest
    while time.monotonic() < end:
        if process.poll() is not None:
            what = f"ended with {process.returncode}, got {last_line(log)}"
            raise RemoteError(f"{log}: {what}; expected a server")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.2)
    what = f"does not listen on port {port} after {longest:g} s, got {last_line(log)}"
    raise RemoteError(f"{log}: {what}; expected it to")


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, or ``nothing``."""
    with suppress(OSError):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()[-200:]
    return "nothing"


# --- stopping -------------------------------------------------------------------------------------


def stop(processes: Sequence[Popen], wait: float = 8.0) -> None:
    """Stop processes and all that they started: first by SIGTERM, then by SIGKILL.

    Args:
        wait: seconds between the two.
    """
    # A second Ctrl-C must not leave processes behind.
    signals = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        _stop(processes, wait)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(processes: Sequence[Popen], wait: float) -> None:
    # Flower's commands start others in sessions of their own, which no signal to a session
    # reaches. So they are looked up while their parents live: orphans have no known parent.
    started = {child for process in processes for child in descendants(process.pid)}
    for process in processes:
        _signal_session(process, signal.SIGTERM)
    end = time.monotonic() + wait
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    for process in processes:
        # What was started since then.
        started |= descendants(process.pid)
        _signal_session(process, signal.SIGKILL)
        process.wait()
    for child in started:
        with suppress(ProcessLookupError, PermissionError):
            if is_running(child):
                os.kill(child.pid, signal.SIGKILL)
    end = time.monotonic() + wait + 2.0
    while any(map(is_running, started)) and time.monotonic() < end:
        time.sleep(0.05)


def _signal_session(process: Popen, number: int) -> None:
    """Send a signal to a process that we have not seen end, and to its session."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def descendants(pid: int) -> set[ProcessId]:
    """All processes that a process started, and those that they started."""
    children: dict[int, list[ProcessId]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        child = int(folder.name)
        status = _status(child)
        if status is not None:
            children.setdefault(status.parent, []).append(ProcessId(child, status.born))
    found: set[ProcessId] = set()
    parents = [pid]
    while parents:
        started = children.get(parents.pop(), [])
        found |= set(started)
        parents += [child.pid for child in started]
    return found


def identify(pid: int) -> ProcessId | None:
    """A process by its number; ``None`` where there is none."""
    status = _status(pid)
    if status is None:
        return None
    return ProcessId(pid, status.born)


def parent_of(pid: int) -> int | None:
    """The process that started another one; ``None`` where there is no such process."""
    status = _status(pid)
    if status is None:
        return None
    return status.parent


def is_running(process: ProcessId) -> bool:
    """Whether a process is running; a zombie is not: its parent has yet to take note of its end."""
    status = _status(process.pid)
    return status is not None and status.born == process.born and status.state != "Z"


def _status(pid: int) -> ProcessStatus | None:
    """What Linux says of a process; ``None`` where there is none."""
    try:
        # The name of the command comes first, in brackets, and may hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return ProcessStatus(fields[0], int(fields[1]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None

"""The processes of a federation on this machine: which there are, what they are for, what memory they
hold."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.flower.processes.process import ProcessId, identify

# What a command line holds -> what its process is. The first that fits counts.
ROLES = {
    "coterie.flower.app import work": "worker",
    "flwr-clientapp": "message",
    "flwr-serverapp": "ServerApp",
    "flower-superexec": "superexec",
    "flower-superlink": "SuperLink",
    "coterie.flower.processes.supernode": "node",
    "nginx": "nginx",
    "coterie node join": "keeper of a node",
    "coterie server up": "keeper of the server",
    "coterie deploy run": "deploy run",
}
VICTIMS = ("node", "worker", "ServerApp", "SuperLink")
STEADY = 240.0  # seconds that a process must live for its memory to be called flat or not
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Found:
    """A process.

    Args:
        id: which it is.
        role: what it is for.
    """

    id: ProcessId
    role: str


def find_processes(folder: Path) -> list[Found]:
    """All processes that name a folder in their environment or command, but this one."""
    mark = str(folder).encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        pid = int(place.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            command = (place / "cmdline").read_bytes()
            if mark not in (place / "environ").read_bytes() and mark not in command:
                continue
            process = identify(pid)
            if process is not None and command:
                found.append(Found(process, role_of(command)))
    return found


def role_of(command: bytes) -> str:
    """What a process is for, by its command line as Linux has it.

    Example:
        >>> role_of(b"python\\0-m\\0coterie\\0node\\0join\\0--name\\0a")
        'keeper of a node'
    """
    words = command.replace(b"\0", b" ").decode("utf-8", "replace")
    for part, role in ROLES.items():
        if part in words:
            return role
    return "other"


def kill(process: ProcessId) -> bool:
    """SIGKILL; returns whether it was there."""
    if identify(process.pid) != process:
        return False
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
        return True
    return False


def resident(pid: int) -> float | None:
    """MiB of memory that a process holds; ``None`` where it is gone."""
    with suppress(OSError, IndexError, ValueError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * _PAGE / 2**20
    return None


# --- memory ---------------------------------------------------------------------------------------


def sample(folder: Path, at: float) -> list[dict[str, object]]:
    """A row for each process: when, what, and its memory in MiB."""
    rows = []
    for one in find_processes(folder):
        memory = resident(one.id.pid)
        if memory is not None:
            rows.append({"at": round(at, 1), "role": one.role, "id": list(one.id), "mib": memory})
    return rows


def growth(file: Path) -> dict[str, dict[str, float]]:
    """How the memory of processes went, by what they are for.

    ``growth`` is the largest increase, in MiB an hour, of any that lived long enough: the slope of a
    line through the second half of its life, since whatever it loads at first is no growth.

    Args:
        file: rows of `sample`, a line each.
    """
    series: dict[tuple[str, tuple[int, ...]], list[tuple[float, float]]] = defaultdict(list)
    for line in file.read_text().splitlines():
        row = json.loads(line)
        series[row["role"], tuple(row["id"])].append((row["at"], row["mib"]))
    found: dict[str, dict[str, float]] = {}
    for (role, _), points in sorted(series.items()):
        times, sizes = np.array(points).T
        one = found.setdefault(role, {"processes": 0, "most": 0.0, "long": 0, "growth": 0.0})
        one["processes"] += 1
        one["most"] = round(max(one["most"], float(sizes.max())), 1)
        if times[-1] - times[0] < STEADY:
            continue
        late = times >= (times[0] + times[-1]) / 2
        slope = 3600 * float(np.polyfit(times[late], sizes[late], 1)[0])
        one["long"] += 1
        one["growth"] = round(max(one["growth"], slope), 1)
    return found

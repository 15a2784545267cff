"""Memory and processor time of a process and its children."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil


def proportional(pid: int | None = None) -> float:
    """Proportional set size of a process and of all its descendants, in GB: shared pages count
    once."""
    total = 0
    me = psutil.Process(pid)
    for process in [me, *me.children(recursive=True)]:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(
            (int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0
        )
    return total / 2**20


def processor(pid: int | None = None) -> float:
    """Seconds of the processors that a process and all its descendants took so far."""
    total = 0.0
    me = psutil.Process(pid)
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def watch(
    peak: list[float], done: threading.Event, pid: int | None = None, every: float = 0.2
) -> None:
    """Keep the largest value in ``peak[0]`` until ``done``."""
    while not done.wait(every):
        peak[0] = max(peak[0], proportional(pid))

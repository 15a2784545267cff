"""The cores that this process may use."""

from __future__ import annotations

import os


def allowed_cores() -> set[int]:
    """Their numbers; none where the system does not tell.

    On Linux a process may be limited to some of the cores, for example in a container.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set()


def cores() -> int:
    """How many there are."""
    return len(allowed_cores()) or os.cpu_count() or 1

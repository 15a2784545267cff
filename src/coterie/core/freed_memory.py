"""What becomes of memory that a process frees."""

from __future__ import annotations

import ctypes
import sys

# Names of glibc's ``malloc.h``.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_KEPT = 2**28  # bytes


def keep_freed_memory() -> bool:
    """Let this process keep up to 256 MiB that it frees, for what it allocates next; whether it will.

    glibc gives large blocks back to the system. A training allocates blocks of the same sizes in every
    step, which the system then maps and fills with zeros page by page: 2 to 5 % of the time of a step
    of a network of layers. Other C libraries are left as they are.

    Source: ``mallopt`` in the manual of glibc.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, _KEPT) == 1 for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))

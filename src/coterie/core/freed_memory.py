"""What becomes of memory that a process frees."""

from __future__ import annotations

import ctypes
import sys

# Names of glibc's ``malloc.h``.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_LARGEST_BLOCK = 2**25  # bytes; the most that all versions of glibc allow
_KEPT = 2**28  # bytes


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for what it allocates next; whether it will.

    glibc gives freed blocks back to the system. A training allocates blocks of the same sizes in every
    step, which the system then maps and fills with zeros page by page: some per cent of the time of a
    step. From now on blocks below 32 MiB stay, and of free memory at the end of the heap 256 MiB. Other
    C libraries are left as they are.

    Source: ``mallopt`` in the manual of glibc.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    kept = mallopt(_TRIM_THRESHOLD, _KEPT) == 1
    return kept and mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) == 1

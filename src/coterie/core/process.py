"""What this process uses of its machine: cores, threads, and the memory that it keeps.

Engines have a process a core, and sums must come in the same order in all of them: so mathematics
runs on one thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController

# How many modules were loaded when libraries were last searched for, and what was found.
_found: tuple[int, ThreadpoolController | None] = (0, None)
_FROM_MKL = (
    *("exp", "expm1", "log", "log10", "log1p", "log2", "sqrt"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("erf", "erfc", "erfinv", "lgamma"),
)
# Names of glibc's ``malloc.h``.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_LARGEST_BLOCK = 2**25  # bytes; the most that all versions of glibc allow
_KEPT = 2**28  # bytes


def allowed_cores() -> set[int]:
    """Their numbers, which a container may limit on Linux; none where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set()


def cores() -> int:
    """How many there are."""
    return len(allowed_cores()) or os.cpu_count() or 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch on one thread, also as a decorator.

    Sums over clients are bound by memory: more threads wait for each other, and keep other
    processes' cores busy while they do.

    Example:
        >>> with one_torch_thread():
        ...     torch.get_num_threads()
        1
    """
    with _torch_threads(1):
        yield


@contextmanager
def one_library_thread() -> Iterator[None]:
    """BLAS and OpenMP on one thread.

    Example:
        >>> with one_library_thread():
        ...     pools = find_thread_pools().info()
        ...     {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}
        {1}
    """
    with _library_threads(1):
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for torch, BLAS and OpenMP.

    Example:
        >>> with threads(2):
        ...     torch.get_num_threads()
        2
    """
    if count > 1:
        choose_functions_of_mkl()
    # Torch last: the limit of libraries is also set for the OpenMP library that torch uses.
    with _library_threads(count), _torch_threads(count):
        yield


@cache
def choose_functions_of_mkl() -> None:
    """Call each function that torch takes from MKL once, on one number.

    The MKL in PyTorch's wheels chooses the code of a function when it is first called. If threads
    do so at once, one may run code of low accuracy, that one time, and the last digits of a process
    vary.

    Source: https://github.com/pytorch/pytorch/issues/188792
    """
    number = torch.ones(1)
    for name in _FROM_MKL:
        getattr(torch, name)(number)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _library_threads(count: int) -> Iterator[None]:
    pools = find_thread_pools()
    # To set and restore the limits takes longer than to look at them, and a process that was started
    # with as many threads has nothing to change.
    if all(library.num_threads == count for library in pools.lib_controllers):
        yield
        return
    with pools.limit(limits=count):
        yield


def find_thread_pools() -> ThreadpoolController:
    """The libraries with threads of their own. To search for them takes milliseconds, so it is done
    again only after modules were loaded, which may have brought a library with them."""
    global _found
    loaded = len(sys.modules)
    known, pools = _found
    if pools is None or loaded != known:
        pools = ThreadpoolController()
        _found = (loaded, pools)
    return pools


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, for what it allocates next; whether it will.

    glibc gives freed blocks back to the system, which then maps and clears the same sizes again in
    every step of a training: some per cent of its time. From now on blocks below 32 MiB stay, and
    256 MiB of free memory at the end of the heap. Other C libraries are left as they are.

    Source: ``mallopt`` in the manual of glibc.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    kept = mallopt(_TRIM_THRESHOLD, _KEPT) == 1
    return kept and mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) == 1

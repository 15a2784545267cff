"""One thread: engines have a process a core, and sums must come in the same order in all of
them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController

_found: tuple[int, ThreadpoolController | None] = (
    0,
    None,
)  # how many modules were there, and what was found


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch on one thread, also as a decorator: in sums over clients several mostly wait for each
    other, busily.

    Example:
        >>> with one_torch_thread():
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_library_thread() -> Iterator[None]:
    """BLAS and OpenMP on one thread.

    Example:
        >>> with one_library_thread():
        ...     {pool["num_threads"] for pool in _pools().info() if pool["user_api"] == "blas"}
        {1}
    """
    with _pools().limit(limits=1):
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch, BLAS and OpenMP."""
    with one_torch_thread(), one_library_thread():
        yield


def _pools() -> ThreadpoolController:
    """The libraries with threads of their own; to look for them takes milliseconds, so only where
    modules came."""
    global _found
    loaded, (known, pools) = len(sys.modules), _found
    if pools is None or loaded != known:
        pools = ThreadpoolController()
        _found = loaded, pools
    return pools

"""Imports of large packages, in processes that are Coterie's own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_own_process = False


def begin_own_process() -> None:
    """Say that all of this process is Coterie's, as a command is, and not a script or a notebook."""
    global _own_process
    _own_process = True


@contextmanager
def large_import() -> Iterator[None]:
    """Inside, Python does not search for garbage, and in a process of Coterie's own what is there
    at the end is left out of all later searches.

    What is imported stays, and each search looks through all of it: of the time that a small run by
    the command line takes, searches are a quarter. In a script or a notebook, though, objects of the
    user's would be left out as well, which may become garbage.

    Example:
        >>> with large_import():
        ...     gc.isenabled()
        False
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _own_process:
            gc.freeze()
        if searched:
            gc.enable()

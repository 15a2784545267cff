"""The time that a process spends on what it does once: importing libraries, compiling code and
starting processes.

What needs one of these first would look slow: the first round of a run, or the first of two methods
in a process. So rounds and their parts are measured by `work_clock`, which stands still
meanwhile, and the time itself is kept apart (``start_up`` in a row's seconds).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class _StartUp:
    """Seconds so far. Of several that overlap, in this thread or in others, time counts once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open = 0
        self._since = 0.0
        self._past = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._open:
                self._since = time.perf_counter()
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                self._past += time.perf_counter() - self._since

    def seconds(self) -> float:
        with self._lock:
            if self._open:
                return self._past + time.perf_counter() - self._since
            return self._past


_start_up = _StartUp()


@contextmanager
def starting_up() -> Iterator[None]:
    """What happens inside is start-up; also as a decorator.

    Example:
        >>> before = start_up_seconds()
        >>> with starting_up():
        ...     from scipy.spatial.distance import cdist
        >>> start_up_seconds() > before
        True
    """
    _start_up.begin()
    try:
        yield
    finally:
        _start_up.end()


def start_up_seconds() -> float:
    """Seconds of start-up of this process so far."""
    return _start_up.seconds()


def work_clock() -> float:
    """Seconds since some moment, without those of start-up: what rounds are measured by."""
    return time.perf_counter() - _start_up.seconds()

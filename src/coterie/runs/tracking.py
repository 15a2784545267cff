"""Rounds logged to MLflow or TensorBoard, beside the run: whatever happens to them, the run goes
on.

Used by `coterie.runs.run`. The trackers themselves are in `coterie.runs.trackers`; a new one is
named there in ``TRACKERS`` and here in ``NEEDS``.
"""

from __future__ import annotations

import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coterie.config import registry
from coterie.errors import ConfigError, install_command
from coterie.experiment import Log

NEEDS = {"mlflow": "mlflow", "tensorboard": "tensorboard"}  # tracker -> the package that it needs
LISTED = re.compile(r"sizes|\w+_groups(\.\w+)?")  # lists with one number for each group
WAIT = 20.0  # seconds that the end of a run waits for a tracker

LogRow = Callable[[Mapping[str, Any]], None]


class LoggedRound(NamedTuple):
    """What a tracker gets of a round."""

    number: int
    metrics: Mapping[str, float]
    time: float


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """The run that a tracker logs.

    Args:
        start: the first round; a resumed run goes on where it was.
    """

    settings: Log
    resolved: Mapping[str, Any]
    folder: Path
    start: int = 0


class Tracker(Protocol):
    """Where rounds are logged; made, called and closed in a thread of its own."""

    def log(self, rounds: Sequence[LoggedRound]) -> None: ...

    def close(self, status: str) -> None: ...


def check_installed(names: Sequence[str]) -> None:
    """Refuse a tracker that cannot be used, before anything is trained."""
    for name in names:
        if find_spec(NEEDS[name]) is None:
            what = f"the package {NEEDS[name]!r} is not installed, got {name!r}"
            raise ConfigError(f"log.to: {what}; expected {install_command(name)}, or no {name!r}")


def metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by their path; of lists those with one number for each group.

    Example:
        >>> metrics({"round": 3, "accuracy": 0.5, "loss": None, "sizes": [2, 1], "refused": {"nan": 1}})
        {'accuracy': 0.5, 'sizes.0': 2.0, 'sizes.1': 1.0, 'refused.nan': 1.0}
    """
    return {name: float(value) for name, value in _leaves(row) if name != "round"}


def _leaves(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        elif isinstance(value, int | float):
            yield name, value
        elif isinstance(value, list) and LISTED.fullmatch(name):
            yield from (
                (f"{name}.{j}", v) for j, v in enumerate(value) if isinstance(v, int | float)
            )


@contextmanager
def tracked(
    settings: Log, resolved: Mapping[str, Any], folder: Path, start: int = 0
) -> Iterator[LogRow]:
    """What to call with the row of each round; it does nothing without a tracker."""
    check_installed(settings.to)
    run = LoggedRun(settings, resolved, folder, start)
    # A thread each, so that one that hangs holds up neither the run nor the other.
    threads = [TrackerThread(name, run) for name in dict.fromkeys(settings.to)]

    def log(row: Mapping[str, Any]) -> None:
        for thread in threads:
            thread.log(row)

    status = "FAILED"
    try:
        yield log
        status = "FINISHED"
    except BaseException as error:
        if _stopped_by_the_user(error):
            status = "KILLED"
        raise
    finally:
        # One limit for all of them together.
        until = time.monotonic() + WAIT
        for thread in threads:
            thread.close(status, until)


def _stopped_by_the_user(error: BaseException) -> bool:
    """Whether a run ended by a signal; our errors then have a code above 128."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return True
    code = getattr(error, "code", 0)  # of errors of other packages it may be anything
    return isinstance(code, int) and code > 128


class TrackerThread:
    """Passes rounds on to a tracker, in a thread; after the tracker's first failure it gets no
    more, with one line.

    The thread starts with the first round, after the engine's processes: forking a process that has
    threads can leave locks held for ever.
    """

    def __init__(self, name: str, run: LoggedRun) -> None:
        self.name = name
        self._run = run
        self._failed = False
        self._queue: queue.SimpleQueue[LoggedRound | str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def log(self, row: Mapping[str, Any]) -> None:
        """A round is done."""
        if self._thread is None:
            # A daemon, since a server that never answers must not keep the process alive.
            self._thread = threading.Thread(
                target=self._work, name=f"coterie-{self.name}", daemon=True
            )
            self._thread.start()
        if not self._failed:
            # With the time of the round: what waits for a slow server is sent later.
            self._queue.put(LoggedRound(int(row["round"]), metrics(row), time.time()))

    def close(self, status: str, until: float) -> None:
        """The run is over; what still waits has until then."""
        if self._thread is None:
            return
        self._queue.put(status)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"no answer for {WAIT:.0f} s, the last rounds may be missing there")

    def _work(self) -> None:
        try:
            # Made here and not in the constructor: to reach a server may fail, or take long.
            tracker: Tracker = registry.find("tracker", self.name)(self._run)
            status = None
            while status is None:
                rounds, status = self._take()
                if rounds:
                    tracker.log(rounds)
            tracker.close(status)
        except BaseException as error:  # noqa: BLE001 - a tracker's client may raise anything
            self._failed = True
            line = (str(error).splitlines() or [""])[0]
            self._warn(f"{type(error).__name__}: {line}; no more is logged to it, the run goes on")

    def _take(self) -> tuple[list[LoggedRound], str | None]:
        """All rounds that wait, in one request, and the status where the run is over."""
        rounds: list[LoggedRound] = []
        while True:
            item = self._queue.get()
            if isinstance(item, str):
                return rounds, item
            rounds.append(item)
            # What gathered during the last request goes into one, so a slow server falls
            # behind no further.
            if self._queue.empty():
                return rounds, None

    def _warn(self, what: str) -> None:
        print(f"warning: log: {self.name}: {what}", file=sys.stderr, flush=True)

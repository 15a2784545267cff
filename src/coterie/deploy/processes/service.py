"""A process that is kept running: its output in a log with times, started again when it ends."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path

from coterie.deploy.processes.process import Popen, start_piped, stop
from coterie.deploy.processes.supernode import says_why

LARGEST = 10_000_000  # bytes of a log, of which the three before it are kept
KEPT_LOGS = 3
STEADY = 60.0  # seconds after which a process is taken to be well
LONGEST_PAUSE = 60.0  # seconds before a process is started again
# Before Coterie's own lines in the log of a node; the others are Flower's.
OWN_LINE = "coterie: "
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ServiceLog:
    """Lines with their times, in a file that does not grow for ever.

    Args:
        file: the log; older lines are in ``<file>.1`` and so on.
    """

    def __init__(self, file: Path, process: str, as_json: bool = False) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.process = process
        self.as_json = as_json
        self.last = "nothing"
        self._handler = RotatingFileHandler(
            file, maxBytes=LARGEST, backupCount=KEPT_LOGS, encoding="utf-8", errors="replace"
        )

    def begin(self) -> None:
        """Forget the last line of a process before."""
        self.last = "nothing"

    def write(self, line: str) -> None:
        """Add a line."""
        line = _COLOURS.sub("", line).rstrip()
        if not line:
            return
        # What its own processes still write explains nothing.
        if says_why(line) or not says_why(self.last):
            self.last = line[:200] if says_why(line) else line[-200:]
        text = log_line(self.process, line, self.as_json)
        # With the handler's lock: the process and its watcher write from two threads.
        self._handler.handle(logging.LogRecord("", logging.INFO, "", 0, text, None, None))

    def close(self) -> None:
        self._handler.close()


def log_line(process: str, line: str, as_json: bool, now: float | None = None) -> str:
    """A line as a log holds it.

    Args:
        now: seconds since 1970; default the present.

    Example:
        >>> log_line("node", "connected", False, now=0.0)
        '1970-01-01T00:00:00Z connected'
        >>> log_line("node", "connected", True, now=0.0)
        '{"time": "1970-01-01T00:00:00Z", "process": "node", "line": "connected"}'
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if as_json:
        return json.dumps({"time": at, "process": process, "line": line})
    return f"{at} {line}"


@dataclass(slots=True)
class Restarts:
    """How long to wait before a process that ended is started again.

    Args:
        began: when it was started, on the monotonic clock.
        failures: how often in a row it ended before it was steady.
    """

    began: float = 0.0
    failures: int = 0

    def note_start(self) -> None:
        """The process was started now."""
        self.began = time.monotonic()

    def pause(self) -> float:
        """Seconds to wait: longer with each failure in a row."""
        if time.monotonic() - self.began > STEADY:
            self.failures = 0
        self.failures += 1
        return min(LONGEST_PAUSE, 2.0 ** (self.failures - 1))


@dataclass(slots=True)
class Service:
    """A process of Flower's, or nginx.

    Args:
        on_line: called with each line, in a thread.
    """

    command: Sequence[str]
    env: dict[str, str]
    log: ServiceLog
    on_line: Callable[[str], None] = lambda line: None
    process: Popen | None = None
    restarts: Restarts = field(default_factory=Restarts)
    _reader: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the process, from a thread that lasts."""
        self.log.begin()
        self.process = start_piped(self.command, self.env)
        self.restarts.note_start()
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: Popen) -> None:
        assert process.stdout is not None, "the process has a pipe"
        with process.stdout:
            for line in process.stdout:
                text = line.decode("utf-8", "replace")
                self.log.write(text)
                self.on_line(text)

    @property
    def code(self) -> int | None:
        """The exit code of the process; ``None`` while it runs."""
        assert self.process is not None, "it was started"
        return self.process.poll()

    def pause(self) -> float:
        """Seconds to wait before the process is started again."""
        return self.restarts.pause()

    def drain(self) -> None:
        """Wait a little for the last lines of a process that ended."""
        if self._reader is not None:
            self._reader.join(2.0)


def stop_services(services: Sequence[Service]) -> None:
    """Stop all that run, with what they started, and close their logs."""
    stop([one.process for one in services if one.process is not None])
    for service in services:
        service.drain()
        service.log.close()

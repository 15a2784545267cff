"""Processes that are forks of this one, which has imported torch: a start takes a moment and not
three seconds of processor time.

For tests of what processes do to each other. How Python starts a command is tested in `tests.cli`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import posix
import runpy
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

from coterie.cli.main import main
from tests.conftest import PATIENCE


class Forked:
    """An action in a process of its own: how it ends, and what it prints."""

    def __init__(self, action: Callable[[], object]) -> None:
        # Closed when the process has ended.
        self._printed = [
            tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
            for _ in range(2)
        ]
        fork = multiprocessing.get_context("fork")
        self._process = fork.Process(target=_carry_out, args=(action, *self._printed))
        self._process.start()
        # Python would wait for it at its end, where a test has failed.
        atexit.register(self._process.kill)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; ``None`` while the process runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> tuple[int, str, str]:
        """Wait for the end: the exit code, and what went to standard output and standard error."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        assert code is not None, "still running"
        texts = []
        for file in self._printed:
            file.seek(0)
            texts.append(file.read())
            file.close()
        return code, *texts


def command(*words: str) -> Forked:
    """A command of Coterie."""
    return Forked(partial(_run_command, words))


def without_coterie(script: Path, *words: str) -> Forked:
    """A script, in a process in which every import of Coterie fails."""
    return Forked(partial(_run_script, script, words))


def _carry_out(action: Callable[[], object], out: IO[str], error: IO[str]) -> None:
    # Nothing that a test or pytest changed here is left, as in a process that a user starts.
    os.dup2(out.fileno(), 1)
    os.dup2(error.fileno(), 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    os.fsync = posix.fsync
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.resetwarnings()
    action()


def _run_command(words: tuple[str, ...]) -> None:
    sys.argv = ["coterie", *words]
    main()


def _run_script(script: Path, words: tuple[str, ...]) -> None:
    # Nor is a script of the same name known that another test has imported.
    beside = {file.stem for file in script.parent.glob("*.py")}
    for name in [name for name in sys.modules if name.partition(".")[0] in {"coterie", *beside}]:
        del sys.modules[name]
    sys.modules["coterie"] = None  # type: ignore[assignment]
    sys.argv = [str(script), *words]
    sys.path[:] = [str(script.parent), *sys.path]
    runpy.run_path(str(script), run_name="__main__")

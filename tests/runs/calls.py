"""Commands called in this process, thousands of them, or each in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from unittest import mock

from coterie.cli import main as command_line
from coterie.runs.folder import digests
from coterie.sweep import runner
from coterie.sweep.worker import Worker, execute_tasks


def call(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, called in this process."""
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line.invoke(list(words))
    return code, out.getvalue(), err.getvalue()


def call_process(*words: str) -> tuple[int, str, str]:
    """The same of a command that is a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "coterie", *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


Caller = Callable[..., tuple[int, str, str]]


class Thread(threading.Thread):
    """A worker's loop in this process, as far as a sweep asks for a process."""

    def poll(self) -> int | None:
        return None if self.is_alive() else 0

    def wait(self) -> int:
        self.join()
        return 0

    def kill(self) -> None:
        """It ends by itself when its pipe closes."""


class WorkerHere(Worker):
    """A sweep's worker without a process: the same loop and pipes, in a thread."""

    def __init__(self, threads: int) -> None:
        tasks, self_tasks = os.pipe()
        self_answers, answers = os.pipe()
        self.tasks = os.fdopen(self_tasks, "w")
        self.answers = os.fdopen(self_answers)
        self.run = None

        def loop() -> None:
            with os.fdopen(tasks) as lines, os.fdopen(answers, "w") as replies:
                execute_tasks(lines, replies)

        self.process = Thread(target=loop, daemon=True)  # type: ignore[assignment]
        self.process.start()  # type: ignore[attr-defined]


@contextlib.contextmanager
def sweeps_here() -> Iterator[None]:
    """Let commands execute the runs of a sweep in this process, where torch is imported.

    For tests of what comes out. Those of the processes themselves are in `tests.sweep.test_runner`.
    """
    with mock.patch.object(runner, "Worker", WorkerHere):
        yield


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Spare commands what takes time and does not depend on a folder's files.

    No other process changes a record meanwhile, so none is waited for. Charts are drawn thousands of
    times; whether they are valid is tested elsewhere.
    """
    import altair

    with (
        mock.patch.object(digests, "PAUSE", 0.0),
        sweeps_here(),
        altair.utils.schemapi.debug_mode(False),
    ):
        yield

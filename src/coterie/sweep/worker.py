"""A process that executes runs, one after another: both ends of its pipe.

The sweep writes a run as a line of JSON, and the worker answers with a line of JSON. It finishes
the round in progress and saves when its input closes. So it also stops when the sweep is killed.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TextIO

from filelock import Timeout

from coterie.crashes import BUG, crash_line, exit_code
from coterie.errors import ConfigError, CoterieError, InUseError
from coterie.files import read_json
from coterie.runs.run import Stopped
from coterie.sweep.plan import SweepRun
from coterie.sweep.run_once import carry_out

# Searches for garbage while all is imported would take a fifth of the time to start.
_START = "import gc; gc.disable(); from coterie.sweep.worker import main; main()"
# Its `state`, and for a failed run also a `line` that says why, and with `every_seed` that it would
# fail with any seed.
Answer = dict[str, str]


class Worker:
    """The process as the sweep sees it.

    It is in a session of its own, so that Ctrl-C reaches only the sweep, which then closes the
    inputs of its workers.

    Args:
        threads: number of threads of numerical libraries, unless ``OMP_NUM_THREADS`` is set.
    """

    def __init__(self, threads: int) -> None:
        # A process of its own, so that a crash of a run (memory, a native library) ends only it.
        command = [sys.executable, "-c", _START]
        # A thread per core in each of several processes: they would wait for each other, busily.
        limit = {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command,
            env=limit | os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tasks = self.process.stdin
        self.answers = self.process.stdout
        self.run: SweepRun | None = None

    def send(self, run: SweepRun, out: Path) -> None:
        """Let the process execute a run in the folder of the sweep."""
        self.run = run
        task = {
            "out": str(out),
            "id": run.id,
            "algorithm": run.algorithm,
            "seed": run.seed,
            "tables": run.tables,
        }
        # A process that died is noticed by `answer`, with its exit code.
        with suppress(BrokenPipeError):
            self.tasks.write(json.dumps(task) + "\n")
            self.tasks.flush()

    def answer(self) -> Answer | None:
        """What became of the run; ``None`` while it is in progress."""
        # The exit code is read before the pipe: a process may answer and end in between, and then
        # its answer counts.
        code = self.process.poll()
        # Looks without waiting: `readline` alone would block until the run ends.
        if wait([self.answers.fileno()], 0):
            line = self.answers.readline()
            if line:
                found: Answer = read_json(line)
                return found
            code = self.process.wait()
        if code is None:
            return None
        how = f"exit code {code}"
        if code < 0:
            how = signal.Signals(-code).name
        died = f"engine: the process of the run died ({how}): run the same command to try it again"
        return {"state": "failed", "line": died}

    def take_run(self) -> SweepRun:
        """The run that has ended; the process is free for another one."""
        run = self.run
        assert run is not None, "the process has a run"
        self.run = None
        return run

    def stop(self) -> None:
        """Let the process finish its round, save, and end."""
        with suppress(BrokenPipeError):
            self.tasks.close()

    def end(self) -> None:
        """End the process; a run in progress is killed and keeps its last checkpoint."""
        # Without a run it waits for a task, and ends when the pipe closes.
        if self.run is not None:
            self.process.kill()
        self.stop()
        self.process.wait()
        self.answers.close()


# --- within the process ---------------------------------------------------------------------------


def execute_tasks(tasks: TextIO, answers: TextIO) -> None:
    """Execute the runs that arrive as lines of JSON, and answer each with a line."""

    def stop() -> int:
        # While a run is in progress the sweep sends no task: input that can be read is closed.
        closed = select.select([tasks], [], [], 0)[0]
        if closed:
            return signal.SIGTERM
        return 0

    # `readline`, not iteration: a file's iterator reads ahead and would wait for later tasks.
    for line in iter(tasks.readline, ""):
        task = read_json(line)
        run = SweepRun(task["id"], task["algorithm"], task["seed"], (), task["tables"])
        answer = _execute(run, Path(task["out"]), stop)
        with suppress(BrokenPipeError):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _execute(run: SweepRun, out: Path, stop: Callable[[], int]) -> Answer:
    try:
        if carry_out(run, out, stop):
            return {"state": "done"}
        return {"state": "shared"}
    # Another sweep took the lock between the check and the run.
    except (Timeout, InUseError):
        return {"state": "taken"}
    # The state is saved; the sweep resumes the run when it starts again.
    except Stopped:
        return {"state": "stopped"}
    except CoterieError as error:
        return _failure(error, " ".join(str(error).split()))
    except Exception as error:  # noqa: BLE001 - a bug in one run must not end the other runs
        file = out / f"{run.id}-crash.txt"
        # Client names in a message may hold characters that no UTF-8 file can.
        file.write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
        return _failure(error, crash_line(error, f"in {file}"))


def _failure(error: Exception, line: str) -> Answer:
    answer = {"state": "failed", "line": line}
    # A configuration, or code. Other errors come from data, files and clients, which differ.
    if exit_code(error) in (ConfigError.code, BUG):
        answer["every_seed"] = "yes"
    return answer


def main() -> None:
    """What the process does."""
    # Standard output is for answers. What a run prints goes to standard error instead, and its
    # standard input is empty, so that it cannot read a task.
    tasks = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # What was imported stays to the end: no search for garbage looks through it again.
    gc.freeze()
    gc.enable()
    execute_tasks(tasks, answers)

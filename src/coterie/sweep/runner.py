"""A sweep: every run of a plan done once, by as many processes and sweeps as share it.

Whoever works on a run holds the lock beside its folder; the operating system lets go of it when the
process ends, however it ends. What is done is skipped, what was killed goes on from its checkpoint,
so a sweep is resumed, shared or extended by the same command.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import NoReturn, TextIO

from filelock import FileLock, Timeout

from coterie.config import check
from coterie.config.identity import config_hash
from coterie.data import save_partition
from coterie.errors import CheckpointError, ConfigError, CoterieError
from coterie.runs.run import Stopped, execute, make_folder, prepare
from coterie.runs.store import RunFolder
from coterie.sweep.plan import Plan, Run

BETWEEN = 0.3  # seconds between two looks at a run that another sweep has


# --- one run --------------------------------------------------------------------------------------


def is_done(run: Run, out: Path) -> bool:
    """Whether the folder of a run holds it whole; one whose files are damaged does not."""
    folder = RunFolder(out / run.id)
    if not (folder.path / "summary.json").is_file():
        return False
    try:
        summary = folder.summary()
        resolved = folder.resolved
    except (CheckpointError, ConfigError):
        return False
    return (
        isinstance(summary, dict)
        and bool(summary.get("complete"))
        and config_hash(resolved) == config_hash(run.tables)
    )


def lock_of(run: Run, out: Path) -> FileLock:
    """The lock of a run, held by whoever works on it; taking it does not wait."""
    return FileLock(out / f".{run.id}.lock", timeout=0)


def is_taken(run: Run, out: Path) -> bool:
    """Whether somebody works on a run."""
    try:
        with lock_of(run, out):
            return False
    except Timeout:
        return True


def carry_out(run: Run, out: Path, stop: Callable[[], int] | None = None) -> bool:
    """Do a run, or go on with it, or leave it as it is where it is done; returns whether there was
    anything to do.

    Raises:
        Timeout: if somebody else works on it.
        Stopped: if ``stop`` said so; the state is saved.
        CoterieError: for anything expected.
    """
    with lock_of(run, out):
        if is_done(run, out):
            return False
        for left in out.glob(f".{run.id}.tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        config = check(run.tables, f"{out / run.id}")
        folder = RunFolder(out / run.id)
        if not (folder.path / "config.toml").exists():
            prepared = prepare(config)
            execute(prepared, make_folder(prepared, folder.path), stop=stop)
            return True
        checkpoint = folder.latest_checkpoint(config.resolved())
        prepared = prepare(config, folder.path / "partition.npz")
        if not (folder.path / "partition.npz").exists():
            save_partition(folder.path / "partition.npz", prepared.parts)
        execute(prepared, folder, checkpoint=checkpoint, resume=True, stop=stop)
        return True


# --- many runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed, and why, in one line."""

    run: Run
    line: str


Told = Callable[[Run, str], None]


class Worker:
    """A process that does one run after another. It stops after the round at hand when its input
    closes.

    Its session is its own, so that Ctrl-C reaches only the sweep, which then closes the inputs; so
    does a sweep that is killed.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-m", "coterie.sweep.runner"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tasks = self.process.stdin
        self.answers = self.process.stdout
        self.run: Run | None = None

    def give(self, run: Run, out: Path) -> None:
        self.run = run
        task = {
            "out": str(out),
            "id": run.id,
            "algorithm": run.algorithm,
            "seed": run.seed,
            "tables": run.tables,
        }
        with suppress(BrokenPipeError):
            self.tasks.write(json.dumps(task) + "\n")
            self.tasks.flush()

    def answer(self) -> dict[str, str] | None:
        """What became of its run; ``None`` while it is at it."""
        code = (
            self.process.poll()
        )  # before the last look: what it said before it ended is still to be read
        if wait([self.answers.fileno()], 0):
            if line := self.answers.readline():
                found: dict[str, str] = json.loads(line)
                return found
            code = self.process.wait()
        if code is None:
            return None
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {
            "state": "failed",
            "line": f"engine: the process of the run died, got {how}; expected it to go on",
        }

    def stop(self) -> None:
        with suppress(BrokenPipeError):
            self.tasks.close()

    def end(self) -> None:
        if self.run is not None:
            self.process.kill()
        self.stop()
        self.process.wait()
        self.answers.close()


def sweep(
    plan: Plan,
    out: Path,
    jobs: int = 1,
    told: Told | None = None,
    stop: Callable[[], int] | None = None,
) -> list[Failure]:
    """Do every run of a plan that is not done, alone or with other sweeps of the same folder.

    Args:
        plan: what to run.
        out: the folder of the sweep; a run's folder is ``<out>/<id>``.
        jobs: runs side by side, a process each.
        told: called with a run and ``"skipped"``, ``"shared"`` (another sweep did it), ``"done"``
            or ``"failed"``.
        stop: asked several times a second; the number of a signal, or 0 to go on.

    Returns:
        The runs that failed; the others are done.

    Raises:
        Stopped: if ``stop`` said so; every run's state is saved.
    """
    out.mkdir(parents=True, exist_ok=True)
    return _Sweep(out, told or (lambda run, state: None), stop or (lambda: 0), jobs).do(plan.runs)


@dataclass
class _Sweep:
    out: Path
    told: Told
    stop: Callable[[], int]
    jobs: int
    workers: list[Worker] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    left: list[Run] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def do(self, runs: Sequence[Run]) -> list[Failure]:
        self.left = [run for run in runs if not self._skip(run, "skipped")]
        try:
            while self.left or self._busy():
                caught = self.stop()
                if caught:
                    self._leave(caught, len(runs))
                self._deal()
                self._listen()
        finally:
            for worker in self.workers:
                worker.end()
        return self.failures

    def _skip(self, run: Run, state: str) -> bool:
        if not is_done(run, self.out):
            return False
        self.told(run, state)
        return True

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.run is not None]

    def _deal(self) -> None:
        """Give a run to every worker that has none, as long as there are runs that nobody has."""
        for run in self._free():
            worker = next((w for w in self.workers if w.run is None), None)
            if worker is None:
                worker = Worker()
                self.workers.append(worker)
            self.left.remove(run)
            worker.give(run, self.out)

    def _free(self) -> Iterator[Run]:
        for run in list(self.left):
            if len(self._busy()) >= self.jobs:
                return
            if is_taken(run, self.out):
                self.seen.add(run.id)
            elif run.id in self.seen and self._skip(run, "shared"):
                self.left.remove(run)
            else:
                yield run

    def _listen(self) -> None:
        busy = self._busy()
        if not busy:
            time.sleep(BETWEEN if self.left else 0)
            return
        wait([worker.answers.fileno() for worker in busy], BETWEEN)
        for worker in busy:
            answer = worker.answer()
            if answer is not None:
                self._take(worker, answer)

    def _take(self, worker: Worker, answer: Mapping[str, str]) -> None:
        run, worker.run = worker.run, None
        assert run is not None
        if worker.process.poll() is not None:
            worker.end()
            self.workers.remove(worker)
        if answer["state"] in ("taken", "stopped"):
            self.seen.add(run.id)
            self.left.append(run)
            return
        if answer["state"] == "failed":
            self.failures.append(Failure(run, answer["line"]))
        self.told(run, answer["state"])

    def _leave(self, caught: int, count: int) -> NoReturn:
        """Let every worker end its round, then stop."""
        for worker in self.workers:
            worker.stop()
        while self._busy():
            self._listen()
        done = count - len(self.left) - len(self.failures)
        raise Stopped(
            caught,
            f"stopped with {done} of {count} runs done; the same command goes on, in {self.out}",
        )


def share(jobs: int) -> int:
    """The cores of this process for each of some runs side by side, at least one.

    Example:
        >>> share(10_000)
        1
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // jobs)


# --- the process of a worker ----------------------------------------------------------------------


def serve(tasks: TextIO, answers: TextIO) -> None:
    """Do the runs that come as lines of JSON, and answer each with a line, until the input ends."""
    for line in iter(tasks.readline, ""):
        task = json.loads(line)
        run = Run(task["id"], task["algorithm"], task["seed"], (), task["tables"])
        out = Path(task["out"])
        answer = _answer(
            run, out, lambda: signal.SIGTERM if select.select([tasks], [], [], 0)[0] else 0
        )
        with suppress(BrokenPipeError):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _answer(run: Run, out: Path, stop: Callable[[], int]) -> dict[str, str]:
    try:
        return {"state": "done" if carry_out(run, out, stop) else "shared"}
    except Timeout:
        return {"state": "taken"}
    except Stopped:
        return {"state": "stopped"}
    except CoterieError as error:
        return {"state": "failed", "line": " ".join(str(error).split())}
    except Exception as error:  # noqa: BLE001 - the last line of defence: one run's fault is not the sweep's
        file = out / f"{run.id}-crash.txt"
        file.write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
        what = f"{type(error).__name__} ({(str(error).splitlines() or [''])[0]})"
        return {
            "state": "failed",
            "line": f"coterie: a bug, got {what}; the traceback is in {file}, please report it",
        }


def _main() -> None:
    """What a run prints goes to standard error: standard output is for answers."""
    tasks = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    serve(tasks, answers)


if __name__ == "__main__":
    _main()

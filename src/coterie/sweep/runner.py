"""A sweep: every run of a plan executed once, by any number of processes and sweeps.

Runs that are done are skipped and runs that were interrupted are resumed. So the same command
resumes a sweep, shares it with another one, or extends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import NoReturn

from coterie.files import refuse_unwritable
from coterie.runs.run import Stopped
from coterie.sweep.plan import Point, SweepRun, cores_per_run
from coterie.sweep.run_once import is_done, is_taken
from coterie.sweep.worker import Answer, Worker

POLL_SECONDS = 0.3  # between two checks of a run that another sweep works on


@dataclass(frozen=True, slots=True)
class RunFailure:
    """A run that failed, and why, in one line."""

    run: SweepRun
    line: str


# The run, how it ended, and for a failed one why.
Report = Callable[[SweepRun, str, str], None]


def sweep(
    runs: Sequence[SweepRun],
    out: Path,
    jobs: int = 1,
    report: Report | None = None,
    stop: Callable[[], int] | None = None,
) -> list[RunFailure]:
    """Execute every run that is not done, alone or with other sweeps of the same folder.

    Args:
        report: called when a run ends with ``"skipped"``, ``"shared"`` (another sweep executed it),
            ``"done"`` or ``"failed"``. A run whose failure has nothing to do with its seed fails
            for the other seeds that have not begun, too.
        stop: called several times a second; the number of a signal, or 0 to continue.
    """
    with refuse_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    return _Sweep(out, report or (lambda run, state, reason: None), stop or (lambda: 0), jobs).run(
        runs
    )


@dataclass
class _Sweep:
    """A sweep in progress.

    Args:
        waiting: runs that no worker of this sweep has.
        shared: ids of runs that another sweep was seen to work on.
    """

    out: Path
    report: Report
    stop: Callable[[], int]
    jobs: int
    workers: list[Worker] = field(default_factory=list)
    failures: list[RunFailure] = field(default_factory=list)
    waiting: list[SweepRun] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)

    def run(self, runs: Sequence[SweepRun]) -> list[RunFailure]:
        self.waiting = [run for run in runs if not self._skip(run, "skipped")]
        try:
            while self.waiting or self._busy():
                signal = self.stop()
                if signal:
                    self._stop(signal, len(runs))
                self._start_runs()
                self._collect()
        finally:
            # Also after an error: no process may outlive the sweep.
            for worker in self.workers:
                worker.end()
        return self.failures

    def _skip(self, run: SweepRun, state: str) -> bool:
        if not is_done(run, self.out):
            return False
        self.report(run, state, "")
        return True

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.run is not None]

    def _start_runs(self) -> None:
        for run in self._startable():
            worker = next((worker for worker in self.workers if worker.run is None), None)
            if worker is None:
                worker = Worker(cores_per_run(self.jobs))
                self.workers.append(worker)
            self.waiting.remove(run)
            worker.send(run, self.out)

    def _startable(self) -> Iterator[SweepRun]:
        """Runs that no other sweep works on, as many as there are free workers."""
        for run in list(self.waiting):
            # Checked for every run: the caller starts each before it asks for the next.
            if len(self._busy()) >= self.jobs:
                return
            if is_taken(run, self.out):
                # When its lock is free again, another sweep has finished it, or died on the way.
                self.shared.add(run.id)
            elif run.id in self.shared and self._skip(run, "shared"):
                self.waiting.remove(run)
            else:
                yield run

    def _collect(self) -> None:
        busy = self._busy()
        if not busy:
            # All that is left is with other sweeps.
            if self.waiting:
                time.sleep(POLL_SECONDS)
            return
        wait([worker.answers.fileno() for worker in busy], POLL_SECONDS)
        for worker in busy:
            answer = worker.answer()
            # Several may have answered while the sweep waited.
            if answer is not None:
                self._take(worker, answer)

    def _take(self, worker: Worker, answer: Answer) -> None:
        run = worker.take_run()
        if worker.process.poll() is not None:
            # It died; the next run gets a new process.
            worker.end()
            self.workers.remove(worker)
        state = answer["state"]
        if state in ("taken", "stopped"):
            # Another sweep was faster, or this one stops: in both cases the run is not done yet.
            self.shared.add(run.id)
            self.waiting.append(run)
            return
        if state != "failed":
            self.report(run, state, "")
            return
        self._fail(run, answer["line"])
        if answer.get("every_seed"):
            alike = [
                one for one in self.waiting if _but_for_its_seed(one) == _but_for_its_seed(run)
            ]
            for one in alike:
                self.waiting.remove(one)
                self._fail(one, f"not started, because seed {run.seed} failed: {answer['line']}")

    def _fail(self, run: SweepRun, line: str) -> None:
        self.failures.append(RunFailure(run, line))
        self.report(run, "failed", line)

    def _stop(self, signal: int, count: int) -> NoReturn:
        for worker in self.workers:
            worker.stop()
        # A round in progress is finished, so that its work is not lost.
        while self._busy():
            self._collect()
        done = count - len(self.waiting) - len(self.failures)
        message = f"stopped with {done} of {count} runs done; the same command continues"
        raise Stopped(signal, f"{message}, in {self.out}")


def _but_for_its_seed(run: SweepRun) -> tuple[str, Point]:
    return run.algorithm, run.point

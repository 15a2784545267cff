"""Worker processes, the memory that they share with this one, and the pipes to them."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import multiprocessing as mp

from coterie.core.process import allowed_cores, find_thread_pools
from coterie.core.startup import starting_up
from coterie.engines.pool.sharing import pack_arguments, share
from coterie.engines.pool.stopped import give_up_sending, wait_for
from coterie.engines.pool.worker import (
    END,
    TASK,
    Failure,
    PartJob,
    PoolJob,
    WorkerEquipment,
    work_until_the_end,
)
from coterie.engines.simulation import ClientError, ending
from coterie.errors import ConfigError, first_line
from coterie.local import LocalRunner

# What Python raises for a class or a function that only exists inside another function, and torch for
# a tensor, that cannot be sent to another process.
_NOT_SENT = (pickle.PicklingError, AttributeError, TypeError, RuntimeError)
_PATIENCE = 10.0  # seconds for a process that ends
_MOMENT = 1.0  # seconds for one whose pipe has closed
_LEAST_MODELS = 8  # that there is room for: a round scores more of them than it trains


def start_method(threads: int = 1) -> str:
    """``fork`` where it is safe: on Linux with no accelerator, whose runtime does not survive it,
    and one thread per client, since OpenMP waits in the fork for its parent's threads. Else
    ``spawn``."""
    if sys.platform == "linux" and threads == 1 and not torch.accelerator.is_available():
        return "fork"
    return "spawn"


def cores_of_workers(workers: int) -> list[int]:
    """The numbers of the cores on which workers begin, one for each. None unless there are as many
    workers as cores: else another run on this machine would take the same cores for its workers."""
    allowed = sorted(allowed_cores())
    if workers == 1 or workers != len(allowed):
        return []
    return allowed


class WorkerPool:
    """Worker processes that come and go together: if one dies, all are ended and started again."""

    def __init__(self, workers: int, start: str, threads: int) -> None:
        self.workers = workers
        self._threads = threads
        self.processes: list[Any] = []
        self._context: Any = mp.get_context(start)
        self._fork = start == "fork"
        self._pipes: list[Connection] = []
        self._models = 0
        self._tasks = 0
        self._width = 0
        self._cores = cores_of_workers(workers)
        # How a worker ended that the pool itself did not end.
        self.last_end = "ended without a message"

    @property
    def running(self) -> bool:
        return bool(self.processes)

    def fits(self, models: int, tasks: int, width: int) -> bool:
        """Whether processes run whose shared memory has room for so many models and tasks, each of
        ``width`` values with what its client has of its own."""
        room = models <= self._models and tasks <= self._tasks and width <= self._width
        return self.running and room

    @starting_up()
    def start(self, runner: LocalRunner, models: int, tasks: int, width: int) -> None:
        """Start processes with room for at least so many models and tasks, in place of those that
        run; the arguments are those of `fits`."""
        self.close()
        # Room never shrinks: a request as large as an earlier one must not restart the workers.
        self._models = max(models, self._models, _LEAST_MODELS)
        self._tasks = max(tasks, self._tasks)
        self._width = max(width, self._width)
        self._share_memory(self._width)
        taken, self._numbers = self._context.Pipe(duplex=False)
        self._pipes = []
        # A runner of its own: what this process keeps for scoring is of no use to workers.
        fresh = runner.copy()
        # Before the fork: compiled code is loaded, or made, once and not by each worker.
        fresh.load_kernels(forks=self._fork)
        if not self._fork:
            # One that has loaded nothing: code that is sent would be compiled again by each worker,
            # which takes seconds, and what is on disk is loaded at once.
            fresh = runner.copy()
        equipment = WorkerEquipment(fresh, self._shared, self._threads)
        try:
            if self._fork:
                # A fork knows the libraries that its parent has found, and looks for none.
                find_thread_pools()
                self._begin(equipment, [], taken)
            else:
                packed, tensors = pack_arguments(equipment)
                self._begin(None, tensors, taken)
                self._send(packed)
            self._wait_until_they_listen()
        except _NOT_SENT as error:
            self.close()
            what = "the pool cannot send the network or the data to its processes"
            expected = "classes at the top level of a module, and space for the data in shared memory (/dev/shm), or the engine 'serial'"
            got = first_line(error)
            raise ConfigError("failed", "engine.name", what, found=got, allowed=expected) from error
        except BaseException:
            self.close()
            raise

    def _begin(
        self, equipment: WorkerEquipment | None, tensors: list[Tensor], taken: Connection
    ) -> None:
        """Start the processes; the arguments are those of `work_until_the_end`."""
        for _ in range(self.workers):
            ours, theirs = self._context.Pipe()
            inherited: list[Connection] = []
            if self._fork:
                inherited = [*self._pipes, ours, self._numbers]
            process = self._context.Process(
                target=work_until_the_end,
                args=(equipment, tensors, taken, theirs, inherited),
                daemon=True,
            )
            process.start()
            # While this process held the worker's end, too, it would never read of its death.
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)
        taken.close()

    def _send(self, packed: bytes) -> None:
        for pipe in self._pipes:
            # A worker that has ended is noticed below.
            with suppress(BrokenPipeError, ConnectionResetError):
                pipe.send_bytes(packed)

    def _wait_until_they_listen(self) -> None:
        """Wait for the first word of each worker. A worker that was not forked imports for seconds,
        which are no part of a round's time."""
        silent = dict(zip(self._pipes, self.processes, strict=True))
        heard = 0
        while silent:
            ended = [process.sentinel for process in silent.values()]
            ready = wait_for([*silent, *ended], self.processes, None)
            for pipe, process in list(silent.items()):
                if pipe in ready:
                    with suppress(EOFError, OSError):
                        pipe.recv()
                        heard += 1
                # The next job notices a worker that died at its start.
                elif process.sentinel not in ready:
                    continue
                del silent[pipe]
        for pipe in self._pipes:
            give_up_sending(pipe)
        if not heard:
            self._explain_start()

    def _explain_start(self) -> None:
        """Say why all processes ended at their start, if it is what the user's code is. What was killed
        is started again, as after a death in mid-round."""
        for process in self.processes:
            process.join(_PATIENCE)
        codes = [process.exitcode for process in self.processes]
        # A signal that ended a process has a negative code.
        if self._fork or not all(code and code > 0 for code in codes):
            return
        self.close()
        what = (
            "all processes of the pool ended at startup (see above). Put the calls of a script "
            "under `if __name__ == '__main__':`, define the network in a module that other "
            "processes can import, or choose the engine 'serial'"
        )
        raise ConfigError("failed", "engine.name", what)

    def _share_memory(self, width: int) -> None:
        self._shared = share(self._models, self._tasks, width, fork=self._fork)
        self.starts: NDArray[np.float32] = self._shared.starts.numpy()
        self.deltas: NDArray[np.float32] = self._shared.deltas.numpy()
        self.sizes_and_losses: NDArray[np.float64] = self._shared.sizes_and_losses.numpy()
        self.done: NDArray[np.uint8] = self._shared.done.numpy()

    def train(self, job: PoolJob, tasks: Sequence[int], end: float | None) -> bool:
        """Hand out tasks, places in ``job.ids``, in their order, and wait until all are done; false
        if a worker died or the time is over, and ``done`` says what came before. If a client's own
        code failed, the processes are ended."""
        self.done[: len(tasks)] = 0
        # An end mark for each worker, behind all tasks. They fit the pipe (64 KiB), so that this
        # write does not wait for workers that wait for their job.
        numbers = [*tasks, *[END] * self.workers]
        try:
            os.write(self._numbers.fileno(), b"".join(TASK.pack(number) for number in numbers))
        except BrokenPipeError:  # all workers are dead
            return False
        answers = self.ask([job] * self.workers, end)
        for answer in answers or ():
            if isinstance(answer, Failure):
                self.close()
                raise ClientError(answer.line) from RuntimeError(answer.trace)
        return answers is not None

    def ask(self, jobs: Sequence[PoolJob | PartJob], end: float | None) -> list[Any] | None:
        """A job for each worker, and what they answer; ``None`` if a worker died or the time is
        over. After a `Failure` the other answers are not waited for."""
        self._wake_apart()
        try:
            for pipe, job in zip(self._pipes, jobs, strict=True):
                pipe.send(job)
        except OSError:
            return None
        except _NOT_SENT as error:
            self.close()
            what = "the pool cannot send a rule or an objective to its processes"
            expected = "a class at the top level of a module, or the engine 'serial'"
            raise ConfigError(
                "failed", "engine.name", what, found=error, allowed=expected
            ) from error
        waiting = dict(zip(self._pipes, range(self.workers), strict=True))
        sentinels = [process.sentinel for process in self.processes]
        answers: list[Any] = [None] * self.workers
        while waiting:
            ready = wait_for([*waiting, *sentinels], self.processes, end)
            if not ready:
                return None
            for pipe in [pipe for pipe in self._pipes if pipe in waiting and pipe in ready]:
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    # Its pipe closed, and so it ends: `close` then tells how.
                    self.processes[waiting[pipe]].join(_MOMENT)
                    return None
                answers[waiting.pop(pipe)] = answer
                if isinstance(answer, Failure):
                    return answers
            # Answers before deaths: a worker that answered and then died has done its part.
            if waiting and any(sentinel in ready for sentinel in sentinels):
                return None
        return answers

    def _wake_apart(self) -> None:
        """Let each worker begin on a core of its own, and then go to any. Linux may wake two on one
        core, and leave another idle for some milliseconds, which is half of a round of a small
        network."""
        for core, process in zip(self._cores, self.processes, strict=False):
            if process.exitcode is not None:
                continue
            # The worker has just died, or the core was taken from this process: of no concern here.
            with suppress(OSError):
                os.sched_setaffinity(process.pid, {core})

    def close(self) -> None:
        for process in self.processes:
            # A process that ends closes its sentinel a moment before it has ended.
            if wait([process.sentinel], timeout=0):
                process.join(_MOMENT)
            if process.exitcode is not None:
                self.last_end = ending(process.exitcode)
        # Killed and not asked to end: one may hang in the user's code.
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        if self.processes:
            for pipe in [*self._pipes, self._numbers]:
                pipe.close()
        self.processes = []

"""One worker process per core, one thread each: the default on a CPU.

Workers hold the pooled data and share memory with this process for start vectors and updates, so
training moves no array through a pipe. Where a sample's score does not depend on what is scored
beside it, they score models, too, each client always on the same worker, which keeps its samples;
else this process does. Training is dealt longest first: a worker takes the next number from a pipe
that all of them read, which needs no lock that a killed worker could keep. A worker that dies takes
the pool with it: it is made anew and the clients without an update are run again. Since each client
draws from its own key, the result is the same to the bit.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import struct
import sys
import time
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import multiprocessing as mp

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.threads import one_library_thread
from coterie.core.work import Describe, Evaluate, SelectGroup, Train
from coterie.data.population import Population
from coterie.engines.serial import ClientError, failure
from coterie.engines.simulation import SimulationEngine
from coterie.errors import CoterieError
from coterie.local import LocalRunner
from coterie.local.runner import Moves

_TOKEN = struct.Struct("i")
_MOST_TASKS = 8192
_MODELS = 8  # that there is room for from the start: a round scores more of them than it trains
_MOST_BYTES = 2**29
_END = -1


def start_method() -> str:
    """``fork`` where it is safe: on Linux with no accelerator, whose runtime does not survive it.
    Else ``spawn``."""
    if sys.platform == "linux" and not torch.accelerator.is_available():
        return "fork"
    return "spawn"


class PoolEngine(SimulationEngine):
    """A pool of worker processes around a ``LocalRunner``.

    Args:
        runner: the population, the module and the solver.
        workers: processes; default one per core.
        round_timeout: seconds after which clients without an update are left out, ``None``: wait
            for all.
        retries: how often a client is run again after its worker died.
        start: how worker processes start, ``fork`` or ``spawn``; default what is safe here.

    With ``spawn``, a script needs the usual ``if __name__ == "__main__":`` guard and an importable
    module.
    """

    def __init__(
        self,
        runner: LocalRunner,
        workers: int | None = None,
        round_timeout: float | None = None,
        retries: int = 3,
        start: str | None = None,
    ) -> None:
        super().__init__(runner)
        self.workers = (
            workers or len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else workers or 2
        )
        self.round_timeout = round_timeout
        self.retries = retries
        self.context: Any = mp.get_context(start or start_method())
        self.rows = self.tasks = 0
        self.processes: list[Any] = []
        self.moves: list[Moves] = []

    def set_population(self, population: Population) -> None:
        if population.x is not self.runner.population.x:  # other samples are no moves of them
            self.close()
        moves = self.runner.set_population(population)
        if self.processes and (moves.train or moves.test or len(moves.rows)):
            self.moves.append(moves)

    def answer(
        self,
        work: Evaluate | Describe | SelectGroup,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        if not isinstance(work, Evaluate) or not self.runner.alone:
            return super().answer(work, ids, models, which, key)
        replies: list[Reply] = []
        for at in range(0, len(ids), _MOST_TASKS):
            block = slice(at, at + _MOST_TASKS)
            replies += self._scores(work, ids[block], models, which[block], key)
        return replies

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        most = max(1, min(_MOST_TASKS, _MOST_BYTES // (4 * models.shape[1])))
        used, rows = np.unique(which, return_inverse=True)
        models = models[torch.from_numpy(used)]
        return [
            self._block(work, ids[at : at + most], models, rows[at : at + most], key)
            for at in range(0, len(ids), most)
        ]

    def _scores(
        self, work: Evaluate, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Scores by the workers, a client's always by the same one; by this process if one died or
        failed, or was late with samples that it makes."""
        used, rows = np.unique(which, return_inverse=True)
        if self.processes and 4 * models.shape[1] * len(used) <= _MOST_BYTES:
            self._ensure(len(used), 0)
            self.starts[: len(used)] = models.numpy()[used]
            rows = rows.reshape(which.shape)
            parts = [np.flatnonzero(ids % self.workers == worker) for worker in range(self.workers)]
            limit = (
                self.round_timeout if self.runner.population.lazy else None
            )  # code that makes samples may hang
            end = None if limit is None else time.monotonic() + limit
            replies = self._ask(
                [(work, key, ids[mine], rows[mine], self.moves) for mine in parts], end
            )
            self.moves = []
            if replies is not None and all(reply is not None for reply in replies):
                return [reply for reply in replies if len(reply.ids)]
            self.close()
        return [self.runner.answer(work, ids, models, which, key)]

    def _block(self, work: Train, ids: IntArray, models: Tensor, rows: IntArray, key: Key) -> Reply:
        """Train some clients, over as many pools as it takes."""
        end = None if self.round_timeout is None else time.monotonic() + self.round_timeout
        parts: list[tuple[IntArray, NDArray[np.float32], NDArray[np.float64]]] = []
        left = np.arange(len(ids))
        for _ in range(self.retries + 1):
            self._ensure(len(models), len(left))
            self.starts[: len(models)] = models.numpy()
            longest_first = np.argsort(-self.runner.steps(work, ids[left]), kind="stable")
            alive = self._deal(
                (work, key, ids[left], rows[left], self.moves), longest_first.tolist(), end
            )
            self.moves = []
            came = np.flatnonzero(self.done[: len(left)])
            parts.append((ids[left[came]], self.deltas[came], self.meta[came]))
            if alive:
                assert len(came) == len(left), "a worker ended its job and left a client out"
                break
            self.close()
            left = np.delete(left, came)
            if not len(left) or (end is not None and time.monotonic() > end):
                break
        else:
            raise CoterieError(
                f"engine: worker processes died {self.retries + 1} times in round {key.round} at client {ids[left[0]]}"
            )
        home, delta, meta = (
            parts[0]
            if len(parts) == 1
            else [np.concatenate(each) for each in zip(*parts, strict=True)]
        )
        return Reply(
            key.round,
            home,
            {"delta": work.uploaded(delta), "size": meta[:, 0], "loss": meta[:, 1]},
            key.purpose,
        )

    def _deal(self, job: tuple[Any, ...], tasks: list[int], end: float | None) -> bool:
        """Hand out tasks by their numbers and wait; ``False`` if a worker died or the time is
        over."""
        self.done[: len(tasks)] = 0
        numbers = [*tasks, *[_END] * self.workers]
        os.write(self.tokens.fileno(), struct.pack(f"{len(numbers)}i", *numbers))
        failed = self._ask([job] * self.workers, end)
        for line, trace in filter(None, failed or ()):
            self.close()
            raise ClientError(line) from RuntimeError(trace)
        return failed is not None

    def _ask(self, jobs: list[tuple[Any, ...]], end: float | None) -> list[Any] | None:
        """A job for each worker, and what they answer; ``None`` if a worker died or the time is
        over."""
        try:
            for pipe, job in zip(self.pipes, jobs, strict=True):
                pipe.send(job)
        except OSError:
            return None
        waiting = dict(zip(self.pipes, range(self.workers), strict=True))
        answers: list[Any] = [None] * self.workers
        while waiting:
            left = None if end is None else max(0.0, end - time.monotonic())
            sentinels = [p.sentinel for p in self.processes]
            ready = wait([*waiting, *sentinels], left)
            if not ready:
                return None
            for pipe in [p for p in ready if p in waiting]:
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    return None
                answers[waiting.pop(pipe)] = answer
                if isinstance(answer, tuple):  # a client failed, and nobody waits for the others
                    return answers
            if waiting and any(s in ready for s in sentinels):
                return None
        return answers

    def _ensure(self, rows: int, tasks: int) -> None:
        """A running pool whose shared memory holds this many models and tasks."""
        if self.processes and rows <= self.rows and tasks <= self.tasks:
            return
        self.close()
        self.moves = []
        self.rows = max(rows, self.rows, _MODELS)
        self.tasks = max(tasks, self.tasks)
        d = self.runner.layout.d
        fork = self.context.get_start_method() == "fork"
        shared = [
            _shared((self.rows, d), torch.float32, fork),
            _shared((self.tasks, d), torch.float32, fork),
            _shared((self.tasks, 2), torch.float64, fork),
            _shared((self.tasks,), torch.uint8, fork),
        ]
        self.starts, self.deltas, self.meta, self.done = (tensor.numpy() for tensor in shared)
        taken, self.tokens = self.context.Pipe(duplex=False)
        self.pipes: list[Connection] = []
        runner = LocalRunner(
            self.runner.population, self.runner.module, self.runner.solver, self.runner.decay
        )
        for _ in range(self.workers):
            ours, theirs = self.context.Pipe()
            inherited = [*self.pipes, ours, self.tokens] if fork else []
            process = self.context.Process(
                target=_work, args=(runner, taken, theirs, shared, inherited), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        taken.close()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        if self.processes:
            for pipe in [*self.pipes, self.tokens]:
                pipe.close()
        self.processes = []


def _shared(shape: tuple[int, ...], dtype: torch.dtype, fork: bool) -> Tensor:
    """Zeros that worker processes see: anonymous memory that a fork inherits, or torch's shared
    memory."""
    if not fork:
        return torch.zeros(shape, dtype=dtype).share_memory_()
    count = math.prod(shape)
    memory = mmap.mmap(-1, max(1, count * dtype.itemsize))
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def _work(
    runner: LocalRunner,
    tokens: Connection,
    pipe: Connection,
    shared: list[Tensor],
    inherited: list[Connection],
) -> None:
    """A worker's life: wait for a job, take tasks until an end mark, say so; it ends with its
    parent."""
    for theirs in inherited:  # else nobody would ever find the parent's ends closed
        theirs.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    starts, deltas, meta, done = shared
    parent = os.getppid()
    with one_library_thread():
        while True:
            while not pipe.poll(1.0):
                if os.getppid() != parent:
                    return
            try:
                job = pipe.recv()
                if isinstance(job[0], Train):
                    pipe.send(_take(runner, tokens.fileno(), job, starts, deltas, meta, done))
                else:
                    pipe.send(_score(runner, job, starts))
            except (EOFError, OSError):
                return


def _score(
    runner: LocalRunner, job: tuple[Evaluate, Key, IntArray, IntArray, list[Moves]], models: Tensor
) -> Reply | None:
    work, key, ids, which, moves = job
    try:
        for change in moves:
            runner.move(change)
        return runner.answer(work, ids, models, which, key)
    except Exception:  # noqa: BLE001 - the main process scores then, and raises it
        return None


def _take(
    runner: LocalRunner,
    tokens: int,
    job: tuple[Train, Key, IntArray, IntArray, list[Moves]],
    starts: Tensor,
    deltas: Tensor,
    meta: Tensor,
    done: Tensor,
) -> tuple[str, str] | None:
    work, key, ids, rows, moves = job
    for change in moves:
        runner.move(change)
    while (task := _TOKEN.unpack(os.read(tokens, _TOKEN.size))[0]) != _END:
        try:
            result = runner.train(work, int(ids[task]), starts[int(rows[task])], deltas[task], key)
        except Exception as error:  # noqa: BLE001 - whatever the user's module raised is told in the main process
            return failure(int(ids[task]), key, error), traceback.format_exc()
        meta[task, 0], meta[task, 1] = result.size, result.loss
        done[task] = 1
    return None

"""One worker process per core, each on one thread by default: the default engine on a CPU.

Workers hold the pooled data and share memory with this process for start vectors and updates, so
training moves no array through a pipe. Clients are trained longest first: each worker takes the
next client's number from a pipe that all of them read.

Workers score models, too. Compiled code gives a sample the same bits whatever is scored with it,
so a client is always scored by the same worker, which keeps its samples. Where the network itself
scores, workers take batches that this process alone would score, and this one adds up what they
found.

If a worker dies, or a signal stops it for a minute, all are ended and started again, and the
clients without an update are trained again. Each client draws from its own key, so the result is
the same to the bit.

Made by `coterie.engines.registry` for ``engine.name = "pool"``. What a worker does is in
`coterie.engines.pool.worker`, and its processes are in `coterie.engines.pool.processes`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core import Deliver, Describe, IntArray, Key, Reply, Score, SelectGroup, Train
from coterie.core.process import cores, one_torch_thread
from coterie.data.population import Population
from coterie.engines.pool.processes import WorkerPool, start_method
from coterie.engines.pool.worker import PartJob, PoolJob
from coterie.engines.simulation import SimulationEngine
from coterie.errors import ConfigError, CoterieError
from coterie.local import LocalRunner
from coterie.local.moves import Moves
from coterie.local.scoring.network import Scored, joined_parts
from coterie.local.scoring.samples import PerSample
from coterie.terminal import counted

_MOST_TASKS = 8192  # clients of a block, so that their numbers fit the pipe of tasks
_MOST_BYTES = 2**29  # of the updates of a block, and of the models that are scored at once


class PoolEngine(SimulationEngine):
    """A pool of worker processes around a ``LocalRunner``.

    With ``spawn``, which several threads need, a script needs an importable module and the usual
    guard ``if __name__ == "__main__":``. Only a fork can map samples on disk.

    Args:
        round_timeout: seconds after which clients without an update are left out, ``None``: wait
            for all.
        retries: how often a client is run again after its worker died.
        start: how worker processes start, ``fork`` or ``spawn``; default what is safe here.
    """

    def __init__(
        self,
        runner: LocalRunner,
        workers: int | None = None,
        round_timeout: float | None = None,
        retries: int = 3,
        start: str | None = None,
        threads: int = 1,
    ) -> None:
        super().__init__(runner, round_timeout, threads)
        start = start or start_method(threads)
        if start == "fork" and threads > 1:
            # It would wait for ever for the threads of its parent, which it does not have.
            raise ValueError(f"start: a fork trains on one thread, got {threads}; expected 'spawn'")
        if start != "fork" and runner.population.on_disk:
            where = f"with {threads} threads" if threads > 1 else "on this machine"
            what = f"{where} the pool does not fork, so its processes cannot share samples on disk"
            expected = "'serial', 'vmap' or 'ray'"
            raise ConfigError("does-not-fit", "engine.name", what, got="pool", allowed=expected)
        self.retries = retries
        self.helpers = self._scored_by_workers
        workers = workers or max(1, cores() // threads)
        self.pool = WorkerPool(workers, start, threads)
        self._moves: list[Moves] = []
        # Which worker scores each client, int64 ``[N]``, by test samples when the workers started.
        self._scored_by = np.empty(0, np.int64)

    @property
    def processes(self) -> list[Any]:
        return self.pool.processes

    def set_population(self, population: Population) -> None:
        # Workers get the samples that changed hands. Other samples altogether need new workers.
        if population.x is not self.runner.population.x:
            self.close()
        moves = self.runner.set_population(population)
        # Workers that start later begin with the population as it is then.
        if self.pool.running and (moves.train or moves.test or len(moves.rows)):
            self._moves.append(moves)

    # --- scoring ----------------------------------------------------------------------------------

    def answer(
        self,
        work: Score | Describe | SelectGroup | Deliver,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        by_client = self.runner.batch_invariant
        if not isinstance(work, Score) or work.shares is not None or not by_client:
            return super().answer(work, ids, models, which, key)
        replies: list[Reply] = []
        for at in range(0, len(ids), _MOST_TASKS):
            block = slice(at, at + _MOST_TASKS)
            replies += self._scores(work, ids[block], models, which[block], key)
        return replies

    def _scores(
        self, work: Score, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Scores by the workers, a client's always by the same one; by this process if there are no
        workers, or one died, failed or was late."""
        used, rows = np.unique(which, return_inverse=True)
        # Never started for scores alone: before the first training they would cost their start.
        d = models.shape[1]
        if self.pool.running and 4 * d * len(used) <= _MOST_BYTES:
            self._ensure(len(used), 0, d)
            self.pool.starts[: len(used), :d] = models.numpy()[used]
            replies = self._ask_for_scores(work, ids, rows.reshape(which.shape), key)
            if replies is not None:
                return [reply for reply in replies if len(reply.ids)]
            self.close()
        return [self.runner.answer(work, ids, models, which, key)]

    def _ask_for_scores(
        self, work: Score, ids: IntArray, rows: IntArray, key: Key
    ) -> list[Reply] | None:
        """A reply from each worker; ``None`` unless all of them came."""
        # Code that makes samples client by client is the user's, and may hang.
        end = None
        if self.runner.population.lazy:
            end = self.deadline()
        jobs = []
        for worker in range(self.pool.workers):
            # Always the same ones: the worker that scored a client before still has its samples.
            mine = np.flatnonzero(self._scored_by[ids] == worker)
            width = self.runner.layout.d
            jobs.append(PoolJob(work, key, ids[mine], rows[mine], width, self._moves))
        replies = self.pool.ask(jobs, end)
        # A worker that did not take these moves over is ended by the caller, and a new one begins
        # with the population as it is then. So they are never sent again.
        self._moves = []
        if replies is None or any(reply is None for reply in replies):
            return None
        return replies

    def _scored_by_workers(
        self, passes: Sequence[Scored], work: Score
    ) -> list[dict[str, PerSample]] | None:
        """What each sample adds to each sum, found by the workers; see
        ``coterie.local.scoring.network.Helpers``."""
        width = self.runner.layout.d
        # Each worker would make samples again that are made when they are asked for.
        if self.runner.population.lazy or not self.pool.running:
            return None
        if 4 * width * len(passes) > _MOST_BYTES:
            return None
        self._ensure(len(passes), 0, width)
        for row, one in enumerate(passes):
            self.pool.starts[row, :width] = one.vector.numpy()
        clients = [one.ids for one in passes]
        workers = self.pool.workers
        jobs = [
            PartJob(work, clients, number, workers, width, self._moves) for number in range(workers)
        ]
        answers = self.pool.ask(jobs, None)
        self._moves = []
        if answers is None or any(answer is None for answer in answers):
            self.close()
            return None
        return [joined_parts(parts) for parts in zip(*answers, strict=True)]

    # --- training ---------------------------------------------------------------------------------

    @one_torch_thread()
    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        most = max(1, min(_MOST_TASKS, _MOST_BYTES // (4 * models.shape[1])))
        # Workers are given only the models that are used, so that shared memory stays small.
        used, rows = np.unique(which, return_inverse=True)
        models = models[torch.from_numpy(used)]
        replies = []
        for at in range(0, len(ids), most):
            block = slice(at, at + most)
            replies.append(self._train_block(work, ids[block], models, rows[block], key))
        return replies

    def _train_block(
        self, work: Train, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> Reply:
        """Train some clients, over as many pools as it takes."""
        arrived = Arrived()
        left = np.arange(len(ids))
        width = models.shape[1]
        # Before the deadline is set: the start of processes is no part of a round's time.
        self._ensure(len(models), len(left), width)
        end = self.deadline()
        for _ in range(self.retries + 1):
            self.pool.starts[: len(models), :width] = models.numpy()
            # The longest first: a long training begun last would keep one core busy alone.
            longest_first = np.argsort(-self.runner.steps(work, ids[left]), kind="stable")
            job = PoolJob(work, key, ids[left], rows[left], width, self._moves)
            alive = self.pool.train(job, longest_first.tolist(), end)
            self._moves = []
            # Updates that were written before a worker died are good: nothing is trained twice.
            done = np.flatnonzero(self.pool.done[: len(left)])
            deltas = self.pool.deltas[done, :width]
            arrived.add(ids[left[done]], deltas, self.pool.sizes_and_losses[done])
            if alive:
                assert len(done) == len(left), "a worker ended its job and left a client out"
                return arrived.reply(work, key)
            self.close()
            left = np.delete(left, done)
            # A worker may die behind its last client, when nothing is left to do again.
            if not len(left) or (end is not None and time.monotonic() > end):
                return arrived.reply(work, key)
            self._ensure(len(models), len(left), width)
        what = (
            f"worker processes died {counted(self.retries + 1, 'time')} in round {key.round} at client "
            f"{ids[left[0]]}; the last one {self.pool.last_end}"
        )
        raise CoterieError("failed", "engine", what)

    def _ensure(self, models: int, tasks: int, width: int) -> None:
        """Running workers with room for so many models of so many values, and for so many tasks."""
        if not self.pool.fits(models, tasks, width):
            sizes = self.runner.population.sizes("test")
            self._scored_by = shared_out(sizes, self.pool.workers)
            self.pool.start(self.runner, models, tasks, width)
            self._moves = []  # new workers have the population as it is now

    def close(self) -> None:
        self.pool.close()


def shared_out(sizes: IntArray, workers: int) -> IntArray:
    """The worker of each client, int64 ``[N]``, so that each worker has about as many samples."""
    # The largest clients in turn, there and back: who gets the larger one of a pair gets the smaller one
    # of the next.
    largest_first = np.argsort(-sizes, kind="stable")
    there = np.arange(workers)
    there_and_back = np.concatenate([there, there[::-1]])
    worker = np.empty(len(sizes), np.int64)
    worker[largest_first] = np.resize(there_and_back, len(sizes))
    return worker


@dataclass
class Arrived:
    """What came from the pools of a block, one after another."""

    ids: list[IntArray] = field(default_factory=list)
    deltas: list[NDArray[np.float32]] = field(default_factory=list)
    sizes_and_losses: list[NDArray[np.float64]] = field(default_factory=list)

    def add(
        self, ids: IntArray, deltas: NDArray[np.float32], sizes_and_losses: NDArray[np.float64]
    ) -> None:
        """What one pool did. The arrays are kept: copies, not views of shared memory."""
        self.ids.append(ids)
        self.deltas.append(deltas)
        self.sizes_and_losses.append(sizes_and_losses)

    def reply(self, work: Train, key: Key) -> Reply:
        delta = _joined(self.deltas)
        size, loss = _joined(self.sizes_and_losses).T
        fields = {"delta": work.uploaded(delta), "size": size, "loss": loss}
        return Reply(key.round, _joined(self.ids), fields, key.purpose)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts one after another; one part as it is, without a copy of all updates."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts)

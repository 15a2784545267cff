"""A worker process of the pool: what it is sent, and what it does until its parent ends."""

from __future__ import annotations

import gc
import os
import signal
import struct
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from coterie.core import IntArray, Key, Reply, Score, Train
from coterie.core.process import allowed_cores, keep_freed_memory, one_library_thread, threads
from coterie.engines.pool.sharing import Shared, unpack_arguments
from coterie.engines.simulation import failure_line
from coterie.local import LocalRunner
from coterie.local.moves import Moves
from coterie.local.scoring.network import Scored, part_of
from coterie.local.scoring.samples import PerSample

TASK = struct.Struct("i")  # how a task's number is written into the pipe of tasks
END = -1  # the number that ends a worker's job


@dataclass(frozen=True, slots=True)
class PoolJob:
    """What workers are to do; each gets one. Of a training each takes the next task that is left;
    scoring is of clients that are this worker's alone. ``moves``: since the worker's last job."""

    work: Train | Score
    key: Key
    ids: IntArray
    rows: IntArray
    width: int
    moves: Sequence[Moves]


@dataclass(frozen=True, slots=True)
class PartJob:
    """A part of what the network is to score, for a worker: the clients, int64 ``[n]`` each, that
    are scored on the first of the shared models, the second, ..."""

    work: Score
    clients: Sequence[IntArray]
    number: int
    parts: int
    width: int
    moves: Sequence[Moves]


@dataclass(frozen=True, slots=True)
class Failure:
    """A client's own code raised in a worker."""

    line: str
    trace: str


@dataclass(frozen=True, slots=True)
class WorkerEquipment:
    """What a worker needs for all its jobs. One client trains on ``threads`` threads; scores take
    one."""

    runner: LocalRunner
    shared: Shared
    threads: int


def work_until_the_end(
    equipment: WorkerEquipment | None,
    tensors: list[Tensor],
    tasks: Connection,
    pipe: Connection,
    inherited: Sequence[Connection],
) -> None:
    """A worker's life: wait for a job, do it, answer; it ends with its parent.

    Args:
        equipment: what a forked worker needs; ``None``: it comes through the pipe.
        tensors: the large ones of what comes through the pipe.
        tasks: shared memory from which all workers read the numbers of tasks.
        inherited: ends of pipes that a fork copied into this process. They are closed, since no
            reader sees that a pipe was closed while any process holds an end open.
    """
    for end in inherited:
        end.close()
    # An interrupt from the terminal goes to all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A fork inherits the parent's handler, which is about a run that only the parent can save.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    keep_freed_memory()
    # What was imported, or copied by the fork, stays: no search for garbage looks through it again,
    # and none writes into memory that the fork shares with its parent.
    gc.freeze()
    if equipment is None:
        try:
            packed = pipe.recv_bytes()
        except (EOFError, OSError):  # the parent has ended
            return
        unpacked = unpack_arguments(packed, tensors)
        assert isinstance(unpacked, WorkerEquipment)
        # What came through a pipe lies in memory that all workers share, and each writes the models
        # that it scores into a network of its own. A fork has a copy of the network.
        equipment = replace(unpacked, runner=unpacked.runner.copy())
    # Before it says that it listens: the start of processes is no part of a round's time.
    equipment.runner.load_kernels()
    with one_library_thread(), suppress(EOFError, OSError):
        _do_jobs(equipment, os.getppid(), tasks, pipe)


def _do_jobs(equipment: WorkerEquipment, parent: int, tasks: Connection, pipe: Connection) -> None:
    """Do jobs until the process ``parent`` ends.

    Raises:
        EOFError, OSError: the parent closed the pipe.
    """
    runner = equipment.runner
    shared = equipment.shared
    anywhere = allowed_cores()
    # The first word says that it listens.
    pipe.send(None)
    while True:
        # Looked up every second: a parent that was killed may leave no trace in the pipe, as long
        # as any process that it started holds the pipe's other end.
        while not pipe.poll(1.0):
            if os.getppid() != parent:
                return
        # First, so that threads which a job brings are bound to no core.
        # This process was to begin on one core (`WorkerPool.ask`).
        if anywhere:
            with suppress(OSError):
                os.sched_setaffinity(0, anywhere)
        job: PoolJob | PartJob = pipe.recv()
        if isinstance(job, PartJob):
            pipe.send(_score_part(runner, job, shared))
        elif isinstance(job.work, Train):
            with threads(equipment.threads):
                found = _train(runner, job, job.work, tasks, shared)
            pipe.send(found)
        else:
            pipe.send(_score(runner, job, job.work, shared))


def _score(runner: LocalRunner, job: PoolJob, work: Score, shared: Shared) -> Reply | None:
    """The scores of this worker's clients; ``None`` if that failed."""
    try:
        for moves in job.moves:
            runner.move(moves)
        models = shared.starts[:, : job.width]
        return runner.answer(work, job.ids, models, job.rows, job.key)
    except Exception:  # noqa: BLE001 - the main process scores then, and raises it
        return None


def _score_part(
    runner: LocalRunner, job: PartJob, shared: Shared
) -> list[dict[str, PerSample]] | None:
    """What the samples of a part add to each sum, model by model; ``None`` if that failed."""
    try:
        for moves in job.moves:
            runner.move(moves)
        passes = [
            Scored(shared.starts[row, : job.width], ids) for row, ids in enumerate(job.clients)
        ]
        scorer = runner.scorer
        samples = [scorer.rows.numbers(one.ids, job.work.split) for one in passes]
        mine = part_of(samples, scorer.network.chunk, job.number, job.parts)
        return [
            scorer.network.per_sample(one.vector, rows, job.work)
            for one, rows in zip(passes, mine, strict=True)
        ]
    except Exception:  # noqa: BLE001 - the main process scores then, and raises it
        return None


def _train(
    runner: LocalRunner, job: PoolJob, work: Train, tasks: Connection, shared: Shared
) -> Failure | None:
    """Take tasks until an end mark; ``None`` when all went well."""
    for moves in job.moves:
        runner.move(moves)
    while True:
        # Reads of a few bytes from a pipe are whole: each number goes to one worker, without a lock
        # that a killed worker would keep.
        (task,) = TASK.unpack(os.read(tasks.fileno(), TASK.size))
        if task == END:
            return None
        client = int(job.ids[task])
        start = shared.starts[int(job.rows[task]), : job.width]
        out = shared.deltas[task, : job.width]
        try:
            trained = runner.train(work, client, start, out, job.key)
        except Exception as error:  # noqa: BLE001 - the user's module may raise anything
            return Failure(failure_line(client, job.key, error), traceback.format_exc())
        shared.sizes_and_losses[task, 0] = trained.size
        shared.sizes_and_losses[task, 1] = trained.loss
        shared.done[task] = 1

"""Many clients at once on one device: clients sorted by steps, cut into blocks that fit its memory.

Networks with running statistics, which no block can train, train one client after another on the same device
(`StreamedClients`). Methods whose clients have models of their own, or train in phases or on
weighted samples, train on the CPU.

It is for a GPU, and runs on a CPU, too. A client's random draws come from its own key, so the
updates of blocks do not depend on how they were cut but for rounding, and equal those of ``serial``
to 1e-4 in float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import torch
from torch import Tensor
from torch.random import fork_rng

from coterie.core import Describe, IntArray, Key, Objective, Reply
from coterie.core.process import one_torch_thread, threads
from coterie.core.work import Deliver, Score, SelectGroup, Train
from coterie.engines.blocks import Cohort, make_blocks
from coterie.engines.simulation import (
    ClientError,
    CohortUpdates,
    SerialEngine,
    SimulationEngine,
    failure_line,
)
from coterie.local import LocalRunner
from coterie.local.device import Device, Precision, find_device
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.client import train_client
from coterie.local.training.probe import draws
from coterie.local.training.trainers import Trainers

STREAMS = 4  # on a GPU; a guess, as none was at hand


class VmapEngine(SimulationEngine):
    """Trains blocks of clients with one gradient call a step, and scores models on the same device.
    Its options are those of `coterie.engines.registry.vmap`."""

    def __init__(
        self,
        runner: LocalRunner,
        round_timeout: float | None = None,
        device: str = "auto",
        precision: Precision = "float32",
        graphs: bool = False,
        memory: float | None = None,
        streams: int | None = None,
    ) -> None:
        self.device = Device(find_device(device), precision, graphs)
        network = (runner.module, runner.solver, runner.decay)
        self.blocks = make_blocks(*network, self.device, memory)
        # A runner's device is fixed when it is made, and the given one scores on the CPU.
        if self.device.name != "cpu":
            runner = runner.copy(self.device.name)
        super().__init__(runner, round_timeout)
        self.streamed = StreamedClients(runner, self.device, streams)

    def answer(
        self,
        work: Score | Describe | SelectGroup | Deliver,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        # cuDNN takes TF32 by default, also when only scoring.
        with self.device.arithmetic():
            return super().answer(work, ids, models, which, key)

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        if work.one_by_one:
            return SerialEngine(self.runner, self.round_timeout).train(
                work, ids, models, which, key
            )
        end = self.deadline()
        if self.blocks is None:
            return [self.streamed.train(work, StreamRequest(ids, models, which, key), end)]
        population = self.runner.population

        def samples(place: int) -> TrainingSamples:
            rows = torch.from_numpy(population.train[ids[place]])
            x = population.x.index_select(0, rows)
            return TrainingSamples(x, population.y.index_select(0, rows))

        size = self.runner.sizes[ids]
        keys = [key.client(client) for client in ids.tolist()]
        delta, loss, done = self.blocks.train(work, Cohort(size, samples, models, which, keys), end)
        updates = CohortUpdates(delta, size.astype(np.float64), loss, done)
        return [updates.reply(work, ids, key)]

    def close(self) -> None:
        # Trainers hold the device's memory for as long as somebody holds them.
        self.streamed.clear()
        if self.blocks is not None:
            self.blocks.trainers.clear()


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """Who trains from which model; see ``coterie.core.engine.Engine.run``."""

    ids: IntArray
    models: Tensor
    which: IntArray
    key: Key


class StreamedClients:
    """Trains each client of a network by itself, on a GPU several at a time. Each of these has a
    thread, a copy of the network, and a stream of the GPU.

    Args:
        streams: how many clients at a time; default 4 on a GPU, 1 on a CPU. A training that draws
            random numbers in its steps runs alone: two would draw from one stream.
    """

    def __init__(self, runner: LocalRunner, device: Device, streams: int | None = None) -> None:
        self.runner = runner
        self.device = device
        if streams is None:
            streams = 1 if device.name == "cpu" else STREAMS
        self.streams = streams
        self._lanes: list[_Lane] = []
        self._draws: dict[Objective, bool] = {}
        # A source that makes samples client by client, and keeps some, is for one thread at a time.
        self._gathering = Lock()

    def train(self, work: Train, request: StreamRequest, end: float | None) -> Reply:
        """Train clients until all are done; those that have not begun at ``end`` of the monotonic
        clock are left out."""
        lanes = self._lanes_for(work, request.ids)
        updates = CohortUpdates.room(len(request.ids), request.models.shape[1])
        places = _Places(len(request.ids), end)

        def train_some(lane: _Lane) -> None:
            with lane.entered(), one_torch_thread():
                for place in places:
                    try:
                        self._train_one(work, request, place, lane, updates)
                    except BaseException:
                        places.stop()
                        raise

        with threads(1), self.device.arithmetic():
            if len(lanes) == 1:
                train_some(lanes[0])
            else:
                self._train_beside(lanes, train_some, places)
        return updates.reply(work, request.ids, request.key)

    def _train_beside(
        self, lanes: list[_Lane], train_some: Callable[[_Lane], None], places: _Places
    ) -> None:
        # Each training puts torch's global stream back to what it was, and threads would put back
        # each other's.
        with fork_rng(self.device.gpus), ThreadPoolExecutor(len(lanes)) as threads:
            try:
                list(threads.map(train_some, lanes))
            except BaseException:
                # Also after a signal: the threads begin no other client.
                places.stop()
                raise

    def _train_one(
        self, work: Train, request: StreamRequest, place: int, lane: _Lane, updates: CohortUpdates
    ) -> None:
        client = int(request.ids[place])
        key = request.key.client(client)
        start = request.models[int(request.which[place])]
        out = updates.delta[place]
        try:
            with self._gathering:
                samples = self.runner.training_samples(client)
            trained = train_client(
                lane.trainers, work, self.runner.solver, samples, start, out, key
            )
        except torch.OutOfMemoryError as error:
            what = f"{len(self._lanes)} clients at a time do not fit {self.device.name} in round {key.round}"
            raise ClientError(
                "does-not-fit", "engine.streams", what, found=self.streams, allowed="fewer"
            ) from error
        except Exception as error:
            raise ClientError(failure_line(client, request.key, error)) from error
        updates.put(place, trained)

    def _lanes_for(self, work: Train, ids: IntArray) -> list[_Lane]:
        """One lane for each client that trains at a time."""
        streams = min(self.streams, len(ids))
        # Augmentation draws from torch's global stream, too.
        if streams > 1 and (self.runner.solver.augment or self._work_draws(work, ids)):
            streams = 1
        while len(self._lanes) < max(1, streams):
            self._lanes.append(_Lane.on(self.device, self.runner))
        return self._lanes[: max(1, streams)]

    def _work_draws(self, work: Train, ids: IntArray) -> bool:
        if work.objective not in self._draws:
            largest = int(ids[np.argmax(self.runner.sizes[ids])])
            samples = self.runner.training_samples(largest)
            if not len(samples.y):
                return True
            found = draws(self.runner.module, work.objective, samples.x, samples.y)
            self._draws[work.objective] = found
        return self._draws[work.objective]

    def clear(self) -> None:
        self._lanes = []


@dataclass(frozen=True, slots=True)
class _Lane:
    """Where one client trains at a time, with a stream of the GPU; ``None`` on a CPU."""

    trainers: Trainers
    stream: torch.cuda.Stream | None

    @classmethod
    def on(cls, device: Device, runner: LocalRunner) -> _Lane:
        stream = torch.cuda.Stream(device.name) if device.gpus else None
        return cls(Trainers(runner.module, runner.decay, device), stream)

    def entered(self) -> AbstractContextManager[object]:
        """Inside, this thread's work goes to the stream."""
        if self.stream is None:
            return nullcontext()
        return torch.cuda.stream(self.stream)


@dataclass(slots=True)
class _Places:
    """The numbers ``0..n-1``, each given to one thread, until ``end`` of the monotonic clock."""

    count: int
    end: float | None
    _next: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __iter__(self) -> Iterator[int]:
        while self.end is None or time.monotonic() <= self.end:
            with self._lock:
                place = self._next
                self._next += 1
            if place >= self.count:
                return
            yield place

    def stop(self) -> None:
        """Give no more numbers."""
        with self._lock:
            self._next = self.count

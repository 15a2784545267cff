"""Clients one after another on one device, on a GPU several at a time: each of its streams has a
client of its own.

For networks that `coterie.engines.blocks` cannot train as one, as those with running statistics, and
for trainings that move clients in different ways.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from threading import Lock

import numpy as np
import torch
from torch import Tensor
from torch.random import fork_rng

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.threads import one_thread, one_torch_thread
from coterie.core.work import Train
from coterie.engines.failures import ClientError, failure_line
from coterie.local import LocalRunner
from coterie.local.device import Device
from coterie.local.probe import draws
from coterie.local.trainers import Trainers

# On a GPU: a small network leaves most of it idle, and a large one leaves no room for more.
STREAMS = 4


class StreamedClients:
    """Trains each client by itself.

    Args:
        runner: the population, the module and the solver.
        device: where and how clients train.
        streams: how many clients at a time; default 4 on a GPU, 1 on a CPU. A network that draws
            random numbers trains one at a time, as its clients would draw from one stream.
    """

    def __init__(self, runner: LocalRunner, device: Device, streams: int | None = None) -> None:
        self.runner = runner
        self.device = device
        if streams is None:
            streams = 1 if device.name == "cpu" else STREAMS
        self.streams = streams
        self._trainers: list[Trainers] = []
        self._draws: bool | None = None

    def train(
        self,
        work: Train,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
        end: float | None,
    ) -> Reply:
        """Train clients until all are done, or the time is over; see
        ``coterie.engines.simulation.SimulationEngine.train``.

        Raises:
            ClientError: if a client's training fails.
        """
        found = _Updates(len(ids), models.shape[1])
        places = _Places(len(ids), end)

        def train_some(number: int) -> None:
            trainers = self._trainers[number]
            with self._stream(), one_torch_thread():
                for at in places:
                    client = int(ids[at])
                    samples = self.runner.training_samples(client)
                    start = models[int(which[at])]
                    out = found.delta[at]
                    solver = self.runner.solver
                    try:
                        trained = trainers.train(
                            work, solver, samples, start, out, key.client(client)
                        )
                    except Exception as error:
                        raise ClientError(failure_line(client, key, error)) from error
                    found.size[at] = trained.size
                    found.loss[at] = trained.loss
                    found.done[at] = True

        streams = self._streams_for(ids)
        # Each stream has a copy of the network.
        while len(self._trainers) < streams:
            new = Trainers(self.runner.module, self.runner.decay, self.device)
            self._trainers.append(new)
        with one_thread(), self.device.arithmetic():
            if streams == 1:
                train_some(0)
            else:
                # Each training puts torch's global stream back to what it was, and threads would
                # put back each other's.
                with fork_rng(self._devices), ThreadPoolExecutor(streams) as threads:
                    list(threads.map(train_some, range(streams)))
        return found.reply(work, ids, key)

    def _streams_for(self, ids: IntArray) -> int:
        """How many clients train at a time."""
        if self.streams == 1:
            return 1
        if self._draws is None:
            largest = int(ids[np.argmax(self.runner.sizes[ids])])
            self._draws = draws(self.runner.module, self.runner.training_samples(largest).x)
        if self._draws:
            return 1
        return max(1, min(self.streams, len(ids)))

    @property
    def _devices(self) -> list[int]:
        """The GPU that clients train on, if it is one."""
        if not self.device.name.startswith("cuda"):
            return []
        index = torch.device(self.device.name).index
        return [torch.cuda.current_device() if index is None else index]

    def _stream(self) -> AbstractContextManager[object]:
        """Inside, this thread's work goes to a stream of its own."""
        if not self.device.name.startswith("cuda"):
            return nullcontext()
        stream = torch.cuda.Stream(self.device.name)
        # What the stream reads was made on the default one.
        stream.wait_stream(torch.cuda.current_stream(self.device.name))
        context: AbstractContextManager[object] = torch.cuda.stream(stream)
        return context

    def clear(self) -> None:
        """Let go of the device's memory."""
        self._trainers = []


class _Updates:
    """Room for what clients send, by their places in the request."""

    def __init__(self, clients: int, width: int) -> None:
        self.delta = torch.empty(clients, width)
        self.size = np.zeros(clients)
        self.loss = np.zeros(clients)
        self.done = np.zeros(clients, bool)

    def reply(self, work: Train, ids: IntArray, key: Key) -> Reply:
        """What those sent who are done."""
        fields = {
            "delta": work.uploaded(self.delta.numpy()[self.done]),
            "size": self.size[self.done],
            "loss": self.loss[self.done],
        }
        return Reply(key.round, ids[self.done], fields, key.purpose)


class _Places:
    """The numbers ``0..n-1``, each given to one thread, until the time is over."""

    def __init__(self, count: int, end: float | None) -> None:
        self._left = iter(range(count))
        self._end = end
        self._lock = Lock()

    def __iter__(self) -> Iterator[int]:
        while self._end is None or time.monotonic() <= self._end:
            with self._lock:
                place = next(self._left, None)
            if place is None:
                return
            yield place

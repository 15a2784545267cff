"""What trains clients in a process elsewhere: it is sent everything it needs, and keeps nothing
that could change.

Which samples a client holds travels with the work. So any actor can train any client, and what one
was at when it was lost can be done again by another.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from coterie.core import IntArray, Key, Score, Solver, Task, Train
from coterie.core.process import keep_freed_memory, threads
from coterie.engines.blocks import Blocks, Cohort, make_blocks
from coterie.engines.simulation import ClientError, failure_line
from coterie.errors import CoterieError
from coterie.local.device import Device, find_device
from coterie.local.scoring.network import NetworkScorer
from coterie.local.scoring.samples import ClientSamples, PerSample
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.client import train_client
from coterie.local.training.trainers import Trainers

Each = Literal["serial", "vmap"]
Load = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class ActorJob:
    """A call: who trains what, on which samples.

    Args:
        places: for each client, its shard and rows there, or its rows in the actor's own samples.
        pieces: number of values, besides the first, that return the updates; 0: all in the first.
    """

    work: Train
    keys: tuple[Key, ...]
    which: IntArray
    labels: tuple[IntArray, ...]
    places: tuple[tuple[Any, Any], ...]
    fresh: tuple[Any, ...] = ()
    stale: tuple[Any, ...] = ()
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """A call to score the samples ``rows`` under the models ``which``, both rows of what is
    sent."""

    work: Score
    which: tuple[int, ...]
    rows: tuple[IntArray, ...]


@dataclass(frozen=True, slots=True)
class ActorOptions:
    """How actors train. Samples are read on the actor's node by ``load``, or sent in shards.
    ``device`` is that of ``vmap``, ``auto``: the GPU that Ray gives it. An actor asks for as many
    cores as threads."""

    each: Each = "serial"
    load: Load | None = None
    device: Device = Device("auto")
    memory: float | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Equipment:
    """What an actor is made of; sent once."""

    module: nn.Module
    solver: Solver
    decay: tuple[str, ...]
    task: Task
    options: ActorOptions = ActorOptions()


def samples_fingerprint(x: Tensor) -> str:
    """The shape and a hash of samples, which show whether a node reads the same ones.

    Example:
        >>> samples_fingerprint(torch.zeros(2, 3)) == samples_fingerprint(torch.zeros(3, 2))
        False
    """
    values = x.contiguous().numpy()
    return f"{values.dtype}{values.shape} {blake2b(values.tobytes(), digest_size=8).hexdigest()}"


class Actor:
    """Trains clients on one core or GPU. It is equipped before it is called."""

    equipment: Equipment
    device: Device
    trainers: Trainers
    on_device: Trainers
    scorer: NetworkScorer | None
    shards: dict[Any, NDArray[Any]]
    blocks: Blocks | None
    x: Tensor | None

    def extend_path(self, path: Sequence[str]) -> None:
        """Search for modules where the run finds its own, as far as this node has these folders,
        too."""
        sys.path += [folder for folder in path if folder not in sys.path and os.path.isdir(folder)]

    def equip(self, equipment: Equipment, names: Sequence[Any] = (), *shards: NDArray[Any]) -> str:
        """Take up the equipment, and shards of samples by their names; says what its own samples
        are."""
        # One thread, as in the other engines: with more, sums have other bits. Only `train` uses as
        # many as the run says.
        torch.set_num_threads(1)
        threadpool_limits(1)
        keep_freed_memory()
        self.equipment = equipment
        self.shards = dict(zip(names, shards, strict=True))
        self.blocks = None
        where = Device()
        if equipment.options.each == "vmap":
            device = equipment.options.device
            # Found here and not by the main process: `auto` means what the actor's own node has.
            where = Device(find_device(device.name), device.precision, device.graphs)
            network = (equipment.module, equipment.solver, equipment.decay)
            self.blocks = make_blocks(*network, where, equipment.options.memory)
        self.device = where
        # Of networks that train client by client on the device, and of what trains on the CPU.
        self.on_device = Trainers(equipment.module, equipment.decay, where)
        self.trainers = Trainers(equipment.module, equipment.decay)
        self.scorer = None
        self.x = None
        if equipment.options.load is None:
            return ""
        self.x = equipment.options.load()
        return samples_fingerprint(self.x)

    def call(self, job: ActorJob, models: NDArray[np.float32], *shards: NDArray[Any]) -> Any:
        """What ``train`` gives, with the updates in pieces where the job asks for them: small
        values travel faster."""
        found = self.train(job, models, *shards)
        if not job.pieces:
            return found
        # As many values as Ray was promised, with nothing in them.
        if isinstance(found[0], Exception):
            return found, *[None] * job.pieces
        return (None, *found[1:]), *np.array_split(found[0].ravel(), job.pieces)

    def train(self, job: ActorJob, models: NDArray[np.float32], *shards: NDArray[Any]) -> Any:
        """Updates, sizes and losses of the clients of a job, and the seconds spent; or what failed,
        and where."""
        begun = time.perf_counter()
        # First out, then in, so that memory never holds both.
        for name in job.stale:
            del self.shards[name]
        self.shards.update(zip(job.fresh, shards, strict=True))
        starts = torch.from_numpy(models[job.which])
        # Whom an error names; `_train_each` moves it on from client to client.
        self.at = job.keys[0].id
        try:
            with threads(self.equipment.options.threads):
                delta, size, loss = self._trained(job, starts)
            return delta, size, loss, time.perf_counter() - begun
        # Returned and not raised: an exception travels without its traceback, which a user of a
        # cluster needs, so it comes along as text.
        except CoterieError as error:
            return error, ""
        except Exception as error:  # noqa: BLE001 - the user's module may raise anything
            return ClientError(failure_line(self.at, job.keys[0], error)), traceback.format_exc()

    def score(
        self, job: ScoreJob, models: NDArray[np.float32], x: NDArray[Any], y: NDArray[Any]
    ) -> list[dict[str, PerSample]] | None:
        """What each sample adds to each sum, model by model; ``None`` if that failed."""
        found = []
        try:
            if self.scorer is None:
                # On the CPU, as the main process scores, so that it finds the same bits.
                self.scorer = NetworkScorer(self.equipment.module, self.equipment.task, "cpu")
            for number, rows in zip(job.which, job.rows, strict=True):
                # Copies: what Ray hands over is read-only, and torch wants to write.
                samples = ClientSamples(
                    torch.from_numpy(x[rows]),
                    torch.from_numpy(y[rows]),
                    np.arange(len(rows)),
                    bounds=np.empty(0, np.int64),
                    spread=None,
                    gathered=True,
                )
                model = torch.tensor(models[number])
                found.append(self.scorer.per_sample(model, samples, job.work))
        except Exception:  # noqa: BLE001 - the main process scores then, and raises it
            return None
        return found

    def _trained(self, job: ActorJob, starts: Tensor) -> tuple[Any, ...]:
        if job.work.one_by_one:
            return self._train_each(job, self.trainers, starts)
        if self.blocks is not None:
            sizes = np.array([len(y) for y in job.labels])
            samples = partial(self._samples, job)
            cohort = Cohort(sizes, samples, starts, np.arange(len(sizes)), job.keys)
            delta, loss, _ = self.blocks.train(job.work, cohort)
            return delta.numpy(), sizes.astype(np.float64), loss
        with self.device.arithmetic():
            return self._train_each(job, self.on_device, starts)

    def _train_each(self, job: ActorJob, trainers: Trainers, starts: Tensor) -> tuple[Any, ...]:
        solver = self.equipment.solver
        delta = torch.empty_like(starts)
        size = np.empty(len(starts))
        loss = np.empty(len(starts))
        for at, key in enumerate(job.keys):
            self.at = key.id
            samples = self._samples(job, at)
            trained = train_client(trainers, job.work, solver, samples, starts[at], delta[at], key)
            size[at] = trained.size
            loss[at] = trained.loss
        return delta.numpy(), size, loss

    def _samples(self, job: ActorJob, at: int) -> TrainingSamples:
        """Inputs and labels of the client at a place of the job. Copies: what Ray hands over is
        read-only, and torch wants to write."""
        shard, rows = job.places[at]
        y = torch.from_numpy(np.array(job.labels[at]))
        if self.x is not None:
            return TrainingSamples(self.x[torch.from_numpy(np.array(rows))], y)
        return TrainingSamples(torch.from_numpy(np.array(self.shards[shard][rows])), y)

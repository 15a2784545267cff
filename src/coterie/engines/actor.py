"""What trains clients in a process elsewhere: it is told everything it needs, and keeps nothing
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

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.work import Train
from coterie.engines.blocks import Blocks, Cohort
from coterie.engines.serial import ClientError, failure
from coterie.errors import CoterieError
from coterie.local.device import Device, find_device
from coterie.local.runner import make_trainer
from coterie.local.sgd import Trainer

Each = Literal["serial", "vmap"]
Load = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Job:
    """A call: who trains what, on which samples.

    Args:
        work: what to do.
        keys: the clients' streams.
        which: int64 ``[n]``, the row of the models that each one gets.
        labels: of each client's samples.
        places: of each client its shard and its rows there, or the rows in the actor's own samples.
        fresh: names of the shards that come with the call, and are kept.
        stale: names of those to forget.
        pieces: in how many values the updates go back besides the first one, 0: as part of it.
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
class Equipment:
    """What an actor is made of; sent once."""

    module: nn.Module
    solver: Solver
    decay: tuple[str, ...]
    each: Each
    device: Device
    memory: float | None
    load: Load | None


def fingerprint(x: Tensor) -> str:
    """The shape and a hash of samples, to tell whether a node reads the same ones.

    Example:
        >>> fingerprint(torch.zeros(2, 3)) == fingerprint(torch.zeros(3, 2))
        False
    """
    values = x.contiguous().numpy()
    return f"{values.dtype}{values.shape} {blake2b(values.tobytes(), digest_size=8).hexdigest()}"


class Actor:
    """Trains clients on one core or GPU."""

    def look_in(self, path: Sequence[str]) -> None:
        """Search for modules where the run finds its own, as far as these folders are here, too."""
        sys.path += [place for place in path if place not in sys.path and os.path.isdir(place)]

    def equip(self, own: Equipment) -> str:
        """Take up the equipment; says what its own samples are."""
        torch.set_num_threads(1)
        self.limits = threadpool_limits(1)
        self.own = own
        self.trainers: dict[Objective, Trainer] = {}
        self.shards: dict[Any, NDArray[Any]] = {}
        self.blocks = self._blocks(self.own) if self.own.each == "vmap" else None
        self.x = None if self.own.load is None else self.own.load()
        if self.x is None:
            return ""
        return fingerprint(self.x)

    def _blocks(self, own: Equipment) -> Blocks:
        where = Device(find_device(own.device.name), own.device.precision, own.device.graphs)
        return Blocks(own.module, own.solver, own.decay, where, own.memory)

    def call(self, job: Job, models: NDArray[np.float32], *shards: NDArray[Any]) -> Any:
        """What ``train`` gives, with the updates in pieces where the job asks for them: small
        values travel faster."""
        found = self.train(job, models, *shards)
        if not job.pieces:
            return found
        if isinstance(found[0], Exception):
            return found, *[None] * job.pieces
        return (None, *found[1:]), *np.array_split(found[0].ravel(), job.pieces)

    def train(self, job: Job, models: NDArray[np.float32], *shards: NDArray[Any]) -> Any:
        """Updates, sizes and losses of the clients of a job, and the seconds spent; or what failed,
        and where."""
        begun = time.perf_counter()
        for name in job.stale:
            del self.shards[name]
        self.shards.update(zip(job.fresh, shards, strict=True))
        starts = torch.from_numpy(models[job.which])
        self.at = job.keys[0].id
        try:
            if self.blocks is None:
                return *self._each(job, starts), time.perf_counter() - begun
            sizes = np.array([len(y) for y in job.labels])
            sample = partial(self._samples, job)
            cohort = Cohort(sizes, sample, starts, np.arange(len(sizes)), job.keys)
            delta, loss, _ = self.blocks.train(job.work, cohort)
            return delta.numpy(), sizes.astype(np.float64), loss, time.perf_counter() - begun
        except CoterieError as error:
            return error, ""
        except Exception as error:  # noqa: BLE001 - whatever the user's module raised is told where the run is
            return ClientError(failure(self.at, job.keys[0], error)), traceback.format_exc()

    def _each(self, job: Job, starts: Tensor) -> tuple[Any, ...]:
        own = self.own
        objective = job.work.objective
        if objective not in self.trainers:
            self.trainers[objective] = make_trainer(own.module, objective, own.decay)
        trainer = self.trainers[objective]
        solver = job.work.solver(own.solver)
        delta = torch.empty_like(starts)
        told = np.empty((2, len(starts)))
        for at, key in enumerate(job.keys):
            self.at = key.id
            x, y = self._samples(job, at)
            found = trainer.train(x, y, starts[at], delta[at], solver, key)
            told[:, at] = found.size, found.loss
        return delta.numpy(), told[0], told[1]

    def _samples(self, job: Job, at: int) -> tuple[Tensor, Tensor]:
        shard, rows = job.places[at]
        y = torch.from_numpy(np.array(job.labels[at]))
        if self.x is not None:
            return self.x[torch.from_numpy(np.array(rows))], y
        return torch.from_numpy(np.array(self.shards[shard][rows])), y

"""Any number of clients on one device: sorted by steps, and cut into blocks that fit its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core import FloatArray, IntArray, Key, Objective, Solver, Train
from coterie.engines.simulation import ClientError
from coterie.errors import ConfigError, CoterieError
from coterie.local.device import Device
from coterie.local.training.batched import BatchedTrainer
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.optimizers import refuse_alone
from coterie.local.training.probe import has_running_statistics
from coterie.terminal import first_few

_CPU_MEMORY = 0.25  # GiB; a CPU gains nothing from larger blocks
# Of the memory that is free on an accelerator; the rest is for what torch itself needs.
_SHARE = 0.5
_SHOWN = 4  # clients that a message names


@dataclass(frozen=True, slots=True)
class Cohort:
    """The clients to train, wherever their samples are."""

    sizes: IntArray
    samples: Callable[[int], TrainingSamples]
    models: Tensor
    which: IntArray
    keys: Sequence[Key]


class Blocks:
    """Trains any number of clients in blocks, each of which may take ``memory`` GiB."""

    def __init__(
        self,
        module: nn.Module,
        solver: Solver,
        decay: tuple[str, ...] = (),
        device: Device | None = None,
        memory: float | None = None,
    ) -> None:
        refuse_alone(solver)
        self.module = module
        self.solver = solver
        self.decay = decay
        self.device = device or Device()
        if self.device.graphs and self.device.name == "cpu":
            what = "CUDA graphs need a GPU, and the device is the CPU"
            raise ConfigError("does-not-fit", "engine.graphs", what, got=True, allowed="false")
        self.memory = memory
        self.trainers: dict[Objective, BatchedTrainer] = {}

    def train(
        self, work: Train, cohort: Cohort, end: float | None = None
    ) -> tuple[Tensor, FloatArray, NDArray[np.bool_]]:
        """Train clients; returns their updates float32 ``[n, d]``, losses ``[n]``, and who is done,
        bool ``[n]``: a client that is not by ``end`` of the monotonic clock is left out."""
        n = len(cohort.sizes)
        delta = torch.zeros(n, cohort.models.shape[1])
        loss = np.zeros(n)
        trainer = self._trainer(work.objective)
        round = max((key.round for key in cohort.keys), default=0)
        (solver,) = work.solvers(self.solver, round)
        steps = np.array([solver.count(int(size)) for size in cohort.sizes], np.int64)
        # Without a step there is no block, and a network need not even be tried.
        if not steps.any():
            return delta, loss, np.ones(n, bool)
        done = np.zeros(n, bool)
        for block in self._blocks(trainer, solver, cohort, steps):
            if end is not None and time.monotonic() > end:
                break
            held = [cohort.samples(place) for place in block.tolist()]
            keys = [cohort.keys[place] for place in block.tolist()]
            starts = cohort.models[torch.from_numpy(cohort.which[block])]
            with self._naming_clients(keys):
                places = torch.from_numpy(block)
                delta[places], loss[block], done[block] = trainer.train(
                    held, starts, solver, keys, end
                )
        return delta, loss, done

    def _blocks(
        self, trainer: BatchedTrainer, solver: Solver, cohort: Cohort, steps: IntArray
    ) -> Iterator[IntArray]:
        """Places, the clients with the most steps first, cut where a block would outgrow the
        memory."""
        sizes = cohort.sizes
        # Most steps first, as the trainer wants them; of equal steps the most samples first, so
        # that the first client of a block has the longest batch.
        order = np.lexsort((-sizes, -steps))
        longest = int(order[0])
        x, y = cohort.samples(longest)
        with self._naming_clients([cohort.keys[longest]]):
            trainer.probe.run(x, y)
        most = self._room()
        used = 0
        first = 0
        for at, place in enumerate(order.tolist()):
            size = int(sizes[place])
            # Batches are padded to the longest of the block, so a client costs more next to a large
            # one than alone.
            cost = trainer.cost(size, int(sizes[order[first]]), x, solver)
            # A client that is too large for any block has one of its own: it may fit all the same,
            # since costs are estimates, and there is nothing smaller to try.
            if used + cost > most and at > first:
                yield order[first:at]
                used = 0
                first = at
                cost = trainer.cost(size, size, x, solver)
            used += cost
        yield order[first:]

    def _room(self) -> float:
        """Bytes that a block may take."""
        if self.memory is not None:
            return self.memory * 2**30
        name = self.device.name
        if name == "cpu":
            return _CPU_MEMORY * 2**30
        # What torch keeps of past blocks is free, too, though the driver does not say so.
        kept = torch.cuda.memory_reserved(name) - torch.cuda.memory_allocated(name)
        free = torch.cuda.mem_get_info(name)[0]
        return _SHARE * (free + kept)

    def _trainer(self, objective: Objective) -> BatchedTrainer:
        if objective not in self.trainers:
            self.trainers[objective] = BatchedTrainer(
                self.module, objective, self.decay, self.device
            )
        return self.trainers[objective]

    @contextmanager
    def _naming_clients(self, keys: Sequence[Key]) -> Iterator[None]:
        """What a network raises becomes one line that says whose training it was."""
        try:
            yield
        # What is one line already stays as it is.
        except CoterieError:
            raise
        except torch.OutOfMemoryError as error:
            raise ClientError(
                "does-not-fit",
                "engine.memory",
                f"a block of {len(keys)} clients does not fit {self.device.name} in round "
                f"{keys[0].round}",
                found=self.memory or "no limit",
                allowed="fewer GiB",
            ) from error
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            failed = f"training failed in round {keys[0].round}: {line}"
            fewer = "vmap supports fewer networks than pool and serial"
            who = "client" if len(keys) == 1 else "clients"
            clients = first_few([str(key.id) for key in keys], _SHOWN)
            what = f"{who} {clients}: {failed} ({fewer})"
            raise ClientError("failed", "model.name", what) from error


def make_blocks(
    module: nn.Module, solver: Solver, decay: tuple[str, ...], device: Device, memory: float | None
) -> Blocks | None:
    """Blocks of clients; ``None`` for a network with running statistics, whose clients train one
    after another."""
    if has_running_statistics(module):
        return None
    return Blocks(module, solver, decay, device, memory)

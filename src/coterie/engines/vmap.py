"""Many clients at once on one device: clients sorted by steps, cut into blocks that fit its memory.

It is for a GPU, and runs on a CPU, too. A client's random draws come from its own key, so the
updates do not depend on the blocks but for rounding, and equal those of ``serial`` to 1e-4 in
float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.work import Describe, Evaluate, SelectGroup, Train
from coterie.engines.serial import ClientError
from coterie.engines.simulation import SimulationEngine
from coterie.errors import ConfigError, CoterieError
from coterie.local import LocalRunner
from coterie.local.batched import BatchedTrainer, Sample
from coterie.local.device import Device, Precision, find_device
from coterie.local.probe import refuse_statistics

_CPU_MEMORY = 0.25  # GiB; a CPU gains nothing from larger blocks
_SHARE = 0.5  # of the memory that is free on an accelerator


class Blocks:
    """Trains any number of clients in blocks, wherever their samples are.

    Args:
        module: the network.
        solver: the run's local SGD.
        decay: names of the kernels that carry L2.
        device: where and how.
        memory: GiB that a block may take; default half of what is free on a GPU, a quarter GiB on a
            CPU.

    Raises:
        ConfigError: for a network with running statistics, or graphs without a GPU.
    """

    def __init__(
        self,
        module: nn.Module,
        solver: Solver,
        decay: tuple[str, ...] = (),
        device: Device | None = None,
        memory: float | None = None,
    ) -> None:
        refuse_statistics(module)
        self.module = module
        self.solver = solver
        self.decay = decay
        self.device = device or Device()
        if self.device.graphs and self.device.name == "cpu":
            raise ConfigError(
                "engine.graphs: CUDA graphs need a GPU, got true on the CPU; expected false"
            )
        self.memory = memory
        self.many: dict[Objective, BatchedTrainer] = {}

    def train(
        self,
        work: Train,
        sizes: IntArray,
        samples: Callable[[int], Sample],
        models: Tensor,
        which: IntArray,
        keys: Sequence[Key],
        end: float | None = None,
    ) -> tuple[Tensor, FloatArray, NDArray[np.bool_]]:
        """Train ``n`` clients.

        Args:
            work: what to do.
            sizes: int64 ``[n]``, how many samples each one holds.
            samples: inputs and labels of the client at a place of ``0..n-1``.
            models: float32 ``[k, d]``.
            which: int64 ``[n]``, the row of ``models`` that each one gets.
            keys: their streams.
            end: of the monotonic clock; clients that are not done then are left out.

        Returns:
            updates float32 ``[n, d]``, losses ``[n]``, and who is done, bool ``[n]``.

        Raises:
            ClientError: if the network fails.
        """
        delta = torch.zeros(len(sizes), models.shape[1])
        loss = np.zeros(len(sizes))
        done = np.zeros(len(sizes), bool)
        many = self._trainer(work.objective)
        solver = work.solver(self.solver)
        if not any(solver.count(int(size)) for size in sizes):
            return delta, loss, ~done
        for block in self._blocks(many, solver, sizes, samples, keys):
            if end is not None and time.monotonic() > end:
                break
            held = [samples(place) for place in block.tolist()]
            theirs = [keys[place] for place in block.tolist()]
            starts = models[torch.from_numpy(which[block])]
            with self._named(theirs):
                some = torch.from_numpy(block)
                delta[some], loss[block], done[block] = many.train(
                    held, starts, solver, theirs, end
                )
        return delta, loss, done

    def _blocks(
        self,
        many: BatchedTrainer,
        solver: Solver,
        sizes: IntArray,
        samples: Callable[[int], Sample],
        keys: Sequence[Key],
    ) -> Iterator[IntArray]:
        """Places, the clients with the most steps first, cut where a block would outgrow the
        memory."""
        steps = np.array([solver.count(int(size)) for size in sizes], np.int64)
        order = np.lexsort((-sizes, -steps))
        x, y = samples(int(order[0]))
        with self._named([keys[int(order[0])]]):
            many.probe.run(x, y)
        most = self._room()
        used = 0
        first = 0
        for at, place in enumerate(order.tolist()):
            cost = many.cost(int(sizes[place]), int(sizes[order[first]]), x, solver)
            if used + cost > most and at > first:
                yield order[first:at]
                used = 0
                first = at
                cost = many.cost(int(sizes[place]), int(sizes[place]), x, solver)
            used += cost
        yield order[first:]

    def _room(self) -> float:
        """Bytes that a block may take."""
        if self.memory is not None:
            return self.memory * 2**30
        if self.device.name == "cpu":
            return _CPU_MEMORY * 2**30
        name = self.device.name  # what torch keeps of past blocks is free, too
        kept = torch.cuda.memory_reserved(name) - torch.cuda.memory_allocated(name)
        return _SHARE * (torch.cuda.mem_get_info(name)[0] + kept)

    def _trainer(self, objective: Objective) -> BatchedTrainer:
        if objective not in self.many:
            self.many[objective] = BatchedTrainer(self.module, objective, self.decay, self.device)
        return self.many[objective]

    @contextmanager
    def _named(self, keys: Sequence[Key]) -> Iterator[None]:
        """What a network raises becomes one line that says whose training it was."""
        try:
            yield
        except CoterieError:
            raise
        except torch.OutOfMemoryError as error:
            what = f"a block of {len(keys)} clients does not fit {self.device.name} in round {keys[0].round}"
            raise ClientError(
                f"engine.memory: {what}, got {self.memory or 'no limit'}; expected less GiB"
            ) from error
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            shown = ", ".join(str(key.id) for key in keys[:4]) + (
                f", ... ({len(keys)} in all)" if keys[4:] else ""
            )
            what = f"client{'s' * (len(keys) > 1)} {shown}: training failed in round {keys[0].round}: {line}"
            raise ClientError(
                f"model.name: {what} (vmap takes fewer networks than pool and serial)"
            ) from error


class VmapEngine(SimulationEngine):
    """Trains blocks of clients with one gradient call a step, and scores models on the same device.

    Args:
        runner: the population, the module and the solver.
        round_timeout: seconds after which clients not yet done are left out, ``None``: wait for
            all.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: ``float32``; ``tf32`` or ``bfloat16`` are faster on a GPU, and do not equal
            ``serial``.
        graphs: record steps as CUDA graphs where their shapes repeat; needs a GPU.
        memory: GiB that a block may take; default half of what is free on a GPU, a quarter GiB on a
            CPU.

    Raises:
        ConfigError: for a network with running statistics, or a device that is not there.
    """

    def __init__(
        self,
        runner: LocalRunner,
        round_timeout: float | None = None,
        device: str = "auto",
        precision: Precision = "float32",
        graphs: bool = False,
        memory: float | None = None,
    ) -> None:
        where = Device(find_device(device), precision, graphs)
        self.blocks = Blocks(runner.module, runner.solver, runner.decay, where, memory)
        super().__init__(runner)
        if where.name != "cpu":
            self.runner = LocalRunner(
                runner.population, runner.module, runner.solver, runner.decay, where.name
            )
        self.round_timeout = round_timeout

    def answer(
        self,
        work: Evaluate | Describe | SelectGroup,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        with self.blocks.device.arithmetic():  # cuDNN takes TF32 where it is not told otherwise
            return super().answer(work, ids, models, which, key)

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        end = None if self.round_timeout is None else time.monotonic() + self.round_timeout
        population = self.runner.population
        size = self.runner.sizes[ids]

        def samples(place: int) -> Sample:
            rows = torch.from_numpy(population.train[ids[place]])
            return population.x[rows], population.y[rows]

        keys = [key.client(i) for i in ids.tolist()]
        delta, loss, done = self.blocks.train(work, size, samples, models, which, keys, end)
        fields = {
            "delta": work.uploaded(delta.numpy()[done]),
            "size": size[done].astype(np.float64),
            "loss": loss[done],
        }
        return [Reply(key.round, ids[done], fields, key.purpose)]

    def close(self) -> None:
        self.blocks.many.clear()

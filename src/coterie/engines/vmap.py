"""Many clients at once on one device: clients sorted by steps, cut into blocks that fit its memory.

Networks with running statistics, which no block can train, train client by client on the same device
(`coterie.engines.streams`). Methods whose clients have models of their own, or train in phases or on
weighted samples, train on the CPU.

It is for a GPU, and runs on a CPU, too. A client's random draws come from its own key, so the
updates of blocks do not depend on how they were cut but for rounding, and equal those of ``serial``
to 1e-4 in float32.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.work import Deliver, Evaluate, SelectGroup, Train
from coterie.engines.blocks import Cohort, make_blocks
from coterie.engines.serial import SerialEngine
from coterie.engines.simulation import SimulationEngine
from coterie.engines.streams import StreamedClients, StreamRequest
from coterie.local import LocalRunner
from coterie.local.device import Device, Precision, find_device
from coterie.local.training.batches import TrainingSamples


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
        streams: how many clients train at a time where no block can; default 4 on a GPU, 1 on a CPU.

    Raises:
        ConfigError: for a device that is not there, or an option that does not fit the network.
    """

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
        work: Evaluate | Describe | SelectGroup | Deliver,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        # cuDNN takes TF32 where it is not told otherwise, also when only scoring.
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
        fields = {
            "delta": work.uploaded(delta.numpy()[done]),
            "size": size[done].astype(np.float64),
            "loss": loss[done],
        }
        return [Reply(key.round, ids[done], fields, key.purpose)]

    def close(self) -> None:
        # Trainers hold the device's memory for as long as somebody holds them.
        self.streamed.clear()
        if self.blocks is not None:
            self.blocks.trainers.clear()

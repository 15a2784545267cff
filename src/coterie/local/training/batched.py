"""Local SGD of many clients at once: one gradient call a step for all of them, through
``torch.func``.

Clients are sorted by their number of steps, so that those which are done drop off the end: at step
``s`` the first ``A_s`` take part. Every client has its own parameters, batches and dropout masks,
drawn from its own key as when it trains alone, so the result is that of
`coterie.local.training.sgd.Autograd` to rounding, whoever shares a block with it.

Batches that are shorter than others are padded with samples of label ``-100``, which cross-entropy
leaves out, where nothing else sees them; else they take a call of their own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from coterie.core import FloatArray, IntArray, Key, Layout, Objective
from coterie.core.solver import TAKEN_BY_ALL, Solver
from coterie.errors import ConfigError
from coterie.local.device import Device, Precision, autocast
from coterie.local.training.batches import BatchSchedule, TrainingSamples
from coterie.local.training.buffers import CudaGraphCache, ModelBuffers, cuda_graph
from coterie.local.training.optimizers import UpdateRule, make_rule, remembered
from coterie.local.training.probe import LossNetwork, NetworkProbe, draw_masks, with_masks

_IGNORED = -100  # the label that `torch.nn.functional.cross_entropy` leaves out
_REPEATS = 16  # steps of a shape that are worth a recording
# Augmentation is not among them: samples lie on the device as they are.
_TAKEN = TAKEN_BY_ALL | {
    *("optimizer", "optimizer_options", "step_schedule"),
    *("clip_norm", "clip_value", "precision"),
}


@dataclass(frozen=True, slots=True)
class ClientBlock:
    """What stays the same through the steps of a block: pooled inputs on the device, and a stream
    of dropout masks for each client, if the network has dropout."""

    x: Tensor
    y: Tensor
    step: UpdateRule
    streams: Sequence[torch.Generator]


@dataclass(frozen=True, slots=True)
class Step:
    """What changes from step to step.

    Args:
        rows: int64 ``[A, B]`` on the device, the samples of each active client.
        void: bool ``[A, B]`` on the device, which of them are padding.
        weight: float32 ``[A]`` on the device, samples that count towards the loss of the last pass.
        lengths: int64 ``[A]``, samples of each batch.
    """

    rows: Tensor
    void: Tensor
    weight: Tensor
    lengths: IntArray


class BatchedTrainer:
    """Trains blocks of clients on one device. It keeps buffers, never anything that changes a
    result.

    Raises:
        ConfigError: when it first trains, for a network that changes its buffers, as running
            statistics, or draws random numbers otherwise than by dropout.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        decay: tuple[str, ...] = (),
        device: Device | None = None,
    ) -> None:
        self.device = device or Device()
        self.precision: Precision = self.device.precision
        self.layout = Layout.of(module)
        self.network = LossNetwork(module, objective).to(self.device.name)
        self.probe = NetworkProbe(self.network, self.device)
        self.trained = [name for name, p in module.named_parameters() if p.requires_grad]
        self.decayed = tuple(i for i, name in enumerate(self.trained) if name in decay)
        self.buffers = ModelBuffers(self.layout, self.trained, self.device.name)
        self.replay = CudaGraphCache(cuda_graph)
        # Dropout is answered with masks. Whatever else draws has no stream for each client.
        self.gradient = vmap(grad_and_value(self._loss), randomness="error")

    def train(
        self,
        samples: Sequence[TrainingSamples],
        starts: Tensor,
        solver: Solver,
        keys: Sequence[Key],
        end: float | None = None,
    ) -> tuple[Tensor, FloatArray, NDArray[np.bool_]]:
        """Train clients from ``starts [n, d]``, those with the most steps first. Clients that have
        steps left at ``end`` of the monotonic clock are given up.

        Returns:
            updates ``[n, d]`` on the CPU, mean losses of the last pass ``[n]``, and who is done.
        """
        for option in solver.set_beyond(_TAKEN):
            got = getattr(solver, option)
            what = "vmap does not support it"
            expected = "engine pool or serial"
            raise ConfigError("does-not-fit", f"local.{option}", what, got=got, allowed=expected)
        schedule = BatchSchedule.of([len(y) for _, y in samples], solver, keys)
        x = torch.cat([x for x, _ in samples])
        y = torch.cat([y for _, y in samples])
        self.probe.run(x, y)
        if self.buffers.fill(starts, solver):
            self.replay.clear()  # recordings know the old buffers by their addresses
        streams: list[torch.Generator] = []
        # The probe has run a batch of two; whether there is dropout does not depend on the length.
        if self.probe.calls[2]:
            streams = [key.of("noise").torch() for key in keys]
        mu = self.network.objective.mu
        step = make_rule(solver, mu, self.decayed, len(schedule.active), many=True)
        self.precision = self.device.precision
        if solver.precision == "bfloat16":
            self.precision = "bfloat16"
        block = ClientBlock(x.to(self.device.name), y.to(self.device.name), step, streams)
        with self.device.arithmetic():
            steps = self._steps(schedule, block, end)
        # Who takes part in the step that was not begun any more has steps left.
        done = np.ones(len(samples), bool)
        if steps < len(schedule.active):
            done[: schedule.active[steps]] = False
        # The loss is summed on the device, the samples behind it are known from the schedule.
        seen = np.zeros(len(samples))
        np.add.at(seen, schedule.clients(), schedule.count * schedule.last)
        summed = self.buffers.loss[: len(samples)].cpu().numpy().astype(np.float64)
        # A client without a step has seen nothing, and its loss is 0.
        loss = summed / np.maximum(seen, 1)
        return self.buffers.updates(starts), loss, done

    def cost(self, size: int, most: int, x: Tensor, solver: Solver) -> int:
        """Bytes of a client with ``size`` samples like ``x`` in a block whose largest has ``most``:
        parameters, start, gradients, update, samples, and three times what the forward pass leaves
        behind, for the backward pass and ``vmap``."""
        batch = min(most, solver.batch_size)
        sample = x[0].numel() * x.element_size()
        models = 4 * self.layout.d * (4 + remembered(solver))
        return models + size * sample + batch * (2 * sample + 3 * self.probe.saved)

    # --- the steps --------------------------------------------------------------------------------

    def _steps(self, schedule: BatchSchedule, block: ClientBlock, end: float | None) -> int:
        """Run all steps, or those before the deadline; returns how many."""
        device = self.device.name
        width = schedule.rows.shape[1]
        rows = torch.from_numpy(schedule.rows).to(device)
        void = torch.from_numpy(schedule.count[:, None] <= np.arange(width)).to(device)
        weight = torch.from_numpy((schedule.count * schedule.last).astype(np.float32)).to(device)
        repeats = np.bincount(schedule.active)
        at = 0
        for number, active in enumerate(schedule.active.tolist()):
            if end is not None and time.monotonic() > end:
                return number
            now = slice(at, at + active)
            at = at + active
            step = Step(rows[now], void[now], weight[now], schedule.count[now])
            self._step(block, step, int(repeats[active]))
        return len(schedule.active)

    def _step(self, block: ClientBlock, step: Step, repeats: int) -> None:
        """One step of the active clients; ``repeats``: how many steps of the block have as many."""
        active, width = step.rows.shape
        x = block.x[step.rows]
        y = block.y[step.rows]
        # Only labels are padded: other losses have no target that counts nothing.
        if self.probe.padded:
            y.masked_fill_(step.void, _IGNORED)
        # Padding costs a little arithmetic, another call costs far more.
        if not self.probe.padded and (step.lengths != width).any():
            self._step_by_length(block, step, x, y)
            return
        masks = self._masks(block, step.lengths, width, block.streams)
        inputs = [x, y, step.weight, *masks]
        solver = block.step.solver
        # A recording pays only where a step of its shape is repeated often.
        recorded = repeats >= _REPEATS or (active, width, solver) in self.replay
        recorded = recorded and block.step.repeats
        if not self.device.graphs or not recorded:
            self._step_at_once(inputs, block.step)
            return
        state = [*self.buffers.params, self.buffers.loss]
        if solver.momentum:
            state += self.buffers.velocity
        self.replay(
            (active, width, solver),
            inputs,
            lambda kept: self._step_at_once(kept, block.step),
            state,
        )

    def _step_at_once(self, inputs: Sequence[Tensor], step: UpdateRule) -> None:
        """One step of the first clients, with batches of one length: inputs, labels, weights of the
        loss, dropout masks."""
        x, y, weight, *masks = inputs
        grads, losses = self._gradients(slice(0, len(y)), x, y, masks)
        self._descend(grads, losses, weight, step)

    def _step_by_length(self, block: ClientBlock, step: Step, x: Tensor, y: Tensor) -> None:
        """One step of the first clients, with a gradient call for each length of a batch."""
        grads = [torch.empty_like(p[: len(y)]) for p in self.buffers.params]
        losses = torch.empty_like(step.weight)
        for length in np.unique(step.lengths).tolist():
            mine = np.flatnonzero(step.lengths == length)
            rows = torch.from_numpy(mine).to(self.device.name)
            streams: list[torch.Generator] = []
            if block.streams:
                streams = [block.streams[i] for i in mine.tolist()]
            masks = self._masks(block, step.lengths[mine], length, streams)
            some, losses[rows] = self._gradients(rows, x[rows, :length], y[rows, :length], masks)
            for grad, part in zip(grads, some, strict=True):
                grad[rows] = part
        self._descend(grads, losses, step.weight, block.step)

    def _masks(
        self, block: ClientBlock, lengths: IntArray, width: int, streams: Sequence[torch.Generator]
    ) -> list[Tensor]:
        """The dropout masks of some clients for a step, each from its own stream."""
        if not streams:
            return []
        for length in np.unique(lengths).tolist():
            if length not in self.probe.calls:
                sample = block.x[:1].cpu()
                like = sample.expand(length, *sample.shape[1:])
                self.probe.note(like, torch.zeros(length, dtype=torch.int64))
        calls = self.probe.calls
        masks = draw_masks(calls, lengths.tolist(), width, streams[: len(lengths)])
        return [mask.to(self.device.name) for mask in masks]

    def _gradients(
        self, rows: slice | Tensor, x: Tensor, y: Tensor, masks: Sequence[Tensor]
    ) -> tuple[list[Tensor], Tensor]:
        """Of some clients, the gradient of each parameter ``[A, ...]`` and the losses ``[A]``."""
        start = self.buffers.start
        trained = zip(self.trained, self.buffers.params, strict=True)
        params = {f"model.{name}": p[rows] for name, p in trained}
        fixed = {f"model.{name}": p[rows] for name, p in start.items() if name not in self.trained}
        if self.network.compares:  # the objective compares with the model received
            fixed |= {f"received.{name}": p[rows] for name, p in start.items()}
        grads, losses = self.gradient(params, fixed, x, y, tuple(masks))
        return list(grads.values()), losses

    def _loss(
        self,
        params: Mapping[str, Tensor],
        fixed: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
        masks: tuple[Tensor, ...],
    ) -> Tensor:
        """The loss of one client's batch; everything has one dimension less than outside."""
        with with_masks(masks), autocast(self.device.name, self.precision):
            # Back in float32, in which the losses of a pass are summed.
            return functional_call(self.network, {**params, **fixed}, (x, y)).float()

    def _descend(
        self, grads: list[Tensor], losses: Tensor, weight: Tensor, step: UpdateRule
    ) -> None:
        """One step down, of as many clients as there are gradients."""
        n = len(losses)
        buffers = self.buffers
        params = [p[:n] for p in buffers.params]
        anchor: list[Tensor] = []
        if step.mu:
            anchor = [buffers.start[name][:n] for name in self.trained]
        velocity: list[Tensor] = []
        if step.solver.momentum:
            velocity = [v[:n] for v in buffers.velocity]
        step.apply(params, grads, anchor, velocity)
        buffers.loss[:n] += losses.detach() * weight

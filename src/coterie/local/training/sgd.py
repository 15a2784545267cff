"""Local training of any module: gradients by autograd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from coterie.core import Keep, Solver
from coterie.core.keys import Key, keyed_torch
from coterie.core.objective import Objective, check_loss
from coterie.core.own_model import Batch
from coterie.core.vectors import FlatModule, Layout, copy_module, training_mode
from coterie.local.device import Device, autocast
from coterie.local.training.batches import TrainingSamples, convolves, minibatches
from coterie.local.training.gru import use_fused_gru
from coterie.local.training.optimizers import UpdateRule, load_memory, make_rule, store_memory

CPU = Device()


@dataclass(frozen=True, slots=True)
class Trained:
    """The end of a local training: the update ``w - w_start`` is left in the caller's buffer."""

    size: int
    loss: float


@dataclass(frozen=True, slots=True)
class Pull:
    """What is added to the gradients of a training in addition to the objective's own terms, the model that
    these terms compare with, and what the optimiser remembers.

    Args:
        anchor: float32 ``[d]``, what the proximal term pulls to; ``None``: the start.
        constant: float32 ``[d]``, added to every gradient; ``None``: nothing.
        received: float32 ``[d]``, the model that the client was sent, which some objectives read;
            ``None``: the start.
        memory: float32 ``[m]``, what the optimiser remembered of a training before, and in its place
            what it remembers of this one; ``None``: it starts without. For autograd alone.
    """

    anchor: Tensor | None = None
    constant: Tensor | None = None
    received: Tensor | None = None
    memory: Tensor | None = None


NO_PULL = Pull()


class Trainer(Protocol):
    """Local training in one process. It may keep buffers, never anything that changes a result."""

    def train(
        self,
        samples: TrainingSamples,
        start: Tensor,
        out: Tensor,
        solver: Solver,
        key: Key,
        pull: Pull = NO_PULL,
    ) -> Trained:
        """Train on a client's samples from ``start [d]``, and write the update to ``out [d]``."""
        ...

    def gradient(
        self, at: Tensor, sent: Tensor, x: Tensor, y: Tensor, l2: float
    ) -> tuple[Tensor, float]:
        """The gradient of the loss of a batch, float32 ``[d]``, with those of the L2 term and of
        the proximal term ``mu/2 ||at - sent||^2``; and the loss without them."""
        ...


@dataclass(slots=True)
class StepMemory:
    """The update rule of a training by autograd, and what it carries from step to step: what the
    proximal term pulls to, the velocity, and what is added to every gradient; each empty if there
    is none."""

    rule: UpdateRule
    anchor: list[Tensor]
    velocity: list[Tensor]
    constant: list[Tensor]


class Autograd:
    """Local training through autograd, for any ``nn.Module``.

    Args:
        module: the network; it is taken over, hand in a copy.
        moves: the coordinates that training moves, whole tensors; ``None``: all of them.
        mu: weight of the proximal term; ``None``: that of the objective.
        device: the device on which `train` computes the network; all inputs are on the CPU.

    Parameters that the module froze (``requires_grad`` off) stay as they are, and are no part of the
    vector.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        decay: tuple[str, ...] = (),
        moves: Keep | None = None,
        mu: float | None = None,
        device: Device = CPU,
    ) -> None:
        self.layout = Layout.of(module)
        self.objective = objective
        self.mu = objective.mu if mu is None else mu
        self.device = device
        module = module.to(device.name)
        self.flat = FlatModule(use_fused_gru(module))
        self.module = training_mode(self.flat.module)
        # Frozen parameters get no gradient, so neither decay nor the proximal term moves them.
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        # Running statistics move without a gradient, so these are put back after a training.
        self.stays: Tensor | None = None
        if moves is not None:
            named = {n: p for n, p in named.items() if _in_span(self.layout.span(n), moves)}
            self.stays = torch.from_numpy(moves.shared(self.layout.d))
        self.names = tuple(named)
        self.params: list[Tensor] = list(named.values())
        self.decayed = tuple(i for i, name in enumerate(named) if name in decay)
        self.convolves = convolves(module)
        # Buffers that do not move, as counters, begin every training as the module was made: what
        # one client counted must not affect the next.
        moving = set(self.layout.names)
        self.fixed = {n: b.clone() for n, b in module.named_buffers() if n not in moving}
        self.sent: Tensor | None = None
        self.frozen: FlatModule | None = None

    def train(
        self,
        samples: TrainingSamples,
        start: Tensor,
        out: Tensor,
        solver: Solver,
        key: Key,
        pull: Pull = NO_PULL,
    ) -> Trained:
        size = len(samples.y)
        # Once for all passes, unless each pass changes them, which is done on the CPU.
        if not solver.augment:
            samples = TrainingSamples(*(part.to(self.device.name) for part in samples))
        self._begin(start, sent=start if pull.received is None else pull.received)
        memory = self._step_memory(solver, solver.count(size), start, pull)
        loss = torch.zeros((), device=self.device.name)
        seen = 0
        # What the module itself draws, as dropout does, has a stream apart from the shuffling, so that a
        # network with dropout sees the same batches as one without.
        with keyed_torch(key.of("noise"), self.device.gpus):
            for batch in minibatches(samples, solver, key, self.convolves):
                batch_loss = self._step(batch, memory)
                if batch.last_pass:
                    # The last batch may be short, so batches count by their samples.
                    loss += batch_loss * len(batch.y)
                    seen += len(batch.y)
        torch.sub(self.flat.read().to(start.device), start, out=out)
        if pull.memory is not None:
            store_memory(memory.rule, self.params, memory.velocity, pull.memory)
        if self.stays is not None:
            out[self.stays] = 0
        if not seen:
            return Trained(size, 0.0)
        return Trained(size, float(loss) / seen)

    def gradient(
        self, at: Tensor, sent: Tensor, x: Tensor, y: Tensor, l2: float
    ) -> tuple[Tensor, float]:
        """See `Trainer`."""
        self._begin(at, sent)
        loss = self.objective.loss(self.module, x, y, self._received)
        gradients = self._gradients(loss)
        for place in self.decayed:
            gradients[place].add_(self.params[place].detach(), alpha=2 * l2)
        if self.mu:
            # Only parameters are pulled: running statistics have no gradient.
            for gradient, here, anchor in zip(
                gradients, self.params, self._moving(sent), strict=True
            ):
                gradient.add_(here.detach() - anchor, alpha=self.mu)
        flat = torch.zeros(self.layout.d, device=self.device.name)
        views = self.layout.views(flat)
        for name, gradient in zip(self.names, gradients, strict=True):
            views[name].copy_(gradient)
        return flat, loss.item()

    def _begin(self, at: Tensor, sent: Tensor) -> None:
        """The module with parameters ``at``, and nothing left of the client before."""
        self.flat.write(at)
        for name, values in self.fixed.items():
            self.module.get_buffer(name).copy_(values)
        self.sent = sent

    def _step_memory(self, solver: Solver, steps: int, start: Tensor, pull: Pull) -> StepMemory:
        anchor: list[Tensor] = []
        if self.mu:
            anchor = self._moving(start if pull.anchor is None else pull.anchor)
        velocity: list[Tensor] = []
        if solver.momentum:
            velocity = [torch.zeros_like(p) for p in self.params]
        constant: list[Tensor] = []
        if pull.constant is not None:
            constant = self._moving(pull.constant)
        rule = make_rule(solver, self.mu, self.decayed, steps)
        if pull.memory is not None:
            load_memory(rule, self.params, velocity, pull.memory)
        return StepMemory(rule, anchor, velocity, constant)

    def _moving(self, vector: Tensor) -> list[Tensor]:
        """The part of a vector ``[d]`` that belongs to the parameters that move, as copies."""
        views = self.layout.views(vector.to(self.device.name))
        return [views[name].clone() for name in self.names]

    def _step(self, batch: Batch, memory: StepMemory) -> Tensor:
        """One step on a batch; returns its loss."""
        precision = self.device.precision
        if memory.rule.solver.precision == "bfloat16":
            precision = "bfloat16"
        x = batch.x.to(self.device.name)
        y = batch.y.to(self.device.name)
        with autocast(self.device.name, precision):
            loss = self.objective.loss(self.module, x, y, self._received)
        gradients = self._gradients(loss)
        if memory.constant:
            torch._foreach_add_(gradients, memory.constant)
        memory.rule.apply(self.params, gradients, memory.anchor, memory.velocity)
        return loss.detach()

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        check_loss(self.objective, loss)
        # A parameter that the loss does not reach has a zero gradient, and still decays.
        found = torch.autograd.grad(loss, self.params, allow_unused=True, materialize_grads=True)
        return list(found)

    def _received(self) -> nn.Module:
        """The model that the client was sent: made when first asked for, filled once in a
        training."""
        if self.frozen is None:
            self.frozen = FlatModule(copy_module(self.module))
            self.frozen.module.eval().requires_grad_(False)
        if self.sent is not None:  # the first batch of a training
            self.frozen.write(self.sent)
            self.sent = None
        return self.frozen.module


def _in_span(span: slice, moves: Keep) -> bool:
    """Whether a tensor moves."""
    return moves.overlaps(span.start, span.stop)

"""Local SGD for any module: the one place where gradients are computed, and the one where batches
are looped over."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import IntArray
from coterie.core.keys import Key, keyed_torch
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.vectors import Layout, bind


@dataclass(frozen=True, slots=True)
class Trained:
    """The end of a local training: the update ``w - w_start`` is left in the caller's buffer."""

    size: int
    loss: float


@dataclass(frozen=True, slots=True)
class Pass:
    """One shuffled pass over a client's data, or the part of it that the step budget leaves."""

    order: IntArray
    steps: int
    last: bool


def batches(size: int, solver: Solver, rng: np.random.Generator) -> Iterator[Pass]:
    """The passes of a local training: reshuffled every epoch, the last partial batch kept.

    With ``solver.steps`` set, passes go on until that many batches have been drawn.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> [(p.steps, p.last) for p in batches(25, Solver(batch_size=10, steps=7), rng)]
        [(3, False), (3, False), (1, True)]
    """
    left = solver.count(size)
    whole = -(-size // solver.batch_size)
    while left > 0:
        steps = min(whole, left)
        left -= steps
        yield Pass(rng.permutation(size), steps, left == 0)


def convolves(module: nn.Module) -> bool:
    """Whether a network has convolutions over images, which are faster with the channels
    innermost."""
    return any(isinstance(m, nn.Conv2d) for m in module.modules())


def channels_last(x: Tensor) -> Tensor:
    """Images ``[B, C, H, W]`` with the channels innermost in memory; anything else as it is.

    With one channel both orders are one, and torch takes the slower: strides written out tell it.

    Example:
        >>> channels_last(torch.zeros(5, 1, 4, 4)).stride()
        (16, 1, 4, 1)
    """
    if x.dim() != 4:
        return x
    _, channels, height, width = x.shape
    x = x.contiguous(memory_format=torch.channels_last)
    return x.as_strided(x.shape, (channels * height * width, 1, width * channels, channels))


class Trainer(Protocol):
    """Local training in one process. It may keep buffers, never anything that changes a result."""

    def train(
        self, x: Tensor, y: Tensor, start: Tensor, out: Tensor, solver: Solver, mu: float, key: Key
    ) -> Trained:
        """Train from ``start [d]`` on a client's samples and write the update into ``out [d]``."""
        ...


class Autograd:
    """Local SGD through autograd, for any ``nn.Module``. Its parameters are views into one flat
    vector.

    Args:
        module: the network; it is taken over, hand in a copy.
        objective: gives the batch loss.
        decay: names of the kernels that carry L2.

    Parameters that the module froze (``requires_grad`` off) stay as they are.
    """

    def __init__(
        self, module: nn.Module, objective: Objective, decay: tuple[str, ...] = ()
    ) -> None:
        self.layout = Layout.of(module)
        self.objective = objective
        self.vector = torch.empty(self.layout.d)
        self.module = bind(module, self.vector).train()
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        self.params: list[Tensor] = list(named.values())
        self.decayed = [i for i, name in enumerate(named) if name in decay]
        self.convolves = convolves(module)
        self.sent: Tensor | None = None
        self.frozen: tuple[nn.Module, Tensor] | None = None

    def train(
        self, x: Tensor, y: Tensor, start: Tensor, out: Tensor, solver: Solver, mu: float, key: Key
    ) -> Trained:
        self.vector.copy_(start)
        self.sent = start
        anchor = [p.detach().clone() for p in self.params] if mu else []
        velocity = [torch.zeros_like(p) for p in self.params] if solver.momentum else []
        loss = torch.zeros(())
        seen = 0
        with keyed_torch(key.of("noise")):
            for part in batches(len(y), solver, key.of("shuffle").generator()):
                order = torch.from_numpy(part.order)
                xs = x[order]
                ys = y[order]
                if self.convolves:
                    xs = channels_last(xs)
                for at in range(0, part.steps * solver.batch_size, solver.batch_size):
                    stop = min(at + solver.batch_size, len(y))
                    batch_loss = self._step(xs[at:stop], ys[at:stop], solver, mu, anchor, velocity)
                    if part.last:
                        loss += batch_loss * (stop - at)
                        seen += stop - at
        torch.sub(self.vector, start, out=out)
        return Trained(len(y), float(loss) / seen if seen else 0.0)

    def _step(
        self,
        x: Tensor,
        y: Tensor,
        solver: Solver,
        mu: float,
        anchor: list[Tensor],
        velocity: list[Tensor],
    ) -> Tensor:
        loss = self.objective.loss(self.module, x, y, self._received)
        grads = list(
            torch.autograd.grad(loss, self.params, allow_unused=True, materialize_grads=True)
        )
        with torch.no_grad():
            if solver.l2:
                for i in self.decayed:
                    grads[i].add_(self.params[i], alpha=2 * solver.l2)
            if mu:
                torch._foreach_add_(grads, self.params, alpha=mu)
                torch._foreach_sub_(grads, anchor, alpha=mu)
            if solver.momentum:
                torch._foreach_mul_(velocity, solver.momentum)
                torch._foreach_add_(velocity, grads)
                grads = velocity
            torch._foreach_add_(self.params, grads, alpha=-solver.lr)
        return loss.detach()

    def _received(self) -> nn.Module:
        """The model that the client was sent: made when first asked for, filled once in a
        training."""
        if self.frozen is None:
            vector = torch.empty_like(self.vector)
            self.frozen = (
                bind(copy.deepcopy(self.module), vector).eval().requires_grad_(False),
                vector,
            )
        module, vector = self.frozen
        if self.sent is not None:
            vector.copy_(self.sent)
            self.sent = None
        return module

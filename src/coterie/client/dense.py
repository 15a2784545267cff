"""The closed form for stacks of Linear and ReLU under cross-entropy.

At the sizes of the papers a call costs more than its arithmetic, so a step is a handful of BLAS calls. With the bias
as a last column of the weights and a last one in the activations, layer by layer (``h_0 = x``):

    h_l = relu(W_l h_{l-1}),   delta_L = (softmax(z) - onehot(y)) / B,   delta_{l-1} = W_l^T delta_l * [h_{l-1} > 0]
    W_l <- W_l - lr (delta_l h_{l-1}^T + 2 l2 W_l + mu (W_l - W_l^start))

It equals autograd to rounding, and is chosen by the shape of the module, not by its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm
from torch import Tensor, nn

from coterie.client.sgd import Trained, batches
from coterie.keys import Key
from coterie.types import Solver
from coterie.vectors import Layout

F32 = NDArray[np.float32]
WIDE = 48


@dataclass(frozen=True, slots=True)
class DenseStack:
    """The shape of ``[Flatten] Linear (ReLU Linear)*``: widths from input to classes, and which kernels decay."""

    widths: tuple[int, ...]
    decayed: tuple[bool, ...]

    @classmethod
    def of(cls, module: nn.Module, decay: tuple[str, ...] = ()) -> DenseStack | None:
        """Read the shape of a module, ``None`` if it is anything else.

        Example:
            >>> DenseStack.of(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))).widths
            (6, 4, 3)
            >>> DenseStack.of(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))) is None
            True
        """
        if type(module) not in (nn.Sequential, nn.Linear) or _hooked(module):
            return None
        named = [(n, m) for n, m in module.named_modules() if type(m) is not nn.Sequential]
        if named and type(named[0][1]) is nn.Flatten and named[0][1].start_dim == 1:
            named = named[1:]
        kinds = [type(m) for _, m in named]
        if not kinds or kinds != ([nn.Linear, nn.ReLU] * (len(kinds) // 2 + 1))[: len(kinds)] or len(kinds) % 2 == 0:
            return None
        linear: list[tuple[str, Any]] = named[::2]
        if any(m.bias is None for _, m in linear) or len({n for n, _ in linear}) < len(linear):
            return None
        frozen = any(not p.requires_grad for p in module.parameters())
        if frozen or len(Layout.of(module).names) != 2 * len(linear):
            return None
        widths = (linear[0][1].in_features, *(m.out_features for _, m in linear))
        return cls(widths, tuple(f"{n}.weight".lstrip(".") in decay for n, _ in linear))


def _hooked(module: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules())


class _Layer:
    """The weights of a layer, bias included, in the memory order that its size runs fastest in.

    From about ``WIDE`` outputs on, input-major weights and torch's matrix product win over NumPy's by a factor of four.
    """

    def __init__(self, fan_in: int, out: int) -> None:
        self.wide = out >= WIDE
        store = np.empty((fan_in + 1, out) if self.wide else (out, fan_in + 1), np.float32)
        self.tensor = torch.from_numpy(store)
        self.fortran: F32 = store.T  # what BLAS writes in place
        self.w: F32 = store.T if self.wide else store  # [out, in + 1]

    def forward(self, h: F32, out: F32) -> F32:
        """``h w^T`` into ``out``."""
        if self.wide:
            torch.mm(torch.from_numpy(h), self.tensor, out=torch.from_numpy(out))
        else:
            np.dot(h, self.fortran, out=out)
        return out

    def descend(self, rate: float, delta: F32, h: F32) -> None:
        """``w <- w + rate delta^T h`` in place."""
        left, right = (delta, h) if self.wide else (h, delta)
        sgemm(rate, left.T, right.T, beta=1.0, c=self.fortran, trans_b=1, overwrite_c=1)


class Dense:
    """Local SGD in closed form. Holds the weights of one client at a time, and buffers for one batch size."""

    def __init__(self, stack: DenseStack) -> None:
        self.stack = stack
        self.layers = [_Layer(i, o) for i, o in pairwise(stack.widths)]
        self.batch = 0

    def train(self, x: Tensor, y: Tensor, start: Tensor, out: Tensor, solver: Solver, mu: float, key: Key) -> Trained:
        self._load(start.numpy())
        self._fit(min(solver.batch_size, len(y)))
        inputs, hot = _with_ones(x), np.eye(self.stack.widths[-1], dtype=np.float32)[y.numpy()]
        xs, hots, pull = np.empty_like(inputs), np.empty_like(hot), self._pull(solver, mu)
        size, loss = len(y), 0.0
        for part in batches(size, solver, key.of("shuffle").generator()):
            np.take(inputs, part.order, axis=0, out=xs, mode="clip")
            np.take(hot, part.order, axis=0, out=hots, mode="clip")
            end = min(part.steps * solver.batch_size, size)
            loss = self._pass(xs[:end], hots[:end], solver, pull, part.last) / end
        self._store(start.numpy(), out.numpy())
        return Trained(size, loss)

    def _load(self, vector: F32) -> None:
        for layer, (kernel, bias) in zip(self.layers, self._parts(vector), strict=True):
            layer.w[:, :-1], layer.w[:, -1] = kernel, bias

    def _store(self, start: F32, out: F32) -> None:
        for layer, (kernel, bias) in zip(self.layers, self._parts(out), strict=True):
            kernel[:], bias[:] = layer.w[:, :-1], layer.w[:, -1]
        np.subtract(out, start, out=out)

    def _parts(self, vector: F32) -> Iterator[tuple[F32, F32]]:
        """Kernel and bias of each layer, as views into a flat vector."""
        at = 0
        for i, o in pairwise(self.stack.widths):
            yield vector[at : at + o * i].reshape(o, i), vector[at + o * i : at + o * (i + 1)]
            at += o * (i + 1)

    def _fit(self, batch: int) -> None:
        if batch == self.batch:
            return
        self.batch = batch
        inner = self.stack.widths[1:-1]
        self.sums: list[F32] = [np.empty((batch, o), np.float32) for o in inner]
        self.hidden: list[F32] = [np.ones((batch, o + 1), np.float32) for o in inner]
        self.logits: F32 = np.empty((batch, self.stack.widths[-1]), np.float32)

    def _pull(self, solver: Solver, mu: float) -> list[tuple[F32, F32]]:
        """L2 and the proximal term in a step: ``w <- w a + b``, ``a = 1 - lr (2 l2 + mu)``, ``b = lr mu w_start``."""
        if not mu and not (solver.l2 and any(self.stack.decayed)):
            return []
        pull = []
        for layer, decayed in zip(self.layers, self.stack.decayed, strict=True):
            shrink = np.full(layer.w.shape[1], 1 - solver.lr * mu, np.float32)
            shrink[:-1] -= np.float32(2 * solver.lr * solver.l2 * decayed)
            pull.append((shrink, np.float32(solver.lr * mu) * layer.w))
        return pull

    def _pass(self, xs: F32, hots: F32, solver: Solver, pull: list[tuple[F32, F32]], record: bool) -> float:
        """One pass over shuffled samples, a step per batch. Returns the summed loss where it is to be recorded."""
        top, add, exp, lr, batch = np.maximum.reduce, np.add.reduce, np.exp, solver.lr, solver.batch_size
        last, loss, size = self.layers[-1], 0.0, len(xs)
        for at in range(0, size, batch):
            h, hot = xs[at : at + batch], hots[at : at + batch]
            b = len(h)
            acts = self._hidden(h, b) if self.hidden else [h]
            p = self.logits if b == batch else self.logits[:b]
            last.forward(acts[-1], p)
            p -= top(p, axis=1, keepdims=True)
            exp(p, out=p)
            p /= add(p, axis=1, keepdims=True)
            if record:
                loss -= float(np.log(np.maximum((p * hot).sum(axis=1), 1e-30)).sum())
            p -= hot
            self._descend(p, acts, -lr / b, pull)
        return loss

    def _hidden(self, h: F32, b: int) -> list[F32]:
        acts = [h]
        for layer, total, hidden in zip(self.layers, self.sums, self.hidden, strict=False):
            np.maximum(layer.forward(acts[-1], total[:b]), 0, out=hidden[:b, :-1])
            acts.append(hidden[:b])
        return acts

    def _descend(self, delta: F32, acts: list[F32], rate: float, pull: list[tuple[F32, F32]]) -> None:
        """The backward pass; each layer is updated right after its error was handed down."""
        for at in range(len(acts) - 1, -1, -1):
            layer, below = self.layers[at], delta
            if at:
                below = np.dot(delta, layer.w[:, :-1])
                below *= self.sums[at - 1][: len(delta)] > 0
            if pull:
                np.multiply(layer.w, pull[at][0], out=layer.w)
                np.add(layer.w, pull[at][1], out=layer.w)
            layer.descend(rate, delta, acts[at])
            delta = below


def _with_ones(x: Tensor) -> F32:
    """Samples as rows, with a last column of ones for the bias."""
    flat = x.numpy().reshape(len(x), math.prod(x.shape[1:]))
    rows: F32 = np.ones((len(flat), flat.shape[1] + 1), np.float32)
    rows[:, :-1] = flat
    return rows

"""The closed form for stacks of Linear and ReLU under cross-entropy.

At the sizes of the papers a call costs more than its arithmetic, so a step is a handful of BLAS calls. With the bias
as a last column of the weights and a last one in the activations, layer by layer (``h_0 = x``):

    h_l = relu(W_l h_{l-1}),   delta_L = (softmax(z) - onehot(y)) / B,   delta_{l-1} = W_l^T delta_l * [h_{l-1} > 0]
    W_l <- W_l - lr (delta_l h_{l-1}^T + 2 l2 W_l + mu (W_l - W_l^start))

It equals autograd to rounding, and is chosen by the shape of the module, not by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm
from torch import Tensor, nn

from coterie.client.sgd import Trained, batches
from coterie.keys import Key
from coterie.types import Solver
from coterie.vectors import Layout

F32 = NDArray[np.float32]


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
        if len(Layout.of(module).names) != 2 * len(linear):
            return None
        widths = (linear[0][1].in_features, *(m.out_features for _, m in linear))
        return cls(widths, tuple(f"{n}.weight".lstrip(".") in decay for n, _ in linear))


def _hooked(module: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in module.modules())


class Dense:
    """Local SGD in closed form. Holds buffers for one batch size."""

    def __init__(self, stack: DenseStack) -> None:
        self.stack = stack
        pairs = list(zip(stack.widths[:-1], stack.widths[1:], strict=True))
        self.weights: list[F32] = [np.empty((o, i + 1), np.float32) for i, o in pairs]
        self.batch = 0

    def train(self, x: Tensor, y: Tensor, start: Tensor, out: Tensor, solver: Solver, mu: float, key: Key) -> Trained:
        self._load(start.numpy())
        self._fit(solver.batch_size)
        inputs, hot = self._inputs(x), np.eye(self.stack.widths[-1], dtype=np.float32)[y.numpy()]
        shrink, pull = self._regulariser(solver, mu)
        xs, hots = np.empty_like(inputs), np.empty_like(hot)
        size, loss, seen = len(y), 0.0, 0
        for part in batches(size, solver, key.of("shuffle").generator()):
            np.take(inputs, part.order, axis=0, out=xs, mode="clip")
            np.take(hot, part.order, axis=0, out=hots, mode="clip")
            for at in range(0, part.steps * solver.batch_size, solver.batch_size):
                stop = min(at + solver.batch_size, size)
                batch_hot = hots[at:stop]
                p = self._forward(xs[at:stop])
                if part.last:
                    loss -= float(np.log(np.maximum((p * batch_hot).sum(axis=1), 1e-30)).sum())
                    seen += stop - at
                self._backward(p, batch_hot, solver.lr / (stop - at), shrink, pull)
        self._store(start.numpy(), out.numpy())
        return Trained(size, loss / seen if seen else 0.0)

    def _load(self, vector: F32) -> None:
        at = 0
        for w in self.weights:
            o, i = w.shape[0], w.shape[1] - 1
            w[:, :i] = vector[at : at + o * i].reshape(o, i)
            w[:, i] = vector[at + o * i : at + o * (i + 1)]
            at += w.size

    def _store(self, start: F32, out: F32) -> None:
        at = 0
        for w in self.weights:
            o, i = w.shape[0], w.shape[1] - 1
            out[at : at + o * i] = w[:, :i].reshape(-1)
            out[at + o * i : at + o * (i + 1)] = w[:, i]
            at += w.size
        np.subtract(out, start, out=out)

    def _fit(self, batch: int) -> None:
        if batch == self.batch:
            return
        self.batch = batch
        self.hidden: list[F32] = [np.ones((batch, o + 1), np.float32) for o in self.stack.widths[1:-1]]
        self.logits: F32 = np.empty((batch, self.stack.widths[-1]), np.float32)
        self.deltas: list[F32] = [np.empty((batch, o + 1), np.float32) for o in self.stack.widths[1:-1]]

    def _inputs(self, x: Tensor) -> F32:
        flat = x.numpy().reshape(len(x), -1)
        inputs: F32 = np.ones((len(flat), flat.shape[1] + 1), np.float32)
        inputs[:, :-1] = flat
        return inputs

    def _regulariser(self, solver: Solver, mu: float) -> tuple[list[F32 | None], list[F32 | None]]:
        """What each step multiplies the weights by, and what it adds: ``1 - lr (2 l2 + mu)`` and ``lr mu w_start``."""
        shrink: list[F32 | None] = []
        pull: list[F32 | None] = []
        for w, decayed in zip(self.weights, self.stack.decayed, strict=True):
            row = np.full(w.shape[1], 1 - solver.lr * mu, np.float32)
            if decayed:
                row[:-1] -= np.float32(2 * solver.lr * solver.l2)
            shrink.append(row if np.any(row != 1) else None)
            pull.append(np.float32(solver.lr * mu) * w if mu else None)
        return shrink, pull

    def _forward(self, x: F32) -> F32:
        b = len(x)
        self.inputs: list[F32] = [x]
        for w, h in zip(self.weights[:-1], self.hidden, strict=True):
            z = h[:b]
            np.maximum(np.dot(self.inputs[-1], w.T), 0, out=z[:, :-1])
            self.inputs.append(z)
        p = self.logits[:b]
        np.dot(self.inputs[-1], self.weights[-1].T, out=p)
        p -= np.maximum.reduce(p, axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= np.add.reduce(p, axis=1, keepdims=True)
        return p

    def _backward(self, p: F32, hot: F32, rate: float, shrink: list[F32 | None], pull: list[F32 | None]) -> None:
        p -= hot
        delta = p
        for at in range(len(self.weights) - 1, -1, -1):
            w, h = self.weights[at], self.inputs[at]
            if at:
                below = self.deltas[at - 1][: len(h)]
                np.dot(delta, w, out=below)
                np.multiply(below, h > 0, out=below)
            if (row := shrink[at]) is not None:
                w *= row
            if (anchor := pull[at]) is not None:
                w += anchor
            # w is C-ordered, so w.T is what Fortran BLAS writes in place: w.T <- w.T - rate h^T delta
            sgemm(-rate, h.T, delta.T, beta=1.0, c=w.T, trans_b=1, overwrite_c=1)
            if at:
                delta = np.ascontiguousarray(below[:, :-1])

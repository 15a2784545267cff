"""The closed form for stacks of Linear and ReLU under cross-entropy, behind convolutions of a few
channels or none.

With ``h_0 = x``, layer by layer, first convolutions, then dense ones:

    h_l = relu(maxpool(W_l * h_{l-1} + b_l)),   h_l = relu(W_l h_{l-1} + b_l)
    delta_L = (softmax(h_L) - onehot(y)) / B,   delta_{l-1} = W_l^T delta_l * [h_{l-1} > 0]
    W_l <- W_l - lr (delta_l h_{l-1}^T + 2 l2 W_l + mu (W_l - W_l^start))

The last layer has no relu. It equals autograd to rounding, and is chosen by the shape of the
module, not by its name.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.vectors import Layout
from coterie.local.sgd import Trained, batches

MANY = 500  # samples from which on scoring takes threads
FEW = 256  # channels in times channels out, above which torch's convolutions are as fast


@dataclass(frozen=True, slots=True)
class Conv:
    """A square convolution of stride 1, pooled by squares of two, then relu."""

    channels: int
    out: int
    kernel: int
    padding: int


@dataclass(frozen=True, slots=True)
class Stack:
    """The shape of ``(Conv2d [ReLU] MaxPool2d [ReLU])* [Flatten] Linear (ReLU Linear)*``, and of
    nothing that is more.

    Args:
        convs: of the convolutions.
        widths: of the dense layers, from input to classes.
        decayed: which kernels decay.
    """

    convs: tuple[Conv, ...]
    widths: tuple[int, ...]
    decayed: tuple[bool, ...]

    @classmethod
    def of(cls, module: nn.Module, decay: tuple[str, ...] = ()) -> Stack | None:
        """Read the shape of a module, ``None`` if it is anything else.

        Example:
            >>> Stack.of(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))).widths
            (6, 4, 3)
            >>> Stack.of(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))) is None
            True
            >>> images = nn.Sequential(nn.Conv2d(1, 2, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
            >>> Stack.of(images).convs
            (Conv(channels=1, out=2, kernel=5, padding=0),)
        """
        if type(module) not in (nn.Sequential, nn.Linear) or _hooked(module):
            return None
        named = [
            (n, m)
            for n, m in module.named_modules(remove_duplicate=False)
            if type(m) is not nn.Sequential
        ]
        convs: list[tuple[str, Conv]] = []
        while len(named) > 3 and type(named[0][1]) is nn.Conv2d:
            after = [m for _, m in named[1:3]]
            if {type(m) for m in after} != {nn.ReLU, nn.MaxPool2d} or not all(map(_halves, after)):
                return None
            name = named[0][0]
            conv = _conv(named[0][1])
            if conv is None or (convs and convs[-1][1].out != conv.channels):
                return None
            convs = [*convs, (name, conv)]
            named = named[3:]
        if named and type(named[0][1]) is nn.Flatten and named[0][1].start_dim == 1:
            named = named[1:]
        elif convs:
            return None
        kinds = [type(m) for _, m in named]
        if (
            not kinds
            or kinds != ([nn.Linear, nn.ReLU] * (len(kinds) // 2 + 1))[: len(kinds)]
            or len(kinds) % 2 == 0
        ):
            return None
        linear: list[tuple[str, Any]] = named[::2]
        names = [n for n, _ in convs + linear]
        if any(m.bias is None for _, m in linear) or len(set(names)) < len(names):
            return None
        frozen = any(not p.requires_grad for p in module.parameters())
        if frozen or len(Layout.of(module).names) != 2 * len(names):
            return None
        widths = (linear[0][1].in_features, *(m.out_features for _, m in linear))
        return cls(
            tuple(c for _, c in convs),
            widths,
            tuple(f"{n}.weight".lstrip(".") in decay for n in names),
        )

    def table(self, shape: tuple[int, ...]) -> IntArray:
        """int64 ``[l, 7]``, the convolutions for samples of a shape as ``kernels.look`` reads them.

        Raises:
            ValueError: if they do not fit.
        """
        rows = []
        begin = 0
        features = math.prod(shape)
        if self.convs and len(shape) != 3:
            raise ValueError(f"convolutions want images, got samples of shape {shape}")
        for conv in self.convs:
            channels, height, width = shape
            if channels != conv.channels:
                raise ValueError(
                    f"a convolution of {conv.channels} channels, got images of shape {shape}"
                )
            rows.append((channels, height, width, conv.padding, conv.kernel, conv.out, begin))
            begin += conv.out * (channels * conv.kernel**2 + 1)
            down, across = ((n + 2 * conv.padding - conv.kernel + 1) // 2 for n in (height, width))
            if min(down, across) < 1:
                raise ValueError(
                    f"a convolution of {conv.kernel} and pooling by 2, got images of shape {shape}"
                )
            shape = (conv.out, down, across)
            features = conv.out * down * across
        if features != self.widths[0]:
            raise ValueError(f"the first dense layer has {self.widths[0]} inputs, got {features}")
        return np.array(rows, np.int64).reshape(-1, 7)


def _hooked(module: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(m, kind) for m in module.modules() for kind in kinds)


def _halves(module: nn.Module) -> bool:
    """Whether a layer is a relu, or pools by squares of two."""
    if not isinstance(module, nn.MaxPool2d):
        return True
    pair = (module.kernel_size, module.stride, module.padding, module.dilation)
    return (
        [_one(value) for value in pair] == [2, 2, 0, 1]
        and not module.ceil_mode
        and not module.return_indices
    )


def _conv(module: Any) -> Conv | None:
    """A convolution as the kernels know it, ``None`` for another kind."""
    kernel, padding, stride, dilation = map(
        _one, (module.kernel_size, module.padding, module.stride, module.dilation)
    )
    known = (stride, dilation, module.groups, module.padding_mode) == (1, 1, 1, "zeros")
    few = module.in_channels * module.out_channels <= FEW
    if not (known and few and module.bias is not None and kernel and isinstance(padding, int)):
        return None
    return Conv(module.in_channels, module.out_channels, kernel, padding)


def _one(value: Any) -> Any:
    """The number that a pair is twice, or ``None``."""
    if not isinstance(value, tuple):
        return value
    if len(set(value)) == 1:
        return value[0]
    return None


def _kernels() -> Any:
    """The compiled code; a process that never needs it does not load it."""
    return import_module("coterie.local.kernels")


class CompiledTrainer:
    """Local SGD in closed form, and scoring."""

    def __init__(self, stack: Stack) -> None:
        _kernels()
        self.stack = stack
        self.widths = np.array(stack.widths)
        self.decayed = np.array(stack.decayed)

    def train(
        self, x: Tensor, y: Tensor, start: Tensor, out: Tensor, solver: Solver, mu: float, key: Key
    ) -> Trained:
        convs = self.stack.table(tuple(x.shape[1:]))
        labels = y.numpy()
        rows = x.numpy().reshape(len(x), math.prod(x.shape[1:]))
        self._check(labels)
        passes = list(batches(len(y), solver, key.of("shuffle").generator()))
        orders = [part.order[: part.steps * solver.batch_size] for part in passes]
        begin = start.numpy()
        vector = begin.copy()
        loss: Any = 0.0
        if passes:
            loss = _kernels().descend(
                vector,
                begin,
                convs,
                self.widths,
                self.decayed,
                rows,
                labels,
                np.concatenate(orders),
                np.cumsum([len(order) for order in orders]),
                solver.batch_size,
                solver.lr,
                solver.momentum,
                solver.l2,
                mu,
            ) / len(orders[-1])
        np.subtract(vector, begin, out=out.numpy())
        return Trained(len(y), float(loss))

    def score(
        self, x: Tensor, y: Tensor, rows: IntArray, vector: Tensor
    ) -> tuple[FloatArray, FloatArray]:
        """Of pooled samples ``rows``, whether a model ``[d]`` is right, and its cross-entropy."""
        convs = self.stack.table(tuple(x.shape[1:]))
        labels = y.numpy()
        samples = x.numpy().reshape(len(x), math.prod(x.shape[1:]))
        self._check(labels[rows])
        correct, loss = np.empty((2, len(rows)), np.float32)
        weights = vector.contiguous().numpy()

        def part(at: slice) -> None:
            _kernels().score(
                weights, convs, self.widths, samples, labels, rows[at], correct[at], loss[at]
            )

        threads = torch.get_num_threads() if len(rows) > MANY else 1
        ends = np.linspace(0, len(rows), threads + 1).astype(int).tolist()
        parts = [slice(a, b) for a, b in pairwise(ends)]
        if threads == 1:
            part(parts[0])
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(part, parts))
        return correct.astype(np.float64), loss.astype(np.float64)

    def _check(self, labels: IntArray) -> None:
        if len(labels) and not 0 <= labels.min() <= labels.max() < self.stack.widths[-1]:
            got = f"{labels.min()} to {labels.max()}"
            raise IndexError(f"a model of {self.stack.widths[-1]} classes, got labels from {got}")

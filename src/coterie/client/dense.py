"""The closed form for stacks of Linear and ReLU under cross-entropy.

With ``h_0 = x``, layer by layer:

    h_l = relu(W_l h_{l-1} + b_l),   delta_L = (softmax(h_L) - onehot(y)) / B
    delta_{l-1} = W_l^T delta_l * [h_{l-1} > 0]
    W_l <- W_l - lr (delta_l h_{l-1}^T + 2 l2 W_l + mu (W_l - W_l^start))

The last layer has no relu. It equals autograd to rounding, and is chosen by the shape of the module, not by its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from coterie.client.sgd import Trained, batches
from coterie.keys import Key
from coterie.types import Solver
from coterie.vectors import Layout


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


class Dense:
    """Local SGD in closed form."""

    def __init__(self, stack: DenseStack) -> None:
        from coterie.client.kernels import descend  # compiles, or loads what was compiled

        self.stack, self.descend = stack, descend
        self.widths = np.array(stack.widths)
        self.decayed = np.array(stack.decayed)

    def train(self, x: Tensor, y: Tensor, start: Tensor, out: Tensor, solver: Solver, mu: float, key: Key) -> Trained:
        rows, labels = x.numpy().reshape(len(x), math.prod(x.shape[1:])), y.numpy()
        begin, size, loss = start.numpy(), len(y), 0.0
        vector = begin.copy()
        for part in batches(size, solver, key.of("shuffle").generator()):
            order = part.order[: part.steps * solver.batch_size]
            total = self.descend(
                vector, begin, self.widths, self.decayed, rows, labels, order,
                solver.batch_size, solver.lr, solver.l2, mu, part.last,
            )  # fmt: skip
            loss = float(total) / len(order)
        np.subtract(vector, begin, out=out.numpy())
        return Trained(size, loss)

"""A layer of GRUs with its gradient written out, for training on a CPU.

torch's own GRU records every gate of every step for autograd: some thirty small calls a step, which
take several times as long as their arithmetic. (Its LSTM is one call of oneDNN, which is faster than
what could be written here.) Here products over inputs are one call for all steps and directions, and
the steps are another, of compiled code (``coterie.local.kernels.gru``); so are their gradients. What
only one of these calls hands to the next lies in memory that is used again and again, so that it
stays in the processor's cache.

Shapes: ``T`` steps, ``B`` samples, ``I`` inputs, ``H`` values of the state, ``D`` directions.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from coterie.core.arrays import IntArray
from coterie.local import aligned


@cache
def gru_kernels() -> Any:
    """The compiled code; a process that trains no GRU does not load it."""
    return import_module("coterie.local.kernels.gru")


class Workspace(threading.local):
    """Memory that is written anew by each call that uses it, of each thread its own."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def room(self, name: str, rows: int, columns: int) -> Tensor:
        """An array ``[rows, columns]`` with anything in it, in the memory of this name."""
        size = rows * columns
        kept = self._kept.get(name)
        if kept is None or len(kept) < size:
            # Whatever mode the caller is in: a later one may be in another.
            with torch.inference_mode(False):
                kept = torch.empty(size, dtype=torch.float32, device="cpu")
            self._kept[name] = kept
        return kept[:size].view(rows, columns)


_workspace = Workspace()


class GruLayer(torch.autograd.Function):
    """The states of a layer of GRUs, which begin at zero; the formulas are in
    ``coterie.local.kernels.gru``.

    Arguments are the inputs ``[T B, I]``, and ``rows [D, T, B]``: which row of inputs and outputs
    belongs to a step and a sample, in the order in which each direction reads. Then, of each direction,
    torch's parameters ``weight_ih [3 H, I]``, ``weight_hh [3 H, H]``, ``bias_ih [3 H]`` and ``bias_hh
    [3 H]``. The result is ``[T B, D H]``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: IntArray, *parameters: Tensor) -> Tensor:
        kernels = gru_kernels()
        directions = len(rows)
        h = parameters[1].shape[1]
        # All directions in one product.
        w_i = torch.cat(parameters[0::4])
        b_i = torch.cat(parameters[2::4])
        transposed = torch.stack([w_h.T for w_h in parameters[1::4]])
        b_h = torch.stack(parameters[3::4])
        products = _workspace.room("products", len(x), directions * 3 * h)
        torch.addmm(b_i, x, w_i.T, out=products)
        left = _room_for_memory(rows.shape, h)
        outputs = np.empty((len(x), directions * h), np.float32)
        memory = _memory(left, rows.shape, h)
        kernels.gru_forward(
            products.numpy(), rows, transposed.numpy(), b_h.numpy(), memory, outputs
        )
        ctx.rows = rows
        # Saved, and not kept by the node: it would live as long as somebody holds the loss.
        ctx.save_for_backward(x, w_i, transposed, torch.from_numpy(left))
        return torch.from_numpy(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kernels = gru_kernels()
        x, w_i, transposed, left = ctx.saved_tensors
        directions, h, gates = transposed.shape
        memory = _memory(left.numpy(), ctx.rows.shape, h)
        of_inputs = _workspace.room("of inputs", len(x), directions * gates)
        of_products = _workspace.room("of products", directions * len(x), gates)
        of_products = of_products.view(directions, len(x), gates)
        of_biases = torch.empty(directions, 2, gates)
        written = kernels.GruGradient(of_inputs.numpy(), of_products.numpy(), of_biases.numpy())
        sent = gradient.contiguous().numpy()
        kernels.gru_backward(sent, ctx.rows, transposed.numpy(), memory, written)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = of_inputs @ w_i
        nothing: list[Tensor | None] = [None] * directions
        of_w_i = of_w_h = nothing
        asked = ctx.needs_input_grad[2:]
        if any(asked[0::4]):
            of_w_i = list((of_inputs.T @ x).chunk(directions))
        if any(asked[1::4]):
            before = torch.from_numpy(memory.states[:, :-1].reshape(directions, len(x), h))
            of_w_h = list(torch.bmm(of_products.transpose(1, 2), before))
        found: list[Tensor | None] = []
        for one in range(directions):
            found += [of_w_i[one], of_w_h[one], *of_biases[one]]
        return of_x, None, *found


def _room_for_memory(shape: tuple[int, ...], h: int) -> NDArray[np.float32]:
    """What a pass leaves, in one piece."""
    directions, steps, samples = shape
    return aligned.empty(directions * (5 * steps + 1) * samples * h)


def _memory(left: NDArray[np.float32], shape: tuple[int, ...], h: int) -> Any:
    """What a pass leaves, as the kernels know it.

    Args:
        left: of `_room_for_memory`.
        shape: directions, steps, samples.
        h: values of the state.
    """
    directions, steps, samples = shape
    once = directions * steps * samples * h
    gates, new, recurrent, states = np.split(left, [2 * once, 3 * once, 4 * once])
    return gru_kernels().GruMemory(
        gates.reshape(directions, steps, samples, 2 * h),
        new.reshape(directions, steps, samples, h),
        recurrent.reshape(directions, steps, samples, h),
        states.reshape(directions, steps + 1, samples, h),
    )

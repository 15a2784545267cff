"""A layer of GRUs with its gradient written out, for training on a CPU.

torch's own GRU records every gate of every step for autograd: some thirty small calls a step, which
take several times as long as their arithmetic. (Its LSTM is one call of oneDNN, which is faster than
what could be written here.) Here products over inputs are one call for all steps, and all steps of a
direction are another, of compiled code (``coterie.local.kernels.gru``); so are their gradients. What
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

    Arguments are the inputs ``[T B, I]`` and, of each direction, ``rows [T, B]``: which row of inputs
    and outputs belongs to a step and a sample, in the order in which the direction reads. Then, of
    each direction, torch's parameters ``weight_ih [3 H, I]``, ``weight_hh [3 H, H]``, ``bias_ih [3 H]``
    and ``bias_hh [3 H]``. The result is ``[T B, D H]``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: tuple[IntArray, ...], *parameters: Tensor) -> Tensor:
        kernels = gru_kernels()
        steps, samples = rows[0].shape
        h = parameters[1].shape[1]
        outputs = np.empty((len(x), len(rows) * h), np.float32)
        products = _workspace.room("products", len(x), 3 * h)
        memories = []
        for direction, order in enumerate(rows):
            w_i, w_h, b_i, b_h = parameters[4 * direction :][:4]
            torch.addmm(b_i, x, w_i.T, out=products)
            memory = kernels.GruMemory(
                aligned.empty(steps, samples, 2 * h),
                aligned.empty(steps, samples, h),
                aligned.empty(steps, samples, h),
                aligned.empty(steps + 1, samples, h),
            )
            memory.states[0] = 0
            kernels.gru_forward(
                products.numpy(), order, _array(w_h), _array(b_h), memory, outputs, direction * h
            )
            memories.append(memory)
        ctx.rows = rows
        # Saved, and not kept by the node: it would live as long as somebody holds the loss.
        left = [torch.from_numpy(array) for memory in memories for array in memory]
        ctx.save_for_backward(x, *parameters[0::4], *parameters[1::4], *left)
        return torch.from_numpy(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kernels = gru_kernels()
        directions = len(ctx.rows)
        x, *saved = ctx.saved_tensors
        left = [one.numpy() for one in saved[2 * directions :]]
        sent = _array(gradient)
        of_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        found: list[Tensor | None] = []
        for direction, order in enumerate(ctx.rows):
            w_i = saved[direction]
            w_h = saved[directions + direction]
            memory = kernels.GruMemory(*left[4 * direction :][:4])
            h = w_h.shape[1]
            of_inputs = _workspace.room("of inputs", len(x), 3 * h)
            of_products = _workspace.room("of products", len(x), 3 * h)
            of_biases = np.empty((2, 3 * h), np.float32)
            written = kernels.GruGradient(of_inputs.numpy(), of_products.numpy(), of_biases)
            kernels.gru_backward(sent, direction * h, order, _array(w_h.T), memory, written)
            before = torch.from_numpy(memory.states[:-1].reshape(-1, h))
            asked = ctx.needs_input_grad[2 + 4 * direction :]
            found.append(of_inputs.T @ x if asked[0] else None)
            found.append(of_products.T @ before if asked[1] else None)
            found += torch.from_numpy(of_biases)
            if of_x is not None:
                of_x.addmm_(of_inputs, w_i)
        return of_x, None, *found


def _array(values: Tensor) -> NDArray[np.float32]:
    """A tensor as compiled code takes it."""
    return values.detach().contiguous().numpy()

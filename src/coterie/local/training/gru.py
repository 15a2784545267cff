"""A layer of GRUs with its gradient written out, for training on a CPU.

torch's own GRU records every gate of every step for autograd: some thirty small calls a step, which
take several times as long as their arithmetic. (Its LSTM is one call of oneDNN, which is faster than
what could be written here.) Here products over inputs are one call for all steps and directions, and
the steps are another, of compiled code (``coterie.local.kernels.gru``); so are their gradients. What
only one of these calls hands to the next lies in memory that is used again and again, so that it
stays in the processor's cache.

Shapes: ``T`` steps, ``B`` samples, ``I`` inputs, ``H`` values of the state, ``D`` directions.

`use_fused_gru` gives the GRU layers of a network a class that trains so, in the place of their own:
parameters, their names and what the layers compute stay the same, up to rounding. Training is about
three times as fast with ten samples and 64 values of the state, less with more. What the fast way
does not know (packed sequences, given first states, dropout between layers, projections, other
numbers than float32, other devices) goes the way of torch.
"""

from __future__ import annotations

import threading
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from coterie.core.arrays import IntArray
from coterie.core.startup import starting_up

_MOST_ARRAYS = 64  # that a thread remembers by their shapes; texts may be of any length


@cache
@starting_up()
def gru_kernels() -> Any:
    """The compiled code; a process that trains no GRU does not load it."""
    return import_module("coterie.local.kernels.gru")


class Workspace(threading.local):
    """Memory that each call overwrites; every thread has its own."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        # Arrays in that memory by name and shape: a step asks for the same ones as the step before.
        self._made: dict[tuple[str, int, int], Tensor] = {}

    def room(self, name: str, rows: int, columns: int) -> Tensor:
        """An array ``[rows, columns]`` with anything in it, in the memory of this name."""
        made = self._made.get((name, rows, columns))
        if made is not None:
            return made
        size = rows * columns
        # Whatever mode the caller is in: a later one may be in another.
        with torch.inference_mode(False):
            kept = self._kept.get(name)
            if kept is None or len(kept) < size:
                kept = self._kept[name] = torch.empty(size, dtype=torch.float32, device="cpu")
                self._made = {}
            made = kept[:size].view(rows, columns)
        if len(self._made) == _MOST_ARRAYS:
            self._made = {}
        self._made[name, rows, columns] = made
        return made


_workspace = Workspace()


@cache
def multiplies_by_blas(samples: int, h: int) -> bool:
    """Whether a library multiplies states faster than the loops of ``coterie.local.kernels.dense``.

    OpenBLAS does for processors with AVX-512, up to a million products a call. It copies larger
    matrices, and all of them on other processors, into another order first, which takes longer than
    multiplying a few samples.
    """
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and samples * 3 * h * h <= 10**6


class GruLayer(torch.autograd.Function):
    """The states of a layer of GRUs, which begin at zero, and the last state of each direction; the
    formulas are in ``coterie.local.kernels.gru``.

    Arguments: the inputs ``x``, whose first two dimensions are steps and samples in either order;
    ``rows [D, T, B]``, the row of flat inputs of a step and a sample, in the order in which each
    direction reads; then torch's parameters of each direction. Results: the outputs, ``D H`` for
    each input, and the last states ``[D, B, H]``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: IntArray, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        kernels = gru_kernels()
        directions = len(rows)
        flat = x.flatten(0, 1)
        # All directions in one product.
        w_i = torch.cat(parameters[0::4])
        b_i = torch.cat(parameters[2::4])
        b_h = torch.stack(parameters[3::4])
        transposed = torch.stack([w_h.T for w_h in parameters[1::4]])
        h = transposed.shape[1]
        inputs = _workspace.room("inputs", len(flat), directions * 3 * h)
        torch.addmm(b_i, flat, w_i.T, out=inputs)
        left = _room_for_memory(rows.shape, h)
        outputs = _floats(*x.shape[:2], directions * h)
        last = _floats(directions, rows.shape[2], h)
        kernels.gru_forward(
            inputs.numpy(),
            rows,
            transposed.numpy(),
            b_h.numpy(),
            _memory(left, rows.shape, h),
            kernels.GruResults(outputs.numpy().reshape(len(flat), -1), last.numpy()),
            multiplies_by_blas(rows.shape[2], h),
        )
        ctx.rows = rows
        # Saved, and not kept by the node: it would live as long as somebody holds the loss.
        ctx.save_for_backward(x, w_i, transposed, left)
        return outputs, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_outputs: Tensor, of_last: Tensor) -> tuple[Tensor | None, ...]:
        kernels = gru_kernels()
        x, w_i, transposed, left = ctx.saved_tensors
        directions, h, gates = transposed.shape
        flat = x.flatten(0, 1)
        memory = _memory(left, ctx.rows.shape, h)
        # The gradient takes the memory of the inputs to the gates, which are not read again.
        of_inputs = _workspace.room("inputs", len(flat), directions * gates)
        of_products = _workspace.room("of products", directions * len(flat), gates)
        of_products = of_products.view(directions, len(flat), gates)
        of_biases = _floats(2 * directions, gates)
        of_results = kernels.GruResults(
            of_outputs.contiguous().numpy().reshape(len(flat), -1), of_last.contiguous().numpy()
        )
        kernels.gru_backward(
            of_results,
            ctx.rows,
            transposed.numpy(),
            memory,
            kernels.GruGradient(
                of_inputs.numpy(),
                of_products.numpy(),
                of_biases.numpy().reshape(directions, 2, gates),
            ),
            multiplies_by_blas(ctx.rows.shape[2], h),
        )
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (of_inputs @ w_i).view(x.shape)
        nothing: list[Tensor | None] = [None] * directions
        of_w_i = of_w_h = nothing
        asked = ctx.needs_input_grad[2:]
        if any(asked[0::4]):
            of_w_i = list((of_inputs.T @ flat).chunk(directions))
        if any(asked[1::4]):
            before = torch.from_numpy(memory.states[:, :-1].reshape(directions, len(flat), h))
            of_w_h = list(torch.bmm(of_products.transpose(1, 2), before))
        of_b = of_biases.unbind()
        found: list[Tensor | None] = []
        for one in range(directions):
            found += [of_w_i[one], of_w_h[one], of_b[2 * one], of_b[2 * one + 1]]
        return of_x, None, *found


def _room_for_memory(shape: tuple[int, ...], h: int) -> Tensor:
    """What a pass leaves, in one piece."""
    directions, steps, samples = shape
    return _floats(directions * (5 * steps + 1) * samples * h)


def _floats(*shape: int) -> Tensor:
    """Values in which anything is, float32 on the CPU whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _memory(left: Tensor, shape: tuple[int, ...], h: int) -> Any:
    """What a pass leaves, as the kernels know it."""
    directions, steps, samples = shape
    once = directions * steps * samples * h
    values = left.numpy()
    return gru_kernels().GruMemory(
        values[: 2 * once].reshape(directions, steps, 2, samples, h),
        values[2 * once : 3 * once].reshape(directions, steps, samples, h),
        values[3 * once : 4 * once].reshape(directions, steps, samples, h),
        values[4 * once :].reshape(directions, steps + 1, samples, h),
    )


class FusedGRU(nn.GRU):
    """A GRU that trains by `GruLayer`."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        if hx is not None or not _knows(self, input):
            return super().forward(input, hx)
        x = input
        last = []
        for layer in range(self.num_layers):
            x, ends = _layer(self, x, _names(layer, self.bidirectional))
            last.append(ends)
        return x, last[0] if len(last) == 1 else torch.cat(last)


def _layer(gru: nn.GRU, x: Tensor, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """What a layer puts out, in the order of its inputs, and the last state of each direction."""
    rows = _rows(x.shape[:2], gru.batch_first, len(names))
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    parameters = [getattr(gru, part + name) for name in names for part in parts]
    outputs, last = GruLayer.apply(x, rows, *parameters)
    return outputs, last


@lru_cache(maxsize=64)
def _rows(shape: tuple[int, int], batch_first: bool, directions: int) -> IntArray:
    """Which row of flat inputs belongs to a step and a sample, int64 ``[D, T, B]``, in the order in
    which each direction reads."""
    rows = np.arange(shape[0] * shape[1]).reshape(shape)
    if batch_first:
        rows = rows.T
    return np.ascontiguousarray(np.stack([rows, rows[::-1]][:directions]))


def compile_gru(module: nn.Module) -> None:
    """Load the compiled code that trains the GRU layers of a network, if it has any, and compile it
    where this machine never did."""
    if any(type(layer) in (nn.GRU, FusedGRU) for layer in module.modules()):
        with starting_up():
            gru_kernels().load_gru()


def use_fused_gru(module: nn.Module) -> nn.Module:
    """Change a network, and return it, so that its GRU layers train by `FusedGRU`. Subclasses of
    ``nn.GRU`` are left as they are."""
    for layer in module.modules():
        if type(layer) is nn.GRU:
            # The object stays, with its parameters and hooks: all that changes is how it computes.
            layer.__class__ = FusedGRU
    return module


def _knows(layer: nn.RNNBase, x: Any) -> bool:
    """Whether the fast way computes what the layer does of these inputs."""
    drops = layer.dropout > 0 and layer.num_layers > 1 and layer.training
    return layer.bias and not drops and isinstance(x, Tensor) and _is_plain(x)


def _is_plain(x: Tensor) -> bool:
    """Whether these are float32 sequences of several samples on the CPU."""
    plain = x.dim() == 3 and x.dtype == torch.float32 and x.device.type == "cpu"
    return plain and x.numel() > 0 and not torch.is_autocast_enabled("cpu")


def _names(layer: int, bidirectional: bool) -> tuple[str, ...]:
    """How the parameters of a layer end, direction by direction."""
    forward = f"_l{layer}"
    if bidirectional:
        return forward, f"{forward}_reverse"
    return (forward,)

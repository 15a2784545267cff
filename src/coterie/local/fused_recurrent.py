"""GRU layers whose training on a CPU is faster than torch's: about three times with ten samples and
64 values of the state, less with more.

`use_fused_gru` gives the GRU layers of a network this class in the place of their own: parameters, their
names and what the layers compute stay the same, up to rounding. What the fast way does not
know (packed sequences, given first states, dropout between layers, projections, other numbers than
float32, other devices) goes the way of torch. Used by `coterie.local.sgd.Autograd`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import IntArray
from coterie.local.recurrence import GruLayer, gru_kernels


class FusedGRU(nn.GRU):
    """A GRU that trains by `GruLayer`."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        if hx is not None or not _knows(self, input):
            found: tuple[Any, Tensor] = super().forward(input, hx)
            return found
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
        gru_kernels().load()


def use_fused_gru(module: nn.Module) -> nn.Module:
    """The same network, whose GRU layers train by `FusedGRU`. Returns it.

    Args:
        module: the network; it is changed. Layers of a subclass of ``nn.GRU`` are left as they are.

    Example:
        >>> type(use_fused_gru(nn.Sequential(nn.GRU(3, 2)))[0]).__name__
        'FusedGRU'
    """
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

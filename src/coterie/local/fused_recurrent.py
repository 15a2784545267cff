"""GRU layers whose training on a CPU is about twice as fast as torch's.

`use_fused_gru` gives the GRU layers of a network this class in the place of their own: parameters, their
names and what the layers compute stay the same, up to rounding. What the fast way does not
know (packed sequences, given first states, dropout between layers, projections, other numbers than
float32, other devices) goes the way of torch. Used by `coterie.local.sgd.Autograd`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from coterie.local.recurrence import GruRecurrence


class FusedGRU(nn.GRU):
    """A GRU that trains by `GruRecurrence`."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        if hx is not None or not _knows(self, input):
            found: tuple[Any, Tensor] = super().forward(input, hx)
            return found
        x = _steps_first(self, input)
        last = []
        for layer in range(self.num_layers):
            names = _names(layer, self.bidirectional)
            w_i, w_h, b_h = (
                _stacked(self, part, names) for part in ("weight_ih", "weight_hh", "bias_hh")
            )
            inputs = _products(x, w_i, _stacked(self, "bias_ih", names))
            states = GruRecurrence.apply(inputs, w_h, b_h)
            last.append(states[-1])
            x = _in_order(states)
        return _as_asked(self, x), torch.cat(last)


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


def _steps_first(layer: nn.RNNBase, x: Tensor) -> Tensor:
    """Inputs as ``[T, B, inputs]``."""
    return x.transpose(0, 1) if layer.batch_first else x


def _as_asked(layer: nn.RNNBase, x: Tensor) -> Tensor:
    """Outputs in the order of the layer's inputs."""
    return x.transpose(0, 1) if layer.batch_first else x


def _names(layer: int, bidirectional: bool) -> tuple[str, ...]:
    """How the parameters of a layer end, direction by direction."""
    forward = f"_l{layer}"
    if bidirectional:
        return forward, f"{forward}_reverse"
    return (forward,)


def _stacked(layer: nn.Module, part: str, names: tuple[str, ...]) -> Tensor:
    """A parameter of all directions, ``[D, ...]``."""
    return torch.stack([getattr(layer, f"{part}{name}") for name in names])


def _products(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What all steps add to the gates, ``[T, D, B, gates]``, each direction in its own order."""
    flat = x.flatten(0, 1)
    found = []
    for direction in range(len(weight)):
        product = torch.addmm(bias[direction], flat, weight[direction].T)
        product = product.unflatten(0, x.shape[:2])
        found.append(product.flip(0) if direction else product)
    return torch.stack(found, dim=1)


def _in_order(states: Tensor) -> Tensor:
    """States ``[T, D, B, H]`` as outputs ``[T, B, D H]``, all in the order of the inputs."""
    if states.shape[1] == 1:
        return states[:, 0]
    return torch.cat([states[:, 0], states[:, 1].flip(0)], dim=2)

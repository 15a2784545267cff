"""Flat parameter vectors: the layout of a module as one row of ``[k, d]``.

The order is the module's own: layer by layer, weight then bias, C order. Floating-point buffers
(running statistics) follow the parameters, so that any module round-trips; they move with the model
and take no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Layout:
    """Names, shapes and offsets of a module's parameters in its flat vector.

    Example:
        >>> layout = Layout.of(nn.Linear(3, 2))
        >>> layout.d, layout.names
        (8, ('weight', 'bias'))
        >>> layout.span("bias")
        slice(6, 8, None)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Read the layout of a module."""
        named = _named(module)
        count = sum(1 for _ in module.named_parameters())
        return cls(tuple(n for n, _ in named), tuple(tuple(t.shape) for _, t in named), count)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def d(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def span(self, name: str) -> slice:
        """Where one tensor lies in the flat vector."""
        at = self.names.index(name)
        start = sum(self.sizes[:at])
        return slice(start, start + self.sizes[at])

    def final_layer(self) -> slice:
        """The slice of the classifier: the last weight matrix and the bias that follows it."""
        # Biases, and scales of a normalisation, have one dimension.
        last = max(i for i in range(self.trainable) if len(self.shapes[i]) >= 2)
        start = sum(self.sizes[:last])
        return slice(start, sum(self.sizes[: self.trainable]))

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors of a flat vector, as views into it."""
        parts = torch.split(vector, list(self.sizes))
        return {n: p.view(s) for n, s, p in zip(self.names, self.shapes, parts, strict=True)}


def _named(module: nn.Module) -> list[tuple[str, Tensor]]:
    # Counters, as the number of batches of a normalisation, are no numbers that one can average.
    buffers = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
    return [*module.named_parameters(), *buffers]


def flatten(module: nn.Module) -> Tensor:
    """The module's parameters as one float32 vector ``[d]`` (a copy).

    Example:
        >>> flatten(nn.Linear(3, 2)).shape
        torch.Size([8])
    """
    return torch.cat([t.detach().reshape(-1).to(torch.float32) for _, t in _named(module)])


def bind(module: nn.Module, vector: Tensor) -> nn.Module:
    """Make the module's parameters views into ``vector``: writing one writes the other. Returns the
    module."""
    views = Layout.of(module).views(vector)
    for name, tensor in _named(module):
        # `data`, so that parameters stay the objects that an optimiser or a hook may hold.
        tensor.data = views[name]
    return module


def state_dict(layout: Layout, vector: Tensor) -> Mapping[str, Tensor]:
    """The named tensors of a flat vector, as copies, to save or to load into a module."""
    return {name: view.clone() for name, view in layout.views(vector).items()}

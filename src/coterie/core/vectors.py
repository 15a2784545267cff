"""Flat parameter vectors: the layout of a module as one row of ``[k, d]``.

The vector is sent between server and clients. The order is that of the module: layer by layer,
weight then bias, C order. Floating-point buffers (running statistics) follow the parameters; they
move with the model and take no gradient.

Three kinds of tensors do not move, and stay in the module: frozen parameters (``requires_grad``
off) with the running statistics of layers that are frozen whole, whole-number buffers, and buffers
that are not saved with the module. A weight with two names moves once.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from coterie.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Layout:
    """Names, shapes and offsets of a module's moving tensors in its flat vector.

    Args:
        names: trained parameters, then buffers.
        shapes: the shape of each.
        trainable: number of names that are parameters.

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
        count = sum(parameter.requires_grad for parameter in module.parameters())
        return cls(tuple(n for n, _ in named), tuple(tuple(t.shape) for _, t in named), count)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def d(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def span(self, name: str) -> slice:
        """The position of one tensor in the flat vector."""
        at = self.names.index(name)
        start = sum(self.sizes[:at])
        return slice(start, start + self.sizes[at])

    def final_layer(self) -> slice:
        """The slice of the classifier: the last weight matrix and the bias that follows it."""
        return self.last_layers(1)

    def last_layers(self, count: int) -> slice:
        """The slice of the last layers: weights with two dimensions or more, and what follows them.

        Args:
            count: number of layers; if there are fewer, the slice contains all parameters.

        Example:
            >>> layout = Layout.of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4)))
            >>> layout.last_layers(0), layout.last_layers(1), layout.last_layers(9)
            (slice(20, 20, None), slice(8, 20, None), slice(0, 20, None))
        """
        # Biases, and scales of a normalisation, have one dimension.
        weights = [i for i in range(self.trainable) if len(self.shapes[i]) >= 2]
        starts = [self.trainable, *reversed(weights)]
        first = 0
        if count < len(starts):
            first = starts[count]
        return slice(sum(self.sizes[:first]), sum(self.sizes[: self.trainable]))

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors of a flat vector, as views into it."""
        parts = torch.split(vector, list(self.sizes))
        return {n: p.view(s) for n, s, p in zip(self.names, self.shapes, parts, strict=True)}


def classifier_name(module: nn.Module) -> str:
    """The name of the layer that has the last trained weights with two dimensions or more.

    Example:
        >>> classifier_name(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 4)))
        '2'
    """
    layout = Layout.of(module)
    start = layout.final_layer().start
    name = next(name for name in layout.names if layout.span(name).start == start)
    return name.rpartition(".")[0]


def _named(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The tensors that move, by name."""
    trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    # Buffers that are the same everywhere: of frozen layers, and those not saved.
    saved = module.state_dict(keep_vars=True).keys()
    fixed = {name for name, _ in module.named_buffers() if name not in saved}
    for path, layer in module.named_modules():
        if is_frozen_norm(layer):
            fixed |= {f"{path}.{name}" if path else name for name, _ in layer.named_buffers()}
    # Counters, as the number of batches of a normalisation, are no numbers that one can average.
    buffers = [
        (n, b) for n, b in module.named_buffers() if b.is_floating_point() and n not in fixed
    ]
    return [*trained, *buffers]


def is_frozen_norm(layer: nn.Module) -> bool:
    """Whether a layer keeps running statistics and has parameters, all of them frozen.

    It is part of a frozen network, so its statistics are used and not updated.
    """
    parameters = list(layer.parameters(recurse=False))
    frozen = bool(parameters) and not any(p.requires_grad for p in parameters)
    return isinstance(layer, _NormBase) and frozen


def training_mode(module: nn.Module) -> nn.Module:
    """Put a module into training mode, except frozen normalisation. Returns the module."""
    module.train()
    for layer in module.modules():
        if is_frozen_norm(layer):
            layer.eval()
    return module


def frozen_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The frozen parameters by name, which are the same everywhere and are not sent.

    Example:
        >>> net = nn.Linear(3, 2)
        >>> _ = net.weight.requires_grad_(False)
        >>> list(frozen_parameters(net)), Layout.of(net).names
        (['weight'], ('bias',))
    """
    return {n: p.detach() for n, p in module.named_parameters() if not p.requires_grad}


def frozen_digest(module: nn.Module) -> str:
    """A digest of the names and values of the frozen parameters; empty if there are none."""
    frozen = frozen_parameters(module)
    if not frozen:
        return ""
    digest = hashlib.sha256()
    for name, values in frozen.items():
        digest.update(name.encode())
        # As bytes, since NumPy does not know every type of torch's.
        digest.update(values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def copy_module(module: nn.Module) -> nn.Module:
    """A copy that shares the frozen parameters, which never change, with the module."""
    shared = {id(p): p for p in module.parameters() if not p.requires_grad}
    return copy.deepcopy(module, dict[int, object](shared))


def flatten(module: nn.Module) -> Tensor:
    """The moving values of a module as one float32 vector ``[d]`` (a copy).

    Example:
        >>> flatten(nn.Linear(3, 2)).shape
        torch.Size([8])
    """
    if not isinstance(module, nn.Module):
        raise ConfigError("wrong-type", "module", got=module, allowed="a torch.nn.Module")
    return torch.cat([t.detach().reshape(-1).to(torch.float32) for _, t in _named(module)])


def bind(module: nn.Module, vector: Tensor) -> nn.Module:
    """Make the moving tensors of a module views into ``vector``: writing to one changes the other.
    Returns the module."""
    views = Layout.of(module).views(vector)
    for name, tensor in _named(module):
        # `data`, so that parameters stay the objects that an optimiser or a hook may hold.
        tensor.data = views[name]
    return module


class FlatModule:
    """A module whose moving tensors are read and written as one vector ``[d]``.

    On a CPU they are views into the vector. On a GPU each begins at its own multiple of 256 bytes,
    like separate tensors: some of cuDNN's kernels read 16 bytes at a time, and fail at other
    addresses.

    Args:
        module: the module, which is taken over on its device.
        apart: whether tensors begin at such multiples; ``None``: on a GPU.

    Example:
        >>> flat = FlatModule(nn.Linear(3, 2), apart=True)
        >>> flat.write(torch.arange(8.0))
        >>> flat.module.bias.tolist(), flat.read().tolist()
        ([6.0, 7.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    """

    def __init__(self, module: nn.Module, apart: bool | None = None) -> None:
        layout = Layout.of(module)
        named = _named(module)
        device = named[0][1].device if named else torch.device("cpu")
        if apart is None:
            apart = device.type != "cpu"
        # Where each value of the vector lies in memory; nothing where they are the same.
        self._places: Tensor | None = None
        if not apart:
            self.memory = torch.empty(layout.d, device=device)
            self.module = bind(module, self.memory)
            return
        begins = list(itertools.accumulate(map(_padded, layout.sizes), initial=0))
        self.memory = torch.zeros(begins.pop(), device=device)
        self.module = module
        parts = []
        for (_, tensor), begin in zip(named, begins, strict=True):
            span = slice(begin, begin + tensor.numel())
            tensor.data = self.memory[span].view(tensor.shape)
            parts.append(torch.arange(span.start, span.stop, device=device))
        self._places = torch.cat([torch.empty(0, dtype=torch.int64, device=device), *parts])

    def write(self, vector: Tensor) -> None:
        """Copy a vector ``[d]`` from any device into the module."""
        if self._places is None:
            self.memory.copy_(vector)
        else:
            self.memory[self._places] = vector.to(self.memory.device)

    def read(self) -> Tensor:
        """The module's vector ``[d]``, on its device. On a CPU it is not a copy."""
        if self._places is None:
            return self.memory
        return self.memory[self._places]


def _padded(size: int) -> int:
    """A size of float32 values, as the next multiple of 256 bytes."""
    return -(-size // 64) * 64


def state_dict(layout: Layout, vector: Tensor) -> Mapping[str, Tensor]:
    """The named tensors of a flat vector, as copies, to save or to load into a module."""
    return {name: view.clone() for name, view in layout.views(vector).items()}


def whole_state(module: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """All floating-point tensors of a module with a flat vector put in, as copies.

    In addition to the moving tensors, these are the frozen parameters, and each name of a weight
    that has several.
    """
    bound = bind(copy_module(module), vector.clone())
    state = bound.state_dict()
    return {n: t.clone().contiguous() for n, t in state.items() if t.is_floating_point()}

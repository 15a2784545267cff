"""The networks that compiled code can train, recognised by their shape.

They are ``(Conv2d [ReLU] MaxPool2d [ReLU])* [Flatten] Linear (ReLU Linear)*``, with few channels, a
bias everywhere, and no hooks. A network is taken for what it is, not for its name, so that a user's
own ``nn.Sequential`` is as fast as the papers' networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from coterie.core import IntArray, Layout

# Channels in times channels out, beyond which torch's convolutions are as fast as compiled code:
# more than LeNet-5 and RFedAvg's CNN have, which gain, less than MNIST's CNN of 32 and 64.
FEW = 256
Named = tuple[str, Any]  # a layer's name, and the layer


@dataclass(frozen=True, slots=True)
class Conv:
    """A square convolution of stride 1, pooled by squares of two, then relu.

    Relu and pooling may stand in either order in the network: the largest of four values is the
    same, whether negative ones are cut off before or after.
    """

    channels: int
    out: int
    kernel: int
    padding: int


@dataclass(frozen=True, slots=True)
class Stack:
    """The shape of a network that compiled code can train, and of nothing that is more.

    Args:
        convs: the convolutions.
        widths: the widths of the dense layers, from input to classes.
        decayed: which kernels carry L2, layer by layer, the convolutions first.
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
        # Subclasses may compute anything in their forward pass, so only the classes themselves do.
        if type(module) not in (nn.Sequential, nn.Linear) or _hooked(module):
            return None
        layers: list[Named] = [
            (name, layer)
            for name, layer in module.named_modules(remove_duplicate=False)
            if type(layer) is not nn.Sequential
        ]
        convs = _leading_convolutions(layers)
        if convs is None:
            return None
        layers = layers[3 * len(convs) :]
        # Without convolutions samples are flattened anyway; behind them the network must do so.
        if layers and type(layers[0][1]) is nn.Flatten and layers[0][1].start_dim == 1:
            layers = layers[1:]
        elif convs:
            return None
        linear = _dense_layers(layers)
        if linear is None:
            return None
        # Names are those in the module: a network that is one `nn.Linear` has the name "", whose
        # kernel is "weight" and not ".weight".
        names = [name for name, _ in [*convs, *linear]]
        if not _plain_parameters(module, names):
            return None
        widths = (linear[0][1].in_features, *(layer.out_features for _, layer in linear))
        decayed = tuple(f"{name}.weight".lstrip(".") in decay for name in names)
        return cls(tuple(conv for _, conv in convs), widths, decayed)

    def table(self, shape: tuple[int, ...]) -> IntArray:
        """int64 ``[l, 7]``, the convolutions for samples of a shape, as ``kernels.conv_forward``
        reads them."""
        if self.convs and len(shape) != 3:
            raise ValueError(f"convolutions need images, got samples of shape {shape}")
        rows = []
        begin = 0
        for conv in self.convs:
            channels, height, width = shape
            if channels != conv.channels:
                raise ValueError(
                    f"a convolution of {conv.channels} channels, got images of shape {shape}"
                )
            rows.append((channels, height, width, conv.padding, conv.kernel, conv.out, begin))
            # Weight, then bias, layer by layer: the order of the flat vector.
            begin += conv.out * (channels * conv.kernel**2 + 1)
            down = (height + 2 * conv.padding - conv.kernel + 1) // 2
            across = (width + 2 * conv.padding - conv.kernel + 1) // 2
            if min(down, across) < 1:
                raise ValueError(
                    f"a convolution of {conv.kernel} and pooling by 2, got images of shape {shape}"
                )
            shape = (conv.out, down, across)
        features = math.prod(shape)
        if features != self.widths[0]:
            raise ValueError(f"the first dense layer has {self.widths[0]} inputs, got {features}")
        return np.array(rows, np.int64).reshape(-1, 7)


def _leading_convolutions(layers: Sequence[Named]) -> list[tuple[str, Conv]] | None:
    """The convolutions that a network begins with, each with its relu and its pooling (three layers
    in all); ``None`` if one of them is of another kind."""
    convs: list[tuple[str, Conv]] = []
    # More than three: after a convolution, its relu and its pooling comes a dense layer at least.
    while len(layers) > 3 and type(layers[0][1]) is nn.Conv2d:
        after = [layer for _, layer in layers[1:3]]
        if {type(layer) for layer in after} != {nn.ReLU, nn.MaxPool2d}:
            return None
        name, layer = layers[0]
        conv = _conv(layer)
        if conv is None or not all(map(_is_relu_or_halves, after)):
            return None
        if convs and convs[-1][1].out != conv.channels:
            return None
        convs.append((name, conv))
        layers = layers[3:]
    return convs


def _dense_layers(layers: Sequence[Named]) -> list[Named] | None:
    """The linear layers of ``Linear (ReLU Linear)*``; ``None`` if the layers are anything else."""
    if len(layers) % 2 == 0:
        return None
    linear = list(layers[::2])
    if any(type(layer) is not nn.Linear or layer.bias is None for _, layer in linear):
        return None
    if any(type(layer) is not nn.ReLU for _, layer in layers[1::2]):
        return None
    return linear


def _plain_parameters(module: nn.Module, names: Sequence[str]) -> bool:
    """Whether a kernel and a bias of each layer are all that the flat vector holds, and all of it
    is trained."""
    # One layer at two places has its parameters once in the vector, and two gradients.
    shared = len(set(names)) < len(names)
    frozen = any(not p.requires_grad for p in module.parameters())
    return not shared and not frozen and len(Layout.of(module).names) == 2 * len(names)


def _hooked(module: nn.Module) -> bool:
    """Whether somebody's code runs inside the forward or backward pass."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(m, kind) for m in module.modules() for kind in kinds)


def _is_relu_or_halves(module: nn.Module) -> bool:
    """Whether a layer is a relu, or pools by squares of two, so that it halves an image."""
    if not isinstance(module, nn.MaxPool2d):
        return True
    pairs = (module.kernel_size, module.stride, module.padding, module.dilation)
    plain = not module.ceil_mode and not module.return_indices
    return plain and [_one(value) for value in pairs] == [2, 2, 0, 1]


def _conv(module: nn.Conv2d) -> Conv | None:
    """A convolution as the kernels know it, ``None`` for another kind."""
    kernel = _one(module.kernel_size)
    padding = _one(module.padding)
    if not kernel or not isinstance(padding, int) or module.bias is None:
        return None
    if (_one(module.stride), _one(module.dilation), module.groups) != (1, 1, 1):
        return None
    few = module.in_channels * module.out_channels <= FEW
    if not few or module.padding_mode != "zeros":
        return None
    return Conv(module.in_channels, module.out_channels, kernel, padding)


def _one(value: Any) -> Any:
    """The number that a pair is twice, or ``None``."""
    if not isinstance(value, tuple):
        return value
    if len(set(value)) == 1:
        return value[0]
    return None

"""What the library knows of a network before it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from coterie.errors import ConfigError

Shape = tuple[int, ...]
Image = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A network: how to build it for an input shape and a number of classes.

    Args:
        build: ``(shape, classes) -> nn.Module``; the weights are whatever torch's defaults give.
        decay: names of the kernels that carry the papers' L2 term ``0.001 sum w^2`` (biases never
            do).
        description: one line.
        shape: input shape of the paper's own use.
        classes: number of classes of the paper's own use.

    Example:
        >>> from coterie.models import MODELS
        >>> spec = MODELS["mclr"]()
        >>> spec.parameters, spec.decay
        (7850, ('1.weight',))
    """

    build: Callable[[Shape, int], nn.Module]
    decay: tuple[str, ...]
    description: str
    shape: Shape = (1, 28, 28)
    classes: int = 10

    @property
    def parameters(self) -> int:
        """Number of parameters in the paper's own use."""
        return self.count(self.shape, self.classes)

    def count(self, shape: Shape, classes: int) -> int:
        """Number of parameters for an input shape and a number of classes."""
        # On the meta device nothing is allocated and nothing is drawn.
        with torch.device("meta"):
            return sum(p.numel() for p in self.build(shape, classes).parameters())


def kernels(module: nn.Module) -> tuple[str, ...]:
    """The names of all trained weight tensors with two dimensions or more.

    They carry L2 in a network of the user's own.

    Example:
        >>> kernels(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
        ('0.weight',)
    """
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return tuple(name for name, weight in trained if weight.ndim >= 2)


def outputs_for(outputs: int | None, classes: int) -> int:
    """The number of outputs: as many as classes, or more where a paper has more.

    Example:
        >>> outputs_for(None, 10), outputs_for(26, 10)
        (10, 26)
    """
    # Outputs without a class are only ever pushed down by the softmax, as in FedGroup's models.
    if outputs is None:
        return classes
    if outputs < classes:
        what = "fewer than the classes of the data"
        expected = f"{classes} or more"
        raise ConfigError("out-of-range", "model.outputs", what, found=outputs, allowed=expected)
    return outputs


def image(shape: Shape, model: str) -> Image:
    """The shape as (channels, height, width)."""
    if len(shape) != 3:
        what = f"{model} needs images"
        got = f"inputs have shape {list(shape)}"
        raise ConfigError("does-not-fit", "model.name", what, found=got, allowed="mclr or mlp")
    return shape[0], shape[1], shape[2]


def large_enough(height: int, width: int, shape: Shape, model: str) -> None:
    """Check that something is left of an image after the convolutions."""
    if min(height, width) < 1:
        what = f"{model} needs larger images"
        expected = "another model, such as mlp"
        raise ConfigError("does-not-fit", "model.name", what, found=shape, allowed=expected)

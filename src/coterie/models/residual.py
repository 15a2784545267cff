"""Residual networks with group normalisation, which keeps no running statistics of a client's data."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.models.spec import Image, ModelSpec, Shape, image

# Channels of a stage are multiples of these, so that every group has as many channels.
NormGroups = Annotated[int, Field(ge=1)]


class Residual(nn.Module):
    """``main(x) + shortcut(x)``.

    Args:
        main: the layers that learn the difference.
        shortcut: ``nn.Identity``, or a convolution where ``main`` changes the shape.

    Example:
        >>> import torch
        >>> Residual(nn.ReLU(), nn.Identity())(torch.tensor([-1.0, 2.0])).tolist()
        [-1.0, 4.0]
    """

    def __init__(self, main: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.main = main
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x) + self.shortcut(x)


def resnet8(norm_groups: NormGroups = 8) -> ModelSpec:
    """ResNet-8 with GroupNorm: conv3(16), a block each of 16, 32 and 64 channels, mean -> classes.

    The smallest of the networks for CIFAR-10 with ``6n + 2`` layers, with GroupNorm in place of
    batch normalisation, and 1x1 convolutions where a stage changes the number of channels.

    Args:
        norm_groups: groups of channels that are normalised together; their number must divide 16.

    Source: He et al., Deep Residual Learning for Image Recognition (2015), section 4.2; Hsieh et
    al., The Non-IID Data Quagmire of Decentralized Machine Learning (2020), for GroupNorm.

    Example:
        >>> resnet8().parameters, resnet8().count((1, 28, 28), 62)
        (78042, 81134)
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        stages = ((16, 1), (32, 2), (64, 2))
        return _network(image(shape, "resnet8"), classes, stages, 1, norm_groups)

    return ModelSpec(build, (), "ResNet-8 with GroupNorm", shape=(3, 32, 32))


def resnet18(norm_groups: NormGroups = 32) -> ModelSpec:
    """ResNet-18 with GroupNorm for small images: conv3(64), two blocks each of 64 to 512 -> classes.

    The first convolution has 3x3 pixels and stride 1 and no pooling follows, as is usual for images
    of 32x32 pixels.

    Args:
        norm_groups: groups of channels that are normalised together; their number must divide 64.

    Source: He et al., Deep Residual Learning for Image Recognition (2015), Table 1; Hsieh et al.,
    The Non-IID Data Quagmire of Decentralized Machine Learning (2020), for GroupNorm.

    Example:
        >>> resnet18().parameters
        11173962
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        stages = ((64, 1), (128, 2), (256, 2), (512, 2))
        return _network(image(shape, "resnet18"), classes, stages, 2, norm_groups)

    return ModelSpec(build, (), "ResNet-18 with GroupNorm", shape=(3, 32, 32))


def _network(
    size: Image, classes: int, stages: tuple[tuple[int, int], ...], blocks: int, norm_groups: int
) -> nn.Module:
    """A residual network; ``stages`` are the channels and first stride of each."""
    first = stages[0][0]
    _check_groups(norm_groups, first)
    layers: list[nn.Module] = [
        nn.Conv2d(size[0], first, 3, padding=1, bias=False),
        nn.GroupNorm(norm_groups, first),
        nn.ReLU(),
    ]
    # Only the first block of a stage makes the image smaller.
    strides = [stride if at == 0 else 1 for _, stride in stages for at in range(blocks)]
    widths = [first, *(wide for wide, _ in stages for _ in range(blocks))]
    for (before, after), stride in zip(pairwise(widths), strides, strict=True):
        layers += [_block(before, after, stride, norm_groups), nn.ReLU()]
    # The mean over all pixels, so that images of any size will do.
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    return nn.Sequential(*layers, *head)


def _block(before: int, after: int, stride: int, norm_groups: int) -> Residual:
    main = nn.Sequential(
        *(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.GroupNorm(norm_groups, after)),
        nn.ReLU(),
        *(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.GroupNorm(norm_groups, after)),
    )
    # Every stage but the first begins with other channels and a smaller image.
    if before == after:
        return Residual(main, nn.Identity())
    shortcut = nn.Sequential(
        nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(norm_groups, after)
    )
    return Residual(main, shortcut)


def _check_groups(norm_groups: int, channels: int) -> None:
    if channels % norm_groups:
        what = f"does not divide {channels} channels"
        expected = f"a divisor of {channels}"
        raise ConfigError(
            "wrong-shape", "model.norm_groups", what, found=norm_groups, allowed=expected
        )

"""LeNet-5, as FedClust and PACFL use it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import nn

from coterie.models.spec import ModelSpec, Shape, image, large_enough


def lenet5(padding: Annotated[int, Field(ge=0, le=4)] = 0) -> ModelSpec:
    """LeNet-5: conv5(6) pool conv5(16) pool 120 84 -> classes, with relu and max pooling.

    Args:
        padding: of the first convolution; 2 gives 28x28 images the original's 32x32.

    Source: PACFL's "simple-cnn" has these sizes, for 32x32 images.

    Example:
        >>> lenet5().parameters, lenet5().count((1, 28, 28), 10)
        (62006, 44426)
        >>> lenet5(padding=2).count((1, 28, 28), 10)
        61706
    """

    def side_after(side: int) -> int:
        # A convolution of 5 takes 4 pixels off, a pooling layer halves.
        return ((side + 2 * padding - 4) // 2 - 4) // 2

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "lenet5")
        height = side_after(height)
        width = side_after(width)
        large_enough(height, width, shape, "lenet5")
        return nn.Sequential(
            *(nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * height * width, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)),
        )

    return ModelSpec(build, (), "LeNet-5", shape=(3, 32, 32))

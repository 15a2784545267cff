"""VGG-16 for small images, the network of FedClust's Fig. 1."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import nn

from coterie.models.spec import ModelSpec, Shape, image, large_enough

# Channels of each block, and convolutions before its pooling layer.
BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(hidden: Annotated[int, Field(ge=1)] = 512) -> ModelSpec:
    """VGG-16: 13 conv3 with relu in 5 max-pooled blocks, two dense layers of 512 -> classes.

    Sixteen layers with weights, as the name says. The published network has dense layers of 4,096
    for images of 224x224; for 32x32 a dense layer sees 512 values, and 512 is what is used here. No
    dropout, no normalisation.

    Args:
        hidden: units of the two dense layers before the last.

    Source: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image
    recognition", 2014, column D.

    Example:
        >>> vgg16().parameters, vgg16(hidden=4096).count((3, 224, 224), 1000)
        (15245130, 138357544)
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(shape, "vgg16")
        # The convolutions are padded, so only the poolings shrink an image.
        height = height // 2 ** len(BLOCKS)
        width = width // 2 ** len(BLOCKS)
        large_enough(height, width, shape, "vgg16")
        layers: list[nn.Module] = []
        for wide, count in BLOCKS:
            for _ in range(count):
                layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU()]
                channels = wide
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(
            *layers,
            *(nn.Flatten(), nn.Linear(channels * height * width, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)),
        )

    return ModelSpec(build, (), "VGG-16", shape=(3, 32, 32))

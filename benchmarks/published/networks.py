"""The network of PFLlib's benchmark."""

from __future__ import annotations

from torch import nn


def four_layers(shape: tuple[int, ...], classes: int) -> nn.Module:
    """PFLlib's "4-layer CNN": two convolutions of 5 x 5 without padding, each with ReLU and pooling,
    a dense layer of 512, and the classifier.

    Args:
        shape: of an input, such as ``(1, 28, 28)``.
        classes: number of outputs.
    """
    channels, height, width = shape
    # A convolution takes 4 off each side, and pooling halves.
    height = ((height - 4) // 2 - 4) // 2
    width = ((width - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * height * width, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )

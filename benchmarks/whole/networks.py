"""The networks of the recipes in plain PyTorch, and what a program does with them by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


def mclr(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logistic regression of flat inputs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


def pfl_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of pfl-research's benchmark on CIFAR-10."""
    channels, height, width = shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def blazefl_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small network of BlazeFL's kind: two convolutions with pooling, and two dense layers."""
    channels, height, width = shape
    flat = 64 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation, and a way around them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            shorter = nn.Conv2d(channels, width, 1, stride, bias=False)
            self.around = nn.Sequential(shorter, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.around(x))


def resnet18(shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 for images of 32 x 32: a first convolution of 3 x 3 and no pooling behind it."""
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers.append(ResidualBlock(channels, width, stride))
        layers.append(ResidualBlock(width, width, 1))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


NETWORKS = {"mclr": mclr, "pfl_cnn": pfl_cnn, "blazefl_cnn": blazefl_cnn, "resnet18": resnet18}


def fit(module: nn.Module, x: Tensor, y: Tensor, epochs: int, batch: int, lr: float) -> None:
    """Local SGD with autograd and an optimiser, in a new order each epoch."""
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    loss_of = nn.CrossEntropyLoss()
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(batch):
            optimiser.zero_grad()
            loss_of(module(x[rows]), y[rows]).backward()
            optimiser.step()


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of samples whose class is found, in batches of 500."""
    module.eval()
    with torch.no_grad():
        batches = zip(x.split(500), y.split(500), strict=True)
        right = sum(int((module(a).argmax(1) == b).sum()) for a, b in batches)
    return right / len(y)

"""The networks in plain PyTorch, and local SGD as one writes it by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def net(model: str) -> nn.Module:
    """The same networks, layer by layer, as the names say in Coterie."""
    if model == "mclr":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        ),
    )


def load(module: nn.Module, vector: np.ndarray) -> None:
    """Write a flat vector into a network, a copy of it: torch makes the parameters views."""
    nn.utils.vector_to_parameters(torch.from_numpy(vector.copy()), module.parameters())


def flat(module: nn.Module) -> np.ndarray:
    """A network as a flat vector."""
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def fit(
    module: nn.Module, x: np.ndarray, y: np.ndarray, order: np.ndarray, lr: float, batch: int
) -> None:
    """Local SGD with autograd and an optimiser object."""
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    loss_of = nn.CrossEntropyLoss()
    inputs = torch.from_numpy(x)
    labels = torch.from_numpy(y)
    for epoch in torch.from_numpy(order):
        for rows in epoch.split(batch):
            optimiser.zero_grad()
            loss_of(module(inputs[rows]), labels[rows]).backward()
            optimiser.step()

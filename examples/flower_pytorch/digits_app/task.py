"""The network, its training, and the data of a node. Nothing here knows of groups."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TURNS = 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """A node's share of the digits, turned by a quarter as often as its number says."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    mine = np.array_split(order, num_partitions)[partition_id]
    images = np.rot90(digits.images[mine] / 16, partition_id % TURNS, (1, 2)).reshape(len(mine), -1)
    x = torch.tensor(images.copy(), dtype=torch.float32)
    y = torch.tensor(digits.target[mine])
    cut = int(0.75 * len(y))
    generator = torch.Generator().manual_seed(partition_id)
    train = DataLoader(
        TensorDataset(x[:cut], y[:cut]), batch_size, shuffle=True, generator=generator
    )
    return train, DataLoader(TensorDataset(x[cut:], y[cut:]), batch_size)


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    """Train the network; returns the mean loss of a batch."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


@torch.no_grad()
def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """The mean loss and the accuracy on a node's own test samples."""
    net.eval()
    loss = 0.0
    correct = 0
    for x, y in loader:
        outputs = net(x)
        loss += nn.functional.cross_entropy(outputs, y, reduction="sum").item()
        correct += int((outputs.argmax(1) == y).sum())
    size = len(loader.dataset)
    return loss / size, correct / size

"""Federations and networks whose outputs are exact, so that sums can be compared to the last digit.

Inputs and weights are small multiples of an eighth: products and sums of them are float32 numbers
without rounding, in whatever order a batch or a thread adds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.task import Task
from coterie.engines import make_clients
from coterie.local import LocalRunner

FEATURES = 6


def eighths(rng: np.random.Generator, *shape: int) -> Tensor:
    """Multiples of an eighth between -2 and 2."""
    return torch.tensor(rng.integers(-16, 17, size=shape) / 8, dtype=torch.float32)


def exact_net(rng: np.random.Generator, outputs: int) -> nn.Module:
    """One dense layer of exact weights."""
    net = nn.Linear(FEATURES, outputs)
    with torch.no_grad():
        net.weight.copy_(eighths(rng, outputs, FEATURES))
        net.bias.copy_(eighths(rng, outputs))
    return net


def split(rng: np.random.Generator, samples: int) -> tuple[list[Any], list[Any]]:
    """Samples for 3 to 9 clients of unequal sizes; some clients have no test samples."""
    clients = int(rng.integers(3, 10))
    cuts = np.sort(rng.choice(np.arange(1, samples), size=clients - 1, replace=False))
    parts = np.split(rng.permutation(samples), cuts)
    train = [part[: max(1, len(part) // 3)] for part in parts]
    test = [part[max(1, len(part) // 3) :] for part in parts]
    return train, test


def federation(rng: np.random.Generator, y: Tensor, classes: int = 0) -> ct.Population:
    """A federation with these targets."""
    train, test = split(rng, len(y))
    return ct.Population(eighths(rng, len(y), FEATURES), y, train, test, classes)


def scored(
    population: ct.Population, net: nn.Module, task: Task, engine: str, workers: int | None
) -> dict[str, np.ndarray]:
    """The sums of each client under one network, by an engine that has trained before."""
    from coterie.core.work import Score, Train

    models = torch.cat([p.detach().reshape(-1) for p in net.parameters()])[None]
    options = {} if workers is None else {"workers": workers}
    solver = ct.Solver(epochs=1)
    with make_clients(population, net, solver, engine, task=task, **options) as clients:
        everyone = np.arange(population.clients)
        which = np.zeros(population.clients, np.int64)
        # The pool starts its workers with the first training.
        clients.run(Train(), everyone, models, which, key=Key(0).of("train"))
        tested = np.flatnonzero(population.sizes("test"))
        work = Score("test", sums=task.sums)
        reply = clients.run(
            work, tested, models, which[tested], key=Key(0).of("test"), counts=False
        )
    fields = {name: values for name, values in reply.fields.items() if name != "size"}
    return {**{name: values[:, 0] for name, values in fields.items()}, "size": reply.fields["size"]}


def pooled(population: ct.Population, net: nn.Module) -> tuple[Tensor, Tensor]:
    """Outputs and targets of all test samples, in one place."""
    rows = torch.from_numpy(np.concatenate(population.test))
    with torch.no_grad():
        return net(population.x[rows]), population.y[rows]


def runner(population: ct.Population, net: nn.Module, task: Task) -> LocalRunner:
    """A runner of a task."""
    return LocalRunner(population, net, ct.Solver(epochs=2, batch_size=5, lr=0.05), task=task)

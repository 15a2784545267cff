"""LG-FedAvg on MNIST, by the scripts that its authors keep beside their code.

The outputs of their notebook (pliang279/LG-FedAvg, get_results.ipynb) are of 100 clients with the same
distribution. FedAvg trains first, and LG-FedAvg starts from its best model: each client goes on with
the first two layers as its own, and the last three are averaged. They print means of several runs of
the best round, which is chosen by test accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import coterie as ct
from benchmarks.personal.files import read, write
from coterie.core.vectors import bind
from coterie.data import Population
from coterie.methods.method import Method
from coterie.runs.loop import RoundResult

NAME = "lg_fedavg"
CLIENTS = 100
TRAINED_ON = 600
PER_ROUND = 10
# Their FedAvg goes on to 815 rounds, where it has 97.93 %.
FEDAVG_ROUNDS = 300
LG_ROUNDS = 100
# Per cent: LG-FedAvg, 100 rounds after 300 of FedAvg, "acc_local" of the notebook.
PRINTED = 97.45
# Layers of `network` that stay with a client: their `num_layers_keep` of 3 names the shared ones.
PERSONAL = ("first", "hidden1")
LOCAL = ct.Solver(epochs=1, batch_size=10, lr=0.05, optimizer="sgd", momentum=0.5)


class Network(nn.Module):
    """Their MLP. It ends with a softmax, to which their loss applies another one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(784, 512)
        self.hidden1 = nn.Linear(512, 256)
        self.hidden2 = nn.Linear(256, 256)
        self.hidden3 = nn.Linear(256, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        for layer in (self.first, self.hidden1, self.hidden2, self.hidden3):
            x = torch.relu(layer(x))
        return torch.softmax(self.out(x), dim=1)


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A new network; the shape and the number of classes are MNIST's."""
    return Network()


def clients(seed: int) -> Population:
    """A hundred clients with 600 images to train and 100 to test on, pixels standardised."""
    data = ct.load("mnist", partition={"kind": "iid", "clients": CLIENTS}, pixels="unit")
    rows = np.random.default_rng(seed).permutation(len(data.y)).reshape(CLIENTS, -1)
    return replace(
        data,
        x=(data.x - 0.1307) / 0.3081,
        train=tuple(held[:TRAINED_ON] for held in rows),
        test=tuple(held[TRAINED_ON:] for held in rows),
        names=tuple(map(str, range(CLIENTS))),
    )


def measure(seeds: Sequence[int], out: Path) -> None:
    """Do the runs that the file does not have, one after another.

    Args:
        seeds: of the clients and of the runs.
        out: folder of the file.
    """
    done = read(out, NAME)
    for seed in seeds:
        if seed in [one["seed"] for one in done]:
            continue
        data = clients(seed)
        best, course = _course(ct.fedavg(), data, f"{__name__}:network", FEDAVG_ROUNDS, seed)
        start = bind(Network(), best)
        lg = ct.lg_fedavg(layers=PERSONAL)
        _, ours = _course(lg, data, start, LG_ROUNDS, seed)
        done.append({"seed": seed, "FedAvg": course, "LG-FedAvg": ours})
        write(out, NAME, done)
        print(f"seed {seed}: {100 * max(ours):.2f} %, theirs {PRINTED} %", flush=True)


def _course(
    method: Method, data: Population, model: Any, rounds: int, seed: int
) -> tuple[torch.Tensor, list[float]]:
    """The best model, and the accuracy of every tenth round."""
    accuracies: list[float] = []
    best = torch.empty(0)

    def record(found: RoundResult) -> None:
        nonlocal best
        accuracy = found.row["accuracy"]
        if accuracy is None:
            return
        if accuracy > max(accuracies, default=0):
            best = found.groups.models[0].clone()
        accuracies.append(accuracy)
        print(found.round, accuracy, flush=True)

    ct.run(
        method,
        data=data,
        model=model,
        local=LOCAL,
        rounds=rounds,
        clients_per_round=PER_ROUND,
        seed=seed,
        engine="serial",
        on_round=record,
        train={"sampler": "uniform", "evaluate_every": 10},
    )
    return best, accuracies

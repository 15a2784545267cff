"""Seconds of a round with one client, whose training takes one thread or two.

A client with 400 samples trains for an epoch: ResNet-8 with batches of 32 and of 128, ResNet-18 with
batches of 50 (both on images of CIFAR-10's size), and an MLP with batches of 200. The engine is
`pool` with one worker. Rounds take turns, so that what else the machine does hits both alike.

    python -m benchmarks.threads [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import PoolEngine
from coterie.local import LocalRunner
from coterie.models import build_model

SAMPLES = 400
IMAGE = (3, 32, 32)
# The network, the shape of a sample, and the size of a batch.
CASES: dict[str, tuple[str, tuple[int, ...], int]] = {
    "ResNet-8, batches of 32": ("resnet8", IMAGE, 32),
    "ResNet-8, batches of 128": ("resnet8", IMAGE, 128),
    "ResNet-18, batches of 50": ("resnet18", IMAGE, 50),
    "MLP, batches of 200": ("mlp", (784,), 200),
}
THREADS = (1, 2)


def population(shape: tuple[int, ...]) -> ct.Population:
    """One client with samples of noise, which take as long as any others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, *shape, generator=generator)
    y = torch.randint(0, 10, (SAMPLES,), generator=generator)
    return ct.Population(x, y, (np.arange(SAMPLES),), (np.arange(0),), 10)


def compare(model: str, shape: tuple[int, ...], batch: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of a round on each number of threads, and their ratio."""
    data = population(shape)
    key = ct.Key(0)
    network = build_model(model, data.shape, data.classes, key.of("model"))
    solver = ct.Solver(epochs=1, batch_size=batch, lr=0.01)
    start = flatten(network)[None]
    nobody_else = np.zeros(1, np.int64)
    clients = {
        count: Clients(PoolEngine(LocalRunner(data, network, solver), 1, threads=count))
        for count in THREADS
    }
    seconds: dict[int, list[float]] = {count: [] for count in THREADS}
    for number in range(rounds + 1):
        for count, one in clients.items():
            begun = time.perf_counter()
            one.run(Train(), nobody_else, start, nobody_else, key=key.at(number))
            seconds[count].append(time.perf_counter() - begun)
    for one in clients.values():
        one.close()
    # Without the first round, in which processes start.
    medians = {count: 1e3 * statistics.median(seconds[count][1:]) for count in THREADS}
    return {"one": medians[1], "two": medians[2], "ratio": medians[1] / medians[2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        found[name] = compare(*case, args.rounds)
        row = found[name]
        print(
            f"{name:26} one thread {row['one']:8.1f} ms, two {row['two']:8.1f} ms, "
            f"{row['ratio']:.2f} times as fast",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

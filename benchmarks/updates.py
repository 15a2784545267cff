"""Time and memory of what grows with the number of updates: EDC, MADC, proximity, FedAvg folded and
whole, ICG.

    python benchmarks/updates.py [--only edc madc ...] [--json FILE]

Each runs in a process of its own; memory is its peak resident size, with the updates themselves in
it, and so is the time of the processor, which other work on the machine does not change much.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.engine import Reply
from coterie.core.vectors import flatten
from coterie.math import distances, similarity
from coterie.math.balanced import inter_cluster
from coterie.math.clustering import kmeans
from coterie.methods.algorithm import as_algorithm
from coterie.rules import training

ASKED = {"edc": "20 s, 4 GB", "madc": "60 s"}


def planted(n: int, d: int, k: int = 5) -> Tensor:
    """Updates around ``k`` directions, as noisy as they are long."""
    g = torch.Generator().manual_seed(0)
    updates = torch.randn(n, d, generator=g)
    centres = 0.3 * torch.randn(k, d, generator=g)
    for j in range(k):
        updates[j::k] += centres[j]
    return updates


def edc() -> Callable[[], object]:
    """EDC's embedding of 20,000 updates of 7,850 values, and k-means++ on it."""
    updates = planted(20_000, 7850)
    return lambda: kmeans(similarity.edc_embedding(updates, 5), 5, ct.Key(0))


def madc() -> Callable[[], object]:
    """MADC between 5,000 clients of 7,850 values."""
    updates = planted(5000, 7850)
    return lambda: similarity.madc(updates)


def l2() -> Callable[[], object]:
    """Euclidean proximity between 10,000 clients of 850 values."""
    updates = planted(10_000, 850)
    return lambda: distances.l2(updates)


def cosine() -> Callable[[], object]:
    """Cosine distances between 10,000 clients of 850 values."""
    updates = planted(10_000, 850)
    return lambda: distances.cosine_distance(updates)


def grouping() -> Callable[[], object]:
    """ICG: 3,550 clients into 130 groups, 62 classes."""
    histograms = np.random.default_rng(0).integers(0, 9, (3550, 62)).astype(np.float64)
    return lambda: inter_cluster(histograms, 130, ct.Key(0))


class Random:
    """An engine whose clients send noise: what is left is the server's own work."""

    def run(
        self, work: object, ids: np.ndarray, models: Tensor, which: np.ndarray, *, key: ct.Key
    ) -> list[Reply]:
        delta = np.empty((len(ids), models.shape[1]), np.float32)
        for row, i in zip(delta, ids.tolist(), strict=True):
            key.client(i).generator().standard_normal(out=row, dtype=np.float32)
        return [
            Reply(
                key.round,
                ids,
                {"delta": delta, "size": 1.0 + ids % 7, "loss": np.ones(len(ids))},
                key.purpose,
            )
        ]

    def set_population(self, population: object) -> None: ...

    def close(self) -> None: ...


def _round() -> Callable[[], object]:
    net = nn.Linear(784, 10)
    algorithm = as_algorithm(ct.fedavg())
    state = algorithm.init(lambda j: flatten(net), 20_000)
    return lambda: algorithm.step(
        state, Round(0, ct.Key(0).at(0), np.arange(20_000), Clients(Random()))
    )


def folded() -> Callable[[], object]:
    """A round of FedAvg with 20,000 clients of 7,850 values, folded."""
    return _round()


def whole() -> Callable[[], object]:
    """The same round, all updates side by side."""
    training.LARGE = 2**62
    return _round()


WHAT = {f.__name__: f for f in (edc, madc, l2, cosine, grouping, folded, whole)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(WHAT), default=list(WHAT))
    parser.add_argument("--repeat", type=int, default=1, help="the best of so many")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=list(WHAT), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        run = WHAT[args.one]()
        begun = time.perf_counter()
        busy = time.process_time()
        run()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            json.dumps(
                {"s": time.perf_counter() - begun, "cpu_s": time.process_time() - busy, "GB": peak}
            )
        )
        return
    found: dict[str, list[dict[str, float]]] = {}
    print("              best      processor  memory   asked")
    for name in args.only:
        for _ in range(args.repeat):
            call = [sys.executable, __file__, "--one", name]
            output = subprocess.run(
                call, check=True, capture_output=True, text=True
            ).stdout.splitlines()[-1]
            found.setdefault(name, []).append(json.loads(output))
        best = min(found[name], key=lambda run: run["s"])
        line = f"{name:10} {best['s']:8.1f} s {best['cpu_s']:10.1f} s {best['GB']:5.2f} GB  {ASKED.get(name, '-'):12}"
        print(line, WHAT[name].__doc__, flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

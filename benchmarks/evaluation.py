"""Seconds to score all clients of a federation with a network that has no compiled steps: one
process, the workers of the pool, and with ``--ray`` two actors on local nodes of one core, in turn.

CIFAR-10 with ResNet-8, texts of 25 tokens with a transformer and of 25 word vectors with a BiGRU, as
in `benchmarks/local_sgd.py`, whose samples are all test samples here; two models, each of half of the
clients. All find the same sums, to the bit, or the command ends with 1.

    python -m benchmarks.evaluation [--models resnet8 transformer bigru] [--repeat 5] [--ray]
        [--json FILE]

Data as in `benchmarks/local_sgd.py`. For an earlier commit, set PYTHONPATH to its ``src``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coterie as ct
from benchmarks.engines import engine_of, two_nodes
from benchmarks.local_sgd import network, population, solver_of
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import PoolEngine, SerialEngine
from coterie.local import LocalRunner

MODELS = ("resnet8", "transformer", "bigru")


def tested(model: str) -> ct.Population:
    """A federation with test samples: those of the data, or all where it has hardly any."""
    data = population(model)
    if sum(len(part) for part in data.test) >= 4000:
        return data
    return replace(data, test=tuple(np.array_split(np.arange(len(data.y)), data.clients)))


def compare(model: str, repeat: int, address: str | None) -> dict[str, Any]:
    """Median seconds of each, the samples, and whether sums were the same.

    Args:
        model: the case.
        repeat: evaluations.
        address: of a Ray cluster; ``None``: without Ray.
    """
    data = tested(model)
    net = network(model, data)
    solver = solver_of(model)
    start = flatten(net)[None]
    engines: dict[str, Any] = {
        "one process": SerialEngine(LocalRunner(data, net, solver)),
        "pool": PoolEngine(LocalRunner(data, net, solver)),
    }
    if address is not None:
        engines["ray"] = engine_of("ray", LocalRunner(data, net, solver), address)
    few = np.arange(4)
    for name in list(engines)[1:]:
        # Workers start with the first training, and actors come when they are there.
        engines[name].run(Train(), few, start, np.zeros_like(few), key=ct.Key(0))
        while name == "ray" and engines[name].members.coming():
            engines[name].run(Train(), few, start, np.zeros_like(few), key=ct.Key(0))
    ids = np.arange(data.clients)
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    same = True
    for turn in range(repeat + 1):
        # Others each time, since what is known is not scored again.
        models = torch.cat([start, 1.1 * start]) * (1 + 0.01 * turn)
        found = []
        for name, engine in engines.items():
            begun = time.perf_counter()
            [reply] = engine.run(Score("test"), ids, models, ids % 2, key=ct.Key(0))
            seconds[name].append(time.perf_counter() - begun)
            found.append(reply.fields)
        for other in found[1:]:
            same &= all(np.array_equal(found[0][name], other[name]) for name in other)
    for engine in engines.values():
        engine.close()
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    samples = sum(len(part) for part in data.test)
    return {"samples": samples, "same": same, "seconds": medians, "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ray", action="store_true", help="two actors on local nodes, too")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with two_nodes() if args.ray else nullcontext() as address:
        found = measure(args.models, args.repeat, address)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(not all(row["same"] for row in found.values()))


def measure(models: Sequence[str], repeat: int, address: str | None) -> dict[str, Any]:
    """The figures of each case, which are printed."""
    found = {}
    for model in models:
        row = found[model] = compare(model, repeat, address)
        times = ", ".join(f"{name} {value:.2f} s" for name, value in row["seconds"].items())
        print(
            f"{model}: {row['samples']} samples, {times}, "
            f"{'equal' if row['same'] else 'NOT EQUAL'}, load {row['load']:.1f}",
            flush=True,
        )
    return found


if __name__ == "__main__":
    main()

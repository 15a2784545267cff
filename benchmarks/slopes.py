"""What the server's own steps cost in updates ``n``, parameters ``d`` and groups ``k``: measured
slopes of log time.

Each step runs at three sizes, each twice the one before, others fixed; the slope is that of a line
through the logarithms of processor time (best of several, one thread), beside the exponent of the
formula.

    python benchmarks/slopes.py [--repeat 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

import coterie as ct
from coterie.core.updates import Updates
from coterie.math import distances, similarity
from coterie.math.balanced import inter_cluster
from coterie.math.clustering import agglomerate, kmeans
from coterie.math.similarity import nearest_direction
from coterie.rules.weighing import weighted_mean


def updates(n: int, d: int) -> Tensor:
    """Noise around five directions."""
    g = torch.Generator().manual_seed(0)
    return (
        torch.randn(n, d, generator=g) + 0.3 * torch.randn(5, d, generator=g)[torch.arange(n) % 5]
    )


def weights(n: int, k: int) -> np.ndarray:
    """Every update in one of ``k`` groups."""
    table = np.zeros((k, n))
    table[np.arange(n) % k, np.arange(n)] = k / n
    return table


def aggregate(n: int, d: int, k: int) -> Callable[[], object]:
    """``W delta``."""
    delta = updates(n, d)
    table = weights(n, k)
    replies = Updates(np.arange(n), np.arange(n) % k, delta, np.ones(n), np.zeros(n))
    models = torch.zeros(k, d)
    return lambda: weighted_mean(table, replies, models)


def edc(n: int, d: int, k: int) -> Callable[[], object]:
    """EDC's embedding in ``k`` directions."""
    delta = updates(n, d)
    return lambda: similarity.edc_embedding(delta, k)


def clusters(n: int, d: int, k: int) -> Callable[[], object]:
    """k-means++ on the embedding."""
    features = np.random.default_rng(0).normal(size=(n, k))
    return lambda: kmeans(features, k, ct.Key(0))


def madc(n: int, d: int, k: int) -> Callable[[], object]:
    """MADC of all pairs."""
    delta = updates(n, d)
    return lambda: similarity.madc(delta)


def proximity(n: int, d: int, k: int) -> Callable[[], object]:
    """Euclidean distances of all pairs."""
    delta = updates(n, d)
    return lambda: distances.l2(delta)


def linkage(n: int, d: int, k: int) -> Callable[[], object]:
    """Average linkage of a proximity matrix."""
    distance = distances.l2(updates(n, 32))
    return lambda: agglomerate(distance, "average", count=k)


def newcomers(n: int, d: int, k: int) -> Callable[[], object]:
    """The nearest of ``k`` directions."""
    delta = updates(n, d)
    target = updates(k, d)
    return lambda: nearest_direction(delta, target)


def balanced(n: int, d: int, k: int) -> Callable[[], object]:
    """ICG into ``k`` groups by the label counts of ``n`` clients, ten iterations."""
    counts = np.random.default_rng(0).integers(0, 9, (n, 10)).astype(np.float64)
    return lambda: inter_cluster(counts, k, ct.Key(0))


# step: its base sizes, and by which of them it is measured, with the exponent of the formula
STEPS: dict[Callable[..., Callable[[], object]], tuple[dict[str, int], dict[str, float]]] = {
    aggregate: ({"n": 200, "d": 50_000, "k": 2}, {"n": 1, "d": 1, "k": 0}),
    newcomers: ({"n": 200, "d": 20_000, "k": 4}, {"n": 1, "d": 1, "k": 0}),
    edc: ({"n": 200, "d": 20_000, "k": 4}, {"n": 2, "d": 1, "k": 0}),
    clusters: ({"n": 4000, "d": 1, "k": 4}, {"n": 1, "k": 1}),
    madc: ({"n": 150, "d": 200, "k": 4}, {"n": 3}),
    proximity: ({"n": 500, "d": 4000, "k": 4}, {"n": 2, "d": 1}),
    linkage: ({"n": 1000, "d": 32, "k": 4}, {"n": 2}),
    balanced: ({"n": 600, "d": 10, "k": 30}, {"n": 1, "k": 0}),
}


def slope(sizes: list[int], seconds: list[float]) -> float:
    """Of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def best(run: Callable[[], object], repeat: int) -> float:
    """The least processor seconds of some calls, after one that does not count."""
    run()
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        run()
        found.append(time.process_time() - begun)
    return max(min(found), 1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", choices=[step.__name__ for step in STEPS])
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    print("step        by   sizes                 milliseconds                 slope  formula")
    with threadpool_limits(1):
        for step, (base, exponents) in STEPS.items():
            for name, exponent in (
                exponents.items() if not args.only or step.__name__ in args.only else ()
            ):
                sizes = [base[name] * factor for factor in (1, 2, 4)]
                seconds = [best(step(**{**base, name: size}), args.repeat) for size in sizes]
                row = {
                    "sizes": sizes,
                    "seconds": seconds,
                    "slope": slope(sizes, seconds),
                    "formula": exponent,
                }
                found[f"{step.__name__} {name}"] = row
                shown = " ".join(f"{1e3 * s:8.1f}" for s in seconds)
                said = ", ".join(map(str, sizes))
                print(
                    f"{step.__name__:11} {name:3} {said:22} {shown} {row['slope']:10.2f} {exponent:8g}",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

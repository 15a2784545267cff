"""FedClust's Table I on this machine: LeNet-5, Dir(0.1), 100 clients, 10 a round, E = 10, B = 10,
momentum 0.5.

    python benchmarks/dirichlet.py fashion_mnist --rounds 20 --methods fedclust,fedavg

Prints, per method, the mean of the clients' own test accuracies with both readings of a client's
local test set: its share of the test rows of each class (proportional), and all test rows of every
class that it holds (labels present). ``fedclust`` has the automatic threshold, ``fedclust_10`` and
``fedclust_30`` so many clusters.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import coterie as ct
from coterie.core.keys import Key
from coterie.engines import make_clients
from coterie.measures.scoring import score_round

LOCAL = ct.Solver(epochs=10, batch_size=10, lr=0.01, momentum=0.5)


def methods(names: list[str]) -> dict[str, ct.Method]:
    known = {
        "fedavg": ct.fedavg,
        "fedprox": lambda: ct.fedprox(mu=0.001),
        "ifca": lambda: ct.ifca(groups=2),
        "cfl": lambda: ct.cfl(),
        "pacfl": lambda: ct.pacfl(threshold=4.9),
        "fedclust": lambda: ct.fedclust(),
        "fedclust_10": lambda: ct.fedclust(groups=10, warmup_epochs=2),
        "fedclust_30": lambda: ct.fedclust(groups=30, warmup_epochs=2),
    }
    return {name: known[name]() for name in names}


def both(source: str, seed: int) -> tuple[ct.Population, ct.Population]:
    """The same clients with both readings of their test sets."""
    table = {"kind": "dirichlet", "clients": 100, "beta": 0.1}
    first, second = (
        ct.load(source, partition={**table, "test": test}, seed=seed)
        for test in ("proportional", "labels_present")
    )
    assert all(np.array_equal(a, b) for a, b in zip(first.train, second.train, strict=True))
    return first, second


def mean_accuracy(result: ct.Result, population: ct.Population) -> float:
    """Mean over all clients of the accuracy of the model that serves each on its own test set."""
    with make_clients("serial", population, result.module, LOCAL) as clients:
        row = score_round(
            clients, population.sizes("test") > 0, result.served, result.state, Key(0)
        )
    return float(row["accuracy_mean"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", choices=("fashion_mnist", "cifar10"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--methods", default="fedclust,pacfl,ifca,cfl,fedprox,fedavg")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="pool", choices=("pool", "serial"))
    options = parser.parse_args()
    proportional, present = both(options.source, options.seed)
    for name, method in methods(options.methods.split(",")).items():
        begun = time.time()
        result = ct.run(
            method,
            data=proportional,
            model="lenet5",
            local=LOCAL,
            rounds=options.rounds,
            clients_per_round=10,
            sampler="uniform",
            seed=options.seed,
            engine=options.engine,
            evaluate_every=5,
        )
        groups = int((result.state.sizes() > 0).sum())
        own, shared = (mean_accuracy(result, population) for population in (proportional, present))
        pooled = [f"{a:.1%}" for a in result.accuracy]
        print(
            f"{options.source} {name} seed {options.seed}: proportional {own:.1%}, labels present {shared:.1%}, "
            f"pooled {pooled}, groups {groups}, {time.time() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()

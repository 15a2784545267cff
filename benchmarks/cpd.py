"""By how much inter-cluster grouping (ICG) cuts the class probability distance of random groups, by
how different the clients are (FedGSP Fig. 3a; the paper prints 41 %).

The clients of FEMNIST by writer keep their numbers of samples. Their labels are those of the
writers, or drawn anew: for all clients from one distribution, by Dirichlet shares, or from few
classes each. A sample of the distance is a class (``label``). Prints medians over pairs, means over
seeds of the grouping. MNIST with two classes per client stands beside them.

    python benchmarks/cpd.py [--groups 52] [--seeds 5]

Needs COTERIE_DATA. `coterie reproduce fedgsp --table distance` has the other readings of the
distance, and other numbers of groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import coterie as ct
from coterie.math.balanced import inter_cluster, random_equal_groups
from coterie.measures.groups import cpd_label, totals

WRITERS = {"kind": "natural", "column": "writer_id", "min_size": 10}
TWO_CLASSES = {"kind": "power_law", "clients": 1000, "classes_per_client": 2}


def one_distribution(held: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many labels for each client, all from the distribution of all of them."""
    shares = held.sum(axis=0) / held.sum()
    return np.stack([rng.multinomial(n, shares) for n in held.sum(axis=1)])


def dirichlet(held: np.ndarray, beta: float, rng: np.random.Generator) -> np.ndarray:
    """Shares of classes by a Dirichlet distribution around those of all clients."""
    shares = held.sum(axis=0) / held.sum()
    around = beta * len(shares) * shares
    return np.stack([rng.multinomial(n, rng.dirichlet(around)) for n in held.sum(axis=1)])


def few_classes(held: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Labels of so many classes for each client, frequent classes more often."""
    shares = held.sum(axis=0) / held.sum()
    dealt = np.zeros_like(held)
    for client, size in enumerate(held.sum(axis=1)):
        chosen = rng.choice(len(shares), classes, replace=False, p=shares)
        dealt[client, chosen] = rng.multinomial(size, shares[chosen] / shares[chosen].sum())
    return dealt


def cases() -> Iterator[tuple[str, np.ndarray]]:
    """Label counts of clients that differ little or much."""
    writers = ct.load("femnist", partition=WRITERS).histograms().astype(np.int64)
    rng = np.random.default_rng(0)
    yield "FEMNIST by writer", writers
    yield "one distribution", one_distribution(writers, rng)
    for beta in (10.0, 1.0, 0.1):
        yield f"Dirichlet, {beta:g}", dirichlet(writers, beta, rng)
    for classes in (20, 10, 5, 2):
        yield f"{classes} classes each", few_classes(writers, classes, rng)
    mnist = ct.load("mnist", partition=TWO_CLASSES).histograms().astype(np.int64)
    yield "MNIST, 2 classes each", mnist[mnist.sum(axis=1) > 0]


def median(held: np.ndarray, group: np.ndarray) -> float:
    """Median distance of the groups' label counts."""
    return float(np.median(cpd_label(totals(held, group))))


def main() -> None:
    """Print the cuts of every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=52)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    print("clients                  classes   of clients, %   of random groups, %   by shares, %")
    for name, counts in cases():
        held = counts.astype(np.float64)
        keys = [ct.Key(seed) for seed in range(args.seeds)]
        alone = median(held, np.arange(len(held)))
        randomly = [median(held, random_equal_groups(len(held), args.groups, k)) for k in keys]
        icg = [median(held, inter_cluster(held, args.groups, k, "append")) for k in keys]
        shares = [median(held, inter_cluster(held, args.groups, k, "append", True)) for k in keys]
        of_clients = 100 * (1 - np.mean(icg) / alone)
        of_groups = 100 * (1 - np.mean(icg) / np.mean(randomly))
        by_shares = 100 * (1 - np.mean(shares) / np.mean(randomly))
        classes = (held > 0).sum(axis=1).mean()
        print(f"{name:24} {classes:7.1f} {of_clients:15.1f} {of_groups:21.1f} {by_shares:14.1f}")


if __name__ == "__main__":
    main()

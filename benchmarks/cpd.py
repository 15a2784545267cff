"""Class probability distance (CPD) between clients, random groups and ICG groups: medians over
pairs (FedGSP Fig. 3a).

On FEMNIST by writer and on MNIST with two classes per client. ``label`` takes a class for a sample,
``vector`` a whole distribution, with one kernel width for all: the median distance of the clients.

    python benchmarks/cpd.py [--groups 10 30 52] [--seeds 5]

Needs COTERIE_DATA.
"""

from __future__ import annotations

import argparse

import numpy as np

import coterie as ct
from coterie.math.balanced import inter_cluster, random_equal_groups
from coterie.measures.groups import common_gamma, cpd_label, cpd_vector, totals

SPLITS = {
    "FEMNIST, 300 writers": ("femnist", {"kind": "natural", "column": "writer_id"}),
    "MNIST, 1,000 clients of 2 classes": (
        "mnist",
        {"kind": "power_law", "clients": 1000, "classes_per_client": 2},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, nargs="+", default=[10, 30, 52])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    print("split                              M  grouping            label    vector")
    for name, (source, partition) in SPLITS.items():
        histograms = ct.load(source, partition=partition).histograms().astype(np.float64)
        histograms = histograms[histograms.sum(axis=1) > 0]
        gamma = common_gamma(histograms)

        def show(
            m: int, grouping: str, found: list[np.ndarray], name: str = name, gamma: float = gamma
        ) -> None:
            label = np.mean([np.median(cpd_label(total)) for total in found])
            vector = np.mean([np.median(cpd_vector(total, gamma)) for total in found])
            print(f"{name:34} {m:3} {grouping:16} {label:9.5f} {vector:9.5f}", flush=True)

        show(len(histograms), "clients (FedAvg)", [histograms])
        for m in args.groups:
            keys = [ct.Key(seed) for seed in range(args.seeds)]
            show(
                m,
                "random",
                [totals(histograms, random_equal_groups(len(histograms), m, key)) for key in keys],
            )
            show(m, "ICG", [totals(histograms, inter_cluster(histograms, m, key)) for key in keys])
            normal = [
                totals(histograms, inter_cluster(histograms, m, key, normalize=True))
                for key in keys
            ]
            show(m, "ICG, normalised", normal)


if __name__ == "__main__":
    main()

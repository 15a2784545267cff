"""RFedAvg's Fig. 2: test accuracy over rounds for devices with 10, 5, 2 and 1 classes of MNIST.

FedAvg, RFedAvg with K-means, RFedAvg, and RFedAvg with the optimal weights, from the same start on
the same devices: 100 devices, 30 a round, E = 1, B = 10, lr 0.01, 100 rounds. The test set is dealt
evenly, so the accuracy is that of the whole of it.

    COTERIE_DATA=... python benchmarks/rfedavg.py [--classes 1 2 5 10] [--seeds 0 1] [--rounds 100]
    [--lr 0.01]
                                                  [--methods fedavg rfedavg ...] [--every 5]
                                                  [--engine serial] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.measures.optional import make_measures

METHODS = ("fedavg", "rfedavg_kmeans", "rfedavg", "rfedavg_optimal")


def run(name: str, classes: int, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One curve, and how even the classes were that it learned from."""
    data = ct.load("mnist", partition={"kind": "rfedavg", "classes_per_client": classes}, seed=seed)
    local = ct.Solver(epochs=1, batch_size=10, lr=args.lr)
    begun = time.perf_counter()
    result = ct.run(
        ALGORITHMS[name](),
        data=data,
        model="cnn_rfedavg",
        local=local,
        rounds=args.rounds,
        clients_per_round=30,
        seed=seed,
        engine=args.engine,
        train={
            "sampler": "uniform",
            "evaluate_every": args.every,
            "measures": make_measures(("balance",), local, {}),
        },
    )
    balance = [row["balance"] for row in result.rows]
    return {
        "method": name,
        "classes": classes,
        "seed": seed,
        "lr": args.lr,
        "accuracy": result.accuracy,
        "last10": float(np.mean(result.accuracy[-max(1, 10 // args.every) :])),
        "distance": float(np.mean([b["weighted"]["distance"] for b in balance])),
        "distance_plain": float(np.mean([b["plain"]["distance"] for b in balance])),
        "clusters": [b.get("clusters") for b in balance],
        "guarded": sum(b.get("guarded", 0) for b in balance),
        "threshold": [row["notes"].get("threshold") for row in result.rows],
        "seconds": time.perf_counter() - begun,
    }


def line(one: dict[str, Any], step: int) -> str:
    """One curve in a line: every tenth round, and the mean of the last ten."""
    shown = " ".join(f"{100 * a:5.1f}" for a in one["accuracy"][step - 1 :: step])
    return (
        f"seed {one['seed']} B {one['classes']:2d} {one['method']:16s} {shown} | last ten {100 * one['last10']:.2f}"
        f" | distance {one['distance']:.4f} of {one['distance_plain']:.4f} | {one['seconds']:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=int, default=1, help="rounds between evaluations")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--engine", choices=("serial", "pool"), default="serial")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for seed in args.seeds:
        for classes in args.classes:
            for name in args.methods:
                found.append(one := run(name, classes, seed, args))
                print(line(one, max(1, 10 // args.every)), flush=True)
                if args.json:
                    args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

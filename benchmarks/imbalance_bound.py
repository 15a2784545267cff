"""RFedAvg's bound (eq. 15) beside the loss that it bounds, round by round, on logistic regression.

MNIST divided as in the paper among 100 devices, of which 30 take part in a round with one gradient
each (``gradient = "one"``), step 1 / L_1, weight decay 0.01. The bound is that of a step in which each
class counts by its gradient over all data; how far the run's step is from it is printed, too.

    COTERIE_DATA=... python benchmarks/imbalance_bound.py [--classes 1 10] [--seeds 0 1 2]
                                                           [--rounds 50] [--data mnist] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.core.arrays import FloatArray
from coterie.measures.imbalance_bound import LogisticLoss, imbalance_bound
from coterie.measures.optional import make_measures

METHODS = ("rfedavg", "rfedavg_optimal")
L2 = 0.01


def run(name: str, classes: int, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """A run, with the terms of the bound in each of its rounds."""
    partition = {"kind": "rfedavg", "classes_per_client": classes}
    data = ct.load(args.data, partition=partition, seed=seed)
    loss = LogisticLoss.of(data, L2)
    eta = 1 / loss.smoothness
    models: list[FloatArray] = []
    result = ct.run(
        ALGORITHMS[name](gradient="one", eta=eta),
        data=data,
        model="mclr",
        local=ct.Solver(l2=L2),
        rounds=args.rounds,
        clients_per_round=30,
        seed=seed,
        engine="serial",
        on_round=lambda done: models.append(done.groups.models[0].double().numpy()),
        train={
            "sampler": "uniform",
            "evaluate_every": args.rounds,
            "measures": make_measures(("balance",), ct.Solver(), ct.fedavg()),
        },
    )
    minimum = loss.minimum(models[0])
    held = data.histograms().sum(axis=0)
    rounds = []
    for before, after, row in zip(models, models[1:], result.rows[1:], strict=False):
        shares = np.array(row["balance"]["weighted"]["b"])
        gradients = loss.class_gradients(before)
        found = imbalance_bound(before, minimum, gradients, shares, eta, loss.smoothness)
        step = eta * (shares @ gradients)
        to_minimum = before - minimum
        rounds.append(
            {
                "above_minimum": loss.value(after) - loss.value(minimum),
                "bound": found.value,
                "printed": found.printed,
                "gap": found.gap,
                "gap_data": float(
                    np.linalg.norm(to_minimum - eta * (held / held.sum()) @ gradients)
                ),
                "slope": found.slope,
                "imbalance_term": found.curvature / 2 * found.imbalance,
                "step_error": float(np.linalg.norm(before - after - step) / np.linalg.norm(step)),
            }
        )
    return {"method": name, "classes": classes, "seed": seed, "rounds": rounds}


def line(one: dict[str, Any]) -> str:
    """A run in a line: means over its rounds, and where the bound or its printed form failed."""
    rounds = one["rounds"]
    means = " ".join(f"{key} {statistics.fmean(r[key] for r in rounds):.4f}" for key in rounds[0])
    broken = sum(r["above_minimum"] > r["bound"] for r in rounds)
    broken_printed = sum(r["above_minimum"] > r["printed"] for r in rounds)
    return (
        f"{one['method']:16s} classes {one['classes']:2d} seed {one['seed']} {means} "
        f"rounds above the bound {broken}, above print {broken_printed} of {len(rounds)}"
    )


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for classes in args.classes:
        for seed in args.seeds:
            for name in METHODS:
                one = run(name, classes, seed, args)
                found.append(one)
                print(line(one), flush=True)
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

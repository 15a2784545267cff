"""What the outliers that StoCFL has by default change for honest clients.

    python -m benchmarks.honest_outliers stocfl digits-rotate --seeds 1-10 --rounds 20

A line has the points by which the accuracy, the mean of the last three evaluations, is above that
with ``keep``, and the numbers of groups with ``keep`` and without.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

import coterie as ct

Settings = Mapping[str, Any]
# Name -> data, the partition, the model, local training.
FEDERATIONS: Mapping[str, tuple[str, Settings, Any, ct.Solver]] = {
    "digits-planted": (
        "digits",
        {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"},
        "mclr",
        ct.Solver(epochs=5, lr=0.1),
    ),
    "digits-rotate": (
        "digits",
        {"kind": "planted", "clients": 60, "groups": 3, "how": "rotate"},
        "mclr",
        ct.Solver(epochs=5, lr=0.1),
    ),
    "digits-iid": (
        "digits",
        {"kind": "iid", "clients": 40},
        "mclr",
        ct.Solver(epochs=5, lr=0.1),
    ),
    "digits-dir0.1": (
        "digits",
        {"kind": "dirichlet", "clients": 40, "beta": 0.1},
        "mclr",
        ct.Solver(epochs=5, lr=0.1),
    ),
    "digits-dir0.5": (
        "digits",
        {"kind": "dirichlet", "clients": 40, "beta": 0.5},
        "mclr",
        ct.Solver(epochs=5, lr=0.1),
    ),
    "mnist-rotate": (
        "mnist",
        {
            "kind": "planted",
            "clients": 100,
            "copies": True,
            "size": 200,
            "how": "rotate",
            "groups": 4,
        },
        {"name": "mlp", "hidden": 64},
        ct.Solver(epochs=3, batch_size=20, lr=0.1),
    ),
    "mnist-dir0.1": (
        "mnist",
        {"kind": "dirichlet", "clients": 100, "beta": 0.1},
        "mclr",
        ct.Solver(epochs=3, batch_size=20, lr=0.1),
    ),
    "femnist": (
        "femnist",
        {"kind": "natural", "column": "writer_id", "min_size": 10},
        "mclr",
        ct.Solver(epochs=3, lr=0.03),
    ),
}


def one_run(method: ct.Method, name: str, seed: int, rounds: int) -> tuple[float, int]:
    """The accuracy in per cent, and the number of groups."""
    source, partition, model, local = FEDERATIONS[name]
    pixels = {} if source == "digits" else {"pixels": "unit"}
    result = ct.run(
        method,
        data=ct.load(source, partition=dict(partition), seed=seed, **pixels),
        model=model,
        local=local,
        rounds=rounds,
        clients_per_round=20,
        seed=seed,
        engine="serial",
        train={"evaluate_every": 2},
    )
    return 100 * float(np.mean(result.accuracy[-3:])), len(set(result.groups.tolist()) - {-1})


def main() -> None:
    """Print a line for each federation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=("stocfl",))
    parser.add_argument("federations", help="names, with commas")
    parser.add_argument("--seeds", default="1-10")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    first, last = (int(part) for part in arguments.seeds.split("-"))
    make = getattr(ct, arguments.method)
    for name in arguments.federations.split(","):
        change = []
        groups = []
        for seed in range(first, last + 1):
            keep, before = one_run(make(outliers="keep"), name, seed, arguments.rounds)
            ours, after = one_run(make(), name, seed, arguments.rounds)
            change.append(round(ours - keep, 2))
            groups.append((before, after))
        found = {"mean": round(float(np.mean(change)), 2), "points": change, "groups": groups}
        print(json.dumps({"federation": name, **found}), flush=True)


if __name__ == "__main__":
    main()

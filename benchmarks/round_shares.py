"""Which share of a round is not local SGD: the parts of a FedGroup round, evaluation of everybody
included.

MNIST in FedProx's partition (1,000 clients), 20 clients a round, ten epochs of batches of ten, the
engine `pool`; every client has a group, and every client is scored after each round. Each round
gives a share, and the median of these shares counts: a round beside which another program ran is
one round.

    python -m benchmarks.round_shares [--models mclr mlp] [--rounds 60] [--workers 2] [--json FILE]

Data as in `benchmarks/local_sgd.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.local_sgd import SHARES, population, solver_of

WARM = 5  # first rounds, in which processes start


def shares(model: str, rounds: int, workers: int) -> dict[str, float]:
    """Median milliseconds of the parts of a round, and the median share that is not local SGD."""
    result = ct.run(
        ct.fedgroup(assign_time="upfront", alpha=20),
        data=population(model),
        model=model,
        local=solver_of(model),
        rounds=rounds + WARM,
        train={"sampler": "uniform"},
        engine={"name": "pool", "workers": workers},
    )
    seconds: list[dict[str, Any]] = [row["seconds"] for row in result.rows[WARM:]]
    found = {}
    for part in ("training", "evaluation", "grouping", "aggregation", "total"):
        found[f"{part}_ms"] = 1e3 * statistics.median(row[part] for row in seconds)
    found["not_local_sgd"] = statistics.median(
        1 - row["training"] / row["total"] for row in seconds
    )
    found["load_average"] = os.getloadavg()[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--models", nargs="+", default=list(SHARES), choices=list(SHARES))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print("model  training  evaluation  aggregation  a round  not local SGD  load")
    found = {}
    for model in args.models:
        row = found[model] = shares(model, args.rounds, args.workers)
        print(
            f"{model:5} {row['training_ms']:6.1f} ms {row['evaluation_ms']:8.1f} ms "
            f"{row['aggregation_ms']:9.1f} ms {row['total_ms']:6.1f} ms "
            f"{row['not_local_sgd']:7.0%} (asked {SHARES[model]:.0%}) {row['load_average']:5.1f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Accuracy under differential privacy of updates: FedAvg and FedGroup on MNIST with 1,000 clients.

    python -m benchmarks.private --seeds 0,1,2 --out private.json
    python -m benchmarks.private --page --out private.json --machine "two cores" --commit 7da2de5

Runs are written one by one, and those that the file has already are not done again. ``--page`` makes
``benchmarks/results/private-updates.json`` of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.attacks import mnist
from benchmarks.results.records import FOLDER

EPSILONS = (2.0, 4.0, 8.0, None)
ROUNDS = 30
COHORT = 200
CLIP = 0.5
LOCAL = ct.Solver(2, 10, 0.03)
LAST = 3  # evaluations that are averaged
REBALANCED = "fedgroup, rebalanced"
NAMES = {"fedavg": "FedAvg", "fedgroup": "FedGroup", REBALANCED: "FedGroup, groups rebalanced"}
# Clients of a round that each group should have; of a cohort of 200 the most is 66.
LEAST_GROUP = 60
REBALANCED_AT = 4.0


def method(name: str) -> Any:
    """The method of a run. 300 clients on average show the groups: sums of few clients drown."""
    if name == "fedavg":
        return ct.fedavg()
    return ct.fedgroup(groups=3, alpha=100)


def run(name: str, epsilon: float | None, seed: int, data: Any) -> dict[str, Any]:
    """The mean of the last evaluations, what was spent, and the noise."""
    privacy = None
    if epsilon is not None:
        least_group = LEAST_GROUP if name == REBALANCED else None
        privacy = ct.Privacy(
            epsilon=epsilon,
            delta=1e-5,
            clip=CLIP,
            least_group=least_group,
            # The data are public, and the figures can be measured again.
            randomness="seed_not_private",
        )
    began = time.perf_counter()
    result = ct.run(
        method(name),
        data=data,
        model="mclr",
        engine="serial",
        seed=seed,
        rounds=ROUNDS,
        clients_per_round=COHORT,
        local=LOCAL,
        privacy=privacy,
        train={"sampler": "poisson", "evaluate_every": 2},
    )
    last = result.accuracy[-LAST:]
    row = result.rows[-1]
    return {
        "method": name,
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": 100 * sum(last) / len(last),
        "privacy": row.get("privacy"),
        "sizes": row["sizes"],
        "seconds": round(time.perf_counter() - began, 1),
    }


def measure(arguments: argparse.Namespace) -> None:
    """Do the runs that the file does not have."""
    done = read(arguments.out)
    known = {key(one) for one in done}
    end = time.monotonic() + 60 * arguments.minutes
    for name, epsilon, seed in cases(arguments.seeds):
        if (name, epsilon, seed) in known:
            continue
        if time.monotonic() > end:
            break
        done.append(run(name, epsilon, seed, mnist(seed).data))
        print(done[-1], flush=True)
        arguments.out.write_text(json.dumps(done) + "\n", encoding="utf-8")


def cases(seeds: list[int]) -> Iterator[tuple[str, float | None, int]]:
    """All runs, seed by seed."""
    for seed in seeds:
        for epsilon in EPSILONS:
            for name in NAMES:
                if name != REBALANCED or epsilon == REBALANCED_AT:
                    yield name, epsilon, seed


def key(one: Mapping[str, Any]) -> tuple[str, float | None, int]:
    """What tells a run from others."""
    return one["method"], one["epsilon"], one["seed"]


def read(path: Path) -> list[dict[str, Any]]:
    """The runs of a file, none where there is no file."""
    if not path.exists():
        return []
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return runs


def page(arguments: argparse.Namespace) -> None:
    """Write the figures of the page; those that it has stay with their machine and date."""
    runs = read(arguments.out)
    records = []
    for metric, unit, epsilons in (("accuracy", "%", EPSILONS), ("noise", "", EPSILONS[:-1])):
        for epsilon in epsilons:
            for name, title in NAMES.items():
                ours = [one for one in runs if (one["method"], one["epsilon"]) == (name, epsilon)]
                if ours:
                    records.append(record(title, epsilon, metric, unit, ours))
    file = FOLDER / "private-updates.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    settings = whole["measurements"]["runs"]["settings"]
    whole["measurements"]["rebalanced"] = {
        "what": "Groups rebalanced",
        "settings": f"{settings} Groups are rebalanced with least_group = {LEAST_GROUP}.",
        "machine": arguments.machine,
        "date": datetime.date.today().isoformat(),
        "commit": arguments.commit,
        "command": "python -m benchmarks.private --seeds 0,1,2 --out private.json",
    }
    whole["records"] = records
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def record(
    subject: str, epsilon: float | None, metric: str, unit: str, runs: list[dict[str, Any]]
) -> dict[str, Any]:
    """A record as the file has it, its values by seed."""
    case = "not private" if epsilon is None else f"epsilon {epsilon:g}"
    ours = sorted(runs, key=lambda one: one["seed"])
    values = [one["accuracy"] if metric == "accuracy" else one["privacy"][metric] for one in ours]
    return {
        "case": case,
        "subject": subject,
        "metric": metric,
        "unit": unit,
        "values": [round(value, 2) for value in values],
        "seeds": [one["seed"] for one in ours],
        "rounds": ROUNDS,
        "measured": "rebalanced" if subject == NAMES[REBALANCED] else "runs",
    }


def main() -> None:
    """Run what is not done yet, or make the figures of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=[0])
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--machine")
    parser.add_argument("--commit")
    arguments = parser.parse_args()
    if arguments.page:
        page(arguments)
    else:
        measure(arguments)


if __name__ == "__main__":
    main()

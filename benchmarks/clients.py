"""Seconds a round and memory as the number of clients grows, on Synthetic(1,1), made client by
client.

    python -m benchmarks.clients [--methods fedgroup] [--clients 1000 10000 100000 1000000]
    [--rounds 10] [--repeat 2] [--json FILE]

    python -m benchmarks.clients --methods fedclust ifca flexcfl --clients 10000 1000000
    python -m benchmarks.clients --methods fedavg --clients 10000 10000000

The first rounds ask the same clients whatever N is (in order of their numbers, each for the first
time, so all of them are newcomers), so that they do the same work. 1,000 clients are scored.
FedClust's tree is that of 1,000 clients, and the others send their layer when they are first
selected. Each N runs in a process of its own; memory is the peak of the sum over its processes of
what each one does not share, and its part of what they do. Processor time of the rounds is less
disturbed by other programs than their seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import coterie as ct
from benchmarks.memory import processor, watch

RATIO = 1.3
# GB by the number of clients.
MOST_MEMORY = {1_000_000: 3.0, 10_000_000: 8.0}
METHODS: dict[str, Callable[[], ct.Method]] = {
    "fedavg": ct.fedavg,
    "fedgroup": lambda: ct.fedgroup(groups=3),
    "flexcfl": lambda: ct.flexcfl(groups=3),
    "ifca": lambda: ct.ifca(groups=3),
    "fedclust": lambda: ct.fedclust(groups=3, sample=1000, ask="sample"),
}


def one(method: str, clients: int, rounds: int, cohort: int) -> dict[str, float]:
    """Seconds of the rounds after the first, which holds the cold start, and the peak of memory."""
    begun = time.perf_counter()
    peak = [0.0]
    done = threading.Event()
    thread = threading.Thread(target=watch, args=(peak, done))
    thread.start()
    data = ct.load("synthetic", partition={"kind": "given"}, clients=clients, lazy=True)
    loaded = time.perf_counter() - begun
    seconds: list[dict[str, float]] = []
    result = ct.run(
        METHODS[method](),
        data=data,
        model="mclr",
        local=ct.Solver(epochs=10, batch_size=10, lr=0.01),
        rounds=rounds,
        clients_per_round=cohort,
        on_round=lambda done: seconds.append({**done.row["seconds"], "busy": processor()}),
        train={"evaluate_clients": 1000},
    )
    done.set()
    thread.join()
    total = [s["total"] for s in seconds[1:]]
    return {
        "clients": clients,
        "load": loaded,
        "first_round": seconds[0]["total"],
        "round": statistics.median(total),
        "best": min(total),
        "sum": sum(total),
        "not_training": statistics.median(s["total"] - s["training"] for s in seconds[1:]),
        "GB": peak[0],
        "processor": seconds[-1]["busy"] - seconds[0]["busy"],
        "accuracy": result.rows[-1]["accuracy"],
        "load_average": os.getloadavg()[0],
    }


def best_of(
    method: str, sizes: list[int], rounds: int, cohort: int, repeat: int
) -> dict[int, dict[str, float]]:
    """The fastest of the runs of each number of clients, which take turns."""
    found: dict[int, list[dict[str, float]]] = {n: [] for n in sizes}
    for _ in range(repeat):
        for n in sizes:
            call = [sys.executable, "-m", "benchmarks.clients", "--one", str(n)]
            call += ["--methods", method, "--rounds", str(rounds), "--cohort", str(cohort)]
            output = subprocess.run(call, check=True, capture_output=True, text=True).stdout
            found[n].append(json.loads(output.splitlines()[-1]))
    return {n: min(runs, key=lambda run: run["sum"]) for n, runs in found.items()}


def show(method: str, best: dict[int, dict[str, float]]) -> None:
    """Print a line for each number of clients."""
    base = next(iter(best.values()))
    for n, run in best.items():
        print(
            f"{method:9} {n:>10,} {run['load']:6.1f} s {run['first_round']:8.2f} s "
            f"{run['round']:8.3f} s {run['not_training']:10.3f} s {run['round'] / base['round']:6.2f}x "
            f"{run['processor']:8.2f} s {run['processor'] / base['processor']:6.2f}x "
            f"{run['GB']:5.2f} GB {run['accuracy'] or 0:7.1%} {run['load_average']:5.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [1_000, 10_000, 100_000, 1_000_000]
    parser.add_argument("--clients", type=int, nargs="+", default=sizes)
    parser.add_argument("--methods", nargs="+", default=["fedgroup"], choices=list(METHODS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.methods[0], args.one, args.rounds, args.cohort)))
        return
    print(
        "method       clients     load  1st round   a round  not training  ratio  processor  "
        "ratio   memory  accuracy  load"
    )
    found = {}
    for method in args.methods:
        found[method] = best_of(method, args.clients, args.rounds, args.cohort, args.repeat)
        show(method, found[method])
    memory = ", ".join(f"{n:,} clients {gigabytes:g} GB" for n, gigabytes in MOST_MEMORY.items())
    print(f"asked: ratio at most {RATIO}, memory of {memory}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

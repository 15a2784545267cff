"""Seconds a round and memory as the number of clients grows: FedGroup on Synthetic(1,1), made
client by client.

    python benchmarks/clients.py [--clients 1000 10000 100000 1000000] [--rounds 10] [--repeat 2]
    [--json FILE]

The first rounds ask the same clients whatever N is (in order of their numbers, each for the first
time, so all of them pre-train as newcomers), so that they do the same work. 1,000 clients are
scored. Each N runs in a process of its own; memory is the peak of the sum over its processes of
what each one does not share, and its part of what they do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import coterie as ct
from benchmarks.memory import processor, watch

ASKED = {"ratio": 1.3, "GB": 2.5}


def one(clients: int, rounds: int, cohort: int) -> dict[str, float]:
    """Seconds of the rounds after the first, which holds the cold start, and the peak of memory."""
    begun = time.perf_counter()
    peak = [0.0]
    done = threading.Event()
    thread = threading.Thread(target=watch, args=(peak, done))
    thread.start()
    data = ct.load("synthetic", partition={"kind": "given"}, clients=clients, lazy=True)
    loaded = time.perf_counter() - begun
    local = ct.Solver(epochs=10, batch_size=10, lr=0.01)
    seconds: list[dict[str, float]] = []
    result = ct.run(
        ct.fedgroup(groups=3),
        data=data,
        model="mclr",
        local=local,
        rounds=rounds,
        clients_per_round=cohort,
        evaluate_clients=1000,
        on_round=lambda done: seconds.append({**done.row["seconds"], "busy": processor()}),
    )
    done.set()
    thread.join()
    last = result.rows[-1]
    total = [s["total"] for s in seconds[1:]]
    busy = seconds[-1]["busy"] - seconds[0]["busy"]
    own = [s["total"] - s["training"] for s in seconds[1:]]
    return {
        "clients": clients,
        "load": loaded,
        "first_round": seconds[0]["total"],
        "round": statistics.median(total),
        "best": min(total),
        "sum": sum(total),
        "not_training": statistics.median(own),
        "GB": peak[0],
        "processor": busy,
        "accuracy": last["accuracy"],
        "error": last["accuracy_error"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.rounds, args.cohort)))
        return
    found: dict[int, list[dict[str, float]]] = {n: [] for n in args.clients}
    for _ in range(args.repeat):
        for n in args.clients:
            call = [
                sys.executable,
                "-m",
                "benchmarks.clients",
                "--one",
                str(n),
                "--rounds",
                str(args.rounds),
            ]
            output = subprocess.run(
                [*call, "--cohort", str(args.cohort)], check=True, capture_output=True, text=True
            )
            found[n].append(json.loads(output.stdout.splitlines()[-1]))
    best = {n: min(runs, key=lambda run: run["sum"]) for n, runs in found.items()}
    base, busy = (best[args.clients[0]][name] for name in ("sum", "processor"))
    print(
        "  clients    load  1st round  a round  not training  rounds' sum  ratio  processor  ratio  memory  accuracy"
    )
    for n, run in best.items():
        print(
            f"{n:>9,} {run['load']:6.1f}s {run['first_round']:9.2f}s {run['round']:7.3f}s {run['not_training']:12.3f}s "
            f"{run['sum']:11.2f}s {run['sum'] / base:5.2f}x {run['processor']:9.2f}s "
            f"{run['processor'] / busy:5.2f}x {run['GB']:4.2f} GB  "
            f"{run['accuracy']:.1%} ± {run['error'] or 0:.1%}"
        )
    print(f"asked: ratio at most {ASKED['ratio']}x, memory at most {ASKED['GB']} GB")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

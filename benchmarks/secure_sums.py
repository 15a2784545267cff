"""What secure aggregation would do to runs, and what it would cost: the figures of docs/secure-sums.md.

python benchmarks/secure_sums.py [--seeds 3] [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

import coterie as ct
from coterie.core.keys import Key
from coterie.privacy.secure_sums import client_bytes, neighbourhoods, recoverable

METHODS = {
    "fedavg": lambda: ct.fedavg(),
    "fedgroup": lambda: ct.fedgroup(groups=3, alpha=5),
    "ifca": lambda: ct.ifca(groups=3),
}
LEVELS = (2**22, 2**16, 2**12, 2**8)
DRAWS = 1000


def accuracies(rounds: int, seeds: int) -> None:
    """The accuracy after the last round, the largest error of a mean, and the bytes."""
    planted = {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"}
    print("| method | levels | accuracy, % | largest error of a mean | sums lost | KB a client |")
    print("|---|---|---|---|---|---|")
    for name, make in METHODS.items():
        for levels in (None, *LEVELS):
            runs = [run(make(), planted, levels, rounds, seed) for seed in range(seeds)]
            mean = statistics.mean(100 * one.rows[-1]["accuracy"] for one in runs)
            if levels is None:
                print(f"| `{name}` | no `[secure]` | {mean:.1f} | | | |", flush=True)
                continue
            rows = [row["secure"] for one in runs for row in one.rows]
            error = max(row["error"] for row in rows)
            lost = sum(row["lost"] for row in rows)
            whole = lost + sum(row["groups"] for row in rows)
            size = max(row["bytes"] for row in rows) / 1000
            power = int(np.log2(levels))
            cells = f"{mean:.1f} | {error:.1e} | {lost} of {whole} | {size:.1f}"
            print(f"| `{name}` | 2^{power} | {cells} |", flush=True)


def run(method: Any, planted: Any, levels: int | None, rounds: int, seed: int) -> ct.Result:
    """A run with so many levels, or with the updates as they are."""
    secure = None
    if levels is not None:
        secure = ct.SecureSums(reach=1.0, levels=levels, most_samples=100.0)
    return ct.run(
        method,
        data=ct.load("digits", partition=planted, seed=seed),
        model="mclr",
        rounds=rounds,
        clients_per_round=20,
        engine="serial",
        local=ct.Solver(2, 10, 0.1),
        seed=seed,
        bounds={"enabled": False},
        secure=secure,
        train={"evaluate_every": rounds},
    )


def lost_sums() -> None:
    """How often a sum is lost, by the share of clients that drop out."""
    print("| clients of a group | neighbours | 10 % drop out | 30 % | 50 % |")
    print("|---|---|---|---|---|")
    for clients, neighbours in ((5, None), (20, None), (20, 6), (100, None), (100, 20), (100, 50)):
        sums = ct.SecureSums(neighbours=neighbours, threshold=0.5)
        shares = [lost_share(sums, clients, rate) for rate in (0.1, 0.3, 0.5)]
        cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
        print(f"| {clients} | {neighbours or 'all'} | {cells} |")


def lost_share(sums: ct.SecureSums, clients: int, rate: float) -> float:
    """The share of draws in which the masks cannot be taken off."""
    lost = 0
    for draw in range(DRAWS):
        key = Key(draw)
        near = neighbourhoods(clients, sums.shares(clients), key.of("neighbours"))
        replied = key.of("replies").generator().random(clients) >= rate
        lost += not recoverable(near, replied, sums.needed(clients))
    return lost / DRAWS


def costs() -> None:
    """Bytes of a client beside a plain update of 32 bits a number."""
    print("| parameters | a plain update, KB | 10 clients share | 100 | 1,000 |")
    print("|---|---|---|---|---|")
    for d in (650, 7850, 61706):
        cells = [f"{client_bytes(n, d + 1, 32) / 1000:.1f} KB" for n in (10, 100, 1000)]
        print(f"| {d:,} | {4 * d / 1000:.1f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    costs()
    lost_sums()
    accuracies(options.rounds, options.seeds)

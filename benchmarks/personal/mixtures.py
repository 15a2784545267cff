"""How near the shares of soft groups come to planted ones, and what hard groups make of such clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.personal.files import read, write
from coterie.methods.method import Method

NAME = "mixtures"
TITLE = "MNIST, 20 clients, each with 70 % of one concept and 30 % of another"
CLIENTS = 20
PARTITION = {
    "kind": "planted_mixture",
    "clients": CLIENTS,
    "groups": 2,
    "how": "swap",
    "share": 0.7,
    "size": 400,
}
MODEL = {"name": "mlp", "hidden": 64}
LOCAL = ct.Solver(epochs=1, batch_size=20, lr=0.1)
ROUNDS = 80
AIM = 0.05
SOFT = ("FedSoft", "FedEM")
# The clients on which FedEM's shares were farthest from the planted ones, and starts of FedEM there.
STARTS_NAME = "fedem-starts"
CLIENTS_SEED = 2
START_SEEDS = (2, 10, 11, 12, 13)
METHODS: dict[str, Callable[[], Method]] = {
    "FedSoft": lambda: ct.fedsoft(groups=2),
    "FedEM": lambda: ct.fedem(groups=2),
    "FedGroup": lambda: ct.fedgroup(groups=2, alpha=CLIENTS // 2),
    "IFCA": lambda: ct.ifca(groups=2),
    "FedAvg": ct.fedavg,
}


def measure(out: Path, seeds: list[int], end: float) -> None:
    """Do the runs that the file does not have, until a time of the clock."""
    done = read(out, NAME)
    known = {(one["method"], one["seed"]) for one in done}
    for seed in seeds:
        data = ct.load("mnist", partition=PARTITION, seed=seed)
        for method in METHODS:
            if (method, seed) in known or time.monotonic() > end:
                continue
            one = {"method": method, "seed": seed, **one_run(data, method, seed)}
            done.append(one)
            write(out, NAME, done)
            print(NAME, one, flush=True)


def measure_starts(out: Path, end: float) -> None:
    """Run FedEM on the same clients from the starts that the file does not have."""
    done = read(out, STARTS_NAME)
    data = ct.load("mnist", partition=PARTITION, seed=CLIENTS_SEED)
    for seed in START_SEEDS:
        if seed in [one["seed"] for one in done] or time.monotonic() > end:
            continue
        one = {"method": "FedEM", "seed": seed, **one_run(data, "FedEM", seed)}
        done.append(one)
        write(out, STARTS_NAME, done)
        print(STARTS_NAME, one, flush=True)


def one_run(data: ct.Population, method: str, seed: int) -> dict[str, Any]:
    """The accuracy of a run after its last round, its training loss, and how far its shares are from
    the planted ones."""
    result = ct.run(
        METHODS[method](),
        data=data,
        model=MODEL,
        local=LOCAL,
        rounds=ROUNDS,
        clients_per_round=CLIENTS,
        seed=seed,
        engine="serial",
        train={"evaluate_every": ROUNDS // 8},
    )
    scored = [row for row in result.rows if row.get("accuracy") is not None]
    return {
        "accuracy": scored[-1]["accuracy"],
        "share_error": scored[-1].get("share_error"),
        "loss": scored[-1]["loss"],
        "course": [row.get("share_error") for row in scored],
        "rounds": ROUNDS,
    }

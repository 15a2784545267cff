"""PFLlib's benchmark on Fashion-MNIST: what it prints, and the same recipe here.

PFLlib prints the best of 2,000 rounds, the mean of three trials. The course of a run is a prefix of a
longer one, so the best of fewer rounds here can only grow with more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.personal.files import read, write
from benchmarks.published.pfllib_clients import CLIENTS, clients
from coterie.data import Population
from coterie.methods.method import Method
from coterie.runs.loop import RoundResult

NAME = "pfllib"
MODEL = "benchmarks.published.networks:four_layers"
# Batches of 10 and one epoch are PFLlib's text, the rate is the default of its code.
LOCAL = ct.Solver(epochs=1, batch_size=10, lr=0.005)

# What is a method's own is PFLlib's default, where its code has one that is not zero.
METHODS: dict[str, Callable[[], Method]] = {
    "FedPer": ct.fedper,
    "FedRep": lambda: ct.fedrep(head_epochs=1, body_epochs=1),
    "FedALA": lambda: ct.fedala(adaptive_layers=1, share=0.8, eta=1.0, threshold=0.1),
    "FedROD": ct.fedrod,
    "Ditto": ct.ditto,
    "APFL": lambda: ct.apfl(alpha=1.0),
    "Per-FedAvg": lambda: ct.perfedavg(alpha=0.005),
    "pFedMe": lambda: ct.pfedme(lam=15.0, inner_steps=5, inner_lr=0.01),
    "FedAvg": ct.fedavg,
}

# Per cent, of pfllib.com/benchmark.html.
PRINTED = {
    "two labels": {
        "FedPer": 99.47,
        "FedRep": 99.56,
        "FedALA": 99.57,
        "FedROD": 99.52,
        "Ditto": 99.44,
        "APFL": 99.41,
        "Per-FedAvg": 99.18,
        "pFedMe": 99.35,
        "FedAvg": 80.41,
    },
    "Dir(0.1)": {
        "FedPer": 97.44,
        "FedRep": 97.56,
        "FedALA": 97.66,
        "FedROD": 97.52,
        "Ditto": 97.47,
        "APFL": 97.25,
        "Per-FedAvg": 95.10,
        "pFedMe": 97.25,
        "FedAvg": 85.85,
    },
}


def measure(
    setting: str, methods: Sequence[str], seeds: Sequence[int], rounds: int, out: Path
) -> None:
    """Do the runs that the file does not have with so many rounds, and write every round as it ends.

    Args:
        setting: of who holds what.
        methods: of `METHODS`.
        seeds: of the clients and of the runs.
        rounds: of each run.
        out: folder of the file.
    """
    for seed in seeds:
        data = clients(setting, seed)
        for method in methods:
            one = {"setting": setting, "method": method, "seed": seed, "course": []}
            known = [before for before in read(out, NAME) if _same(before, one)]
            if not known or len(known[0]["course"]) < rounds:
                _run(data, one, rounds, out)


def _run(data: Population, one: dict[str, Any], rounds: int, out: Path) -> None:
    """Do a run, and write every round of it as it ends.

    Args:
        data: the clients.
        one: what is known of the run; it gets the accuracies of its rounds, and the seconds.
        rounds: of the run.
        out: folder of the file.
    """
    others = [before for before in read(out, NAME) if not _same(before, one)]
    began = time.perf_counter()

    def record(found: RoundResult) -> None:
        one["course"].append(found.row["accuracy"])
        one["seconds"] = round(time.perf_counter() - began, 1)
        write(out, NAME, [*others, one])
        print(one, flush=True)

    ct.run(
        METHODS[one["method"]](),
        data=data,
        model=MODEL,
        local=LOCAL,
        rounds=rounds,
        clients_per_round=CLIENTS,
        seed=one["seed"],
        engine="serial",
        on_round=record,
    )


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two runs are of the same setting, method and seed."""
    return all(one[key] == other[key] for key in ("setting", "method", "seed"))

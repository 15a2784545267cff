"""How often ``groups = "auto"`` finds the number of groups that was planted.

For every federation, number of groups and seed: the clients of a cold start (at most alpha *
max_groups = 160) take 50 steps from the same model, and each estimator counts groups from their
updates. Prints a table in Markdown, that of docs/results/number-of-groups.md.

    python benchmarks/count_groups.py [--seeds 20] [--first 100] [--only digits ...] [--json FILE]

Federations of MNIST and Fashion-MNIST need COTERIE_DATA and are left out without it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.core.training import Steps
from coterie.data.loading import load_samples, make_partition, populate
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.math.group_count import ESTIMATORS, estimate_groups
from coterie.models import build_model, initial_models

MOST = 8
ASKED = 160
STEPS = 50


@dataclass(frozen=True)
class Federation:
    """A source, the learning rate that suits it, how its groups are planted, and how many clients
    there are."""

    source: str
    lr: float
    how: str
    clients: int
    model: str = "mclr"

    @property
    def name(self) -> str:
        model = "" if self.model == "mclr" else f", {self.model}"
        return f"{self.source}, {self.how}, {self.clients} clients{model}"


FEDERATIONS = [
    *(Federation("digits", 0.1, how, 60) for how in ("labels", "swap", "rotate")),
    *(Federation("mnist", 0.03, how, 400) for how in ("labels", "swap", "rotate")),
    *(Federation("fashion_mnist", 0.005, how, 400) for how in ("labels", "swap", "rotate")),
    Federation("synthetic", 0.01, "swap", 160),
    Federation("digits", 0.1, "rotate", 60, "mlp"),
    *(Federation("digits", 0.1, how, 160) for how in ("labels", "swap", "rotate")),
]


def updates(samples: Any, federation: Federation, groups: int, seed: int) -> torch.Tensor:
    """What the clients of a cold start send."""
    key = ct.Key(seed)
    partition = {
        "kind": "planted",
        "clients": federation.clients,
        "groups": groups,
        "how": federation.how,
    }
    population = populate(samples, make_partition(samples, partition, key.of("data")))
    module = build_model(federation.model, population.shape, population.classes, key.of("model"))
    start = initial_models(module, key)(0)[None]
    asked = np.sort(key.of("asked").generator().permutation(population.clients)[:ASKED])
    engine = SerialEngine(LocalRunner(population, module, ct.Solver(lr=federation.lr)))
    with Clients(engine, shape=ModelShape(population.classes)) as clients:
        work = ct.Train(how=Steps(STEPS))
        first = np.zeros_like(asked)
        reply = clients.run(work, asked, start, first, key=key.at(0).of("cold_start"))
    return torch.from_numpy(reply.fields["delta"])


def source(name: str, seed: int) -> Any:
    """The samples; a synthetic source has another teacher for each seed."""
    options = {"iid": True, "clients": 40, "seed": seed} if name == "synthetic" else {}
    return load_samples({"source": name, **options})


def measure(
    federation: Federation, seeds: range, estimators: list[str]
) -> Iterator[dict[str, Any]]:
    """One row per number of groups and seed: what was planted, and what each estimator found."""
    samples = source(federation.source, seeds.start)
    for groups in range(1, (4 if federation.how == "rotate" else MOST) + 1):
        for seed in seeds:
            if federation.source == "synthetic":
                samples = source("synthetic", seed)
            sent = updates(samples, federation, groups, seed)
            found = {
                name: estimate_groups(sent, MOST, ct.Key(seed).of("count"), name)
                for name in estimators
            }
            yield {"federation": federation.name, "groups": groups, "seed": seed, **found}


def table(rows: list[dict[str, Any]], estimators: list[str]) -> str:
    """Share of right answers, one group apart from several, a line for each federation."""

    def right(some: list[dict[str, Any]], name: str) -> str:
        hits = sum(row[name] == row["groups"] for row in some)
        if some:
            return f"{hits}/{len(some)}"
        return "-"

    lines = ["| federation | " + " | ".join(f"{e}: one | {e}: several" for e in estimators) + " |"]
    lines.append("|---" * (1 + 2 * len(estimators)) + "|")
    for name in dict.fromkeys(row["federation"] for row in rows):
        mine = [row for row in rows if row["federation"] == name]
        one = [r for r in mine if r["groups"] == 1]
        more = [r for r in mine if r["groups"] > 1]
        lines.append(
            f"| {name} | "
            + " | ".join(f"{right(one, e)} | {right(more, e)}" for e in estimators)
            + " |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=20, help="federations for each number of groups"
    )
    parser.add_argument("--first", type=int, default=100, help="first seed")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="federations whose name holds one of these"
    )
    parser.add_argument(
        "--estimators", nargs="+", default=list(ESTIMATORS), choices=list(ESTIMATORS)
    )
    parser.add_argument("--json", type=Path, help="write every single answer to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for federation in FEDERATIONS:
        elsewhere = federation.source in ("mnist", "fashion_mnist") and not os.environ.get(
            "COTERIE_DATA"
        )
        if elsewhere or not any(part in federation.name for part in options.only):
            continue
        begun = time.monotonic()
        rows += measure(
            federation, range(options.first, options.first + options.seeds), options.estimators
        )
        print(f"{federation.name}: {time.monotonic() - begun:.0f} s", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows), encoding="utf-8")
    print(table(rows, options.estimators))


if __name__ == "__main__":
    main()

"""Which methods find known groups, and at what cost?

    python -m benchmarks.known_groups --out runs/known-groups.json
    python -m benchmarks.known_groups --out runs/known-groups.json --page --machine "two cores"

Federations in which all groups have the same images and see them otherwise. A run that the file has
already is not done again, so a measurement may be stopped after ``--minutes`` and go on later.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.results import records
from benchmarks.results.records import Measurement, Record, ResultPage

Run = dict[str, Any]

PAGE = "known-groups"
GROUPS = 4
ROUNDS = 30
SOLVER = ct.Solver(epochs=3, batch_size=20, lr=0.1)
PARTITION = {"kind": "planted", "clients": 100, "copies": True, "size": 200}
HOW: Mapping[str, Mapping[str, Any]] = {
    "rotation": {"how": "rotate", "groups": GROUPS},
    "swapped labels": {"how": "swap", "groups": GROUPS},
    "strokes": {
        "how": "images",
        "styles": ["plain", "erode", "dilate", "invert"],
        "groups": GROUPS,
    },
    "inverted": {"how": "images", "styles": ["plain", "invert"], "groups": 2},
}
SOURCES = {"MNIST": "mnist", "Fashion-MNIST": "fashion_mnist"}
FEDERATIONS = [f"{data}, {how}" for data in SOURCES for how in HOW]
Make = Callable[[int], ct.Method]
# Every method with its defaults, and the number of groups where it needs one. `keep` was the default
# when FedClust and StoCFL were measured.
METHODS: Mapping[str, Make] = {
    "FedAvg": lambda groups: ct.fedavg(),
    "local": lambda groups: ct.algorithms.local(),
    # Planted clients take turns: client 0 is of group 0, client 1 of group 1, and so on.
    "known groups": lambda groups: ct.known_groups(members=(tuple(range(groups)),)),
    "FedGroup": lambda groups: ct.fedgroup(groups=groups),
    "FlexCFL": lambda groups: ct.flexcfl(groups=groups),
    "IFCA": lambda groups: ct.ifca(groups=groups),
    "FeSEM": lambda groups: ct.fesem(groups=groups),
    "CLoVE": lambda groups: ct.clove(groups=groups),
    "CORNFLQS": lambda groups: ct.cornflqs(groups=groups),
    "LCFed": lambda groups: ct.lcfed(groups=groups),
    "CFL-GP": lambda groups: ct.cfl_gp(groups=groups),
    "k-FED": lambda groups: ct.k_fed(groups=groups),
    "FedSoft": lambda groups: ct.fedsoft(groups=groups),
    "FedClust": lambda groups: ct.fedclust(outliers="keep"),
    "PACFL": lambda groups: ct.pacfl(),
    "FLHC": lambda groups: ct.flhc(),
    "CFL": lambda groups: ct.cfl(),
    "SR-FCA": lambda groups: ct.sr_fca(),
    # Clients that differ from the start have a model each in the first time step.
    "FedDrift, delta 0.5": lambda groups: ct.feddrift(delta=0.5, start="alone"),
    "StoCFL": lambda groups: ct.stocfl(outliers="keep"),
    "FedGWC": lambda groups: ct.fedgwc(),
    "FLUX": lambda groups: ct.flux(),
    "Feroma": lambda groups: ct.feroma(),
    "Auxo": lambda groups: ct.auxo(),
}
# Remedies against models that no client chooses, compared where IFCA loses a group.
STARTS: Mapping[str, Make] = {
    "IFCA": METHODS["IFCA"],
    "IFCA, cold start": lambda groups: ct.ifca(groups=groups, init="cold_start"),
    "IFCA, 5 restarts": lambda groups: ct.ifca(groups=groups, restarts=5),
}
STARTS_ON = "MNIST, rotation"
# Bright images, for which the rate of all federations is too large.
RATES_ON = "MNIST, inverted"
RATE_METHODS = {name: METHODS[name] for name in ("FedAvg", "local", "known groups")}
ALL_METHODS = {**METHODS, **STARTS}
METRICS = {"accuracy": "%", "ARI": "", "groups": "", "sent": "MB", "seconds": "s"}
# Other names than above, so that tables of all federations leave these records out.
METRICS_OF_STARTS = {
    "accuracy": "test accuracy",
    "ARI": "adjusted Rand index",
    "groups": "groups with clients",
    "sent": "sent in all rounds",
}


def population(federation: str, seed: int) -> ct.Population:
    """The clients of a federation."""
    data, how = federation.split(", ")
    partition = {**PARTITION, **HOW[how]}
    return ct.load(SOURCES[data], partition=partition, seed=seed, pixels="unit")


def one_run(
    data: ct.Population, method: str, groups: int, seed: int, rate: float
) -> dict[str, float | None]:
    """What a run measures after its last round."""
    began = time.perf_counter()
    result = ct.run(
        ALL_METHODS[method](groups),
        data=data,
        model={"name": "mlp", "hidden": 64},
        local=replace(SOLVER, lr=rate),
        rounds=ROUNDS,
        clients_per_round=20,
        seed=seed,
        engine="serial",
        train={"evaluate_every": ROUNDS},
    )
    last = result.rows[-1]
    agreement = last.get("agreement")
    return {
        "accuracy": round(100 * last["accuracy"], 1),
        "ARI": None if agreement is None else round(agreement["ari"], 2),
        "groups": len(set(result.state.member.tolist()) - {-1}),
        "sent": round(sum(sent(row) for row in result.rows) / 1e6, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def sent(row: Mapping[str, Any]) -> int:
    """Bytes in both directions of a round."""
    moved = row["transfers"]
    return int(moved["down_bytes"] + moved["up_bytes"])


def measure(
    out: Path,
    federations: list[str],
    methods: list[str],
    seeds: list[int],
    rate: float,
    end: float,
) -> None:
    """Do the runs that the file lacks, until a time of the clock."""
    runs: list[Run] = json.loads(out.read_text()) if out.exists() else []
    known = {
        (one["federation"], one["method"], one["seed"]) for one in runs if rate_of(one) == rate
    }
    for seed in seeds:
        for federation in federations:
            missing = [m for m in methods if (federation, m, seed) not in known]
            if not missing or time.monotonic() > end:
                continue
            data = population(federation, seed)
            groups = HOW[federation.split(", ")[1]]["groups"]
            for method in missing:
                if time.monotonic() > end:
                    return
                found = one_run(data, method, groups, seed, rate)
                run = {"federation": federation, "method": method, "seed": seed, "rate": rate}
                runs.append({**run, **found})
                print(runs[-1], flush=True)
                new = out.with_suffix(".new")
                new.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
                os.replace(new, out)


def rate_of(run: Run) -> float:
    """The learning rate of a run; files of earlier versions have one alone."""
    return float(run.get("rate", SOLVER.lr))


def records_of_rates(runs: list[Run]) -> list[Record]:
    """Accuracies of some methods with other learning rates, where the usual one is too large."""
    found = []
    for rate in sorted({rate_of(one) for one in runs}, reverse=True):
        of_rate = [one for one in runs if rate_of(one) == rate]
        found += [
            one.model_copy(update={"case": "learning rates", "metric": f"rate {rate:g}"})
            for one in _records(of_rate, RATES_ON, RATE_METHODS)
            if one.metric == "accuracy"
        ]
    return found


def records_of_starts(runs: list[Run]) -> list[Record]:
    """The figures of IFCA by the way in which its first models are made."""
    return [
        found.model_copy(
            update={"case": "first models of IFCA", "metric": METRICS_OF_STARTS[found.metric]}
        )
        for found in _records(runs, STARTS_ON, STARTS)
        if found.metric in METRICS_OF_STARTS
    ]


def _records(runs: list[Run], federation: str, methods: Mapping[str, Any]) -> list[Record]:
    """The figures of some methods, over the seeds in which all of them were run."""
    ours = [one for one in runs if one["federation"] == federation and one["method"] in methods]
    seeds = sorted({one["seed"] for one in ours})
    whole = [s for s in seeds if sum(one["seed"] == s for one in ours) == len(methods)]
    found = []
    for method in methods if whole else ():
        by_seed = {one["seed"]: one for one in ours if one["method"] == method}
        for metric, unit in METRICS.items():
            values = tuple(by_seed[seed][metric] for seed in whole)
            found.append(
                Record(
                    case=federation,
                    subject=method,
                    metric=metric,
                    unit=unit,
                    values=values,
                    seeds=tuple(whole),
                    rounds=ROUNDS,
                    measured="all",
                )
            )
    return found


def write_page(out: Path, machine: str | None) -> None:
    """Write the figures of all seeds in which every method was run."""
    runs: list[Run] = json.loads(out.read_text())
    usual = [one for one in runs if rate_of(one) == SOLVER.lr]
    found = []
    for federation in FEDERATIONS:
        found += _records(usual, federation, METHODS)
    found += records_of_starts(usual)
    found += records_of_rates(runs)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    how = Measurement(
        what="Groups that see the same images otherwise",
        settings=f"100 clients in {GROUPS} groups (2 where inverted), each with 160 images for training and 40 for "
        f"testing, 20 clients a round, {SOLVER.epochs} local epochs in batches of "
        f"{SOLVER.batch_size} by SGD with learning rate {SOLVER.lr}, one hidden layer of 64 units.",
        machine=machine,
        date=datetime.date.today().isoformat(),
        commit=commit,
        command="python -m benchmarks.known_groups --out runs/known-groups.json",
    )
    page = ResultPage(
        question="Which methods find known groups, and at what cost?",
        topic="groups",
        settings=None,
        measurements={"all": how},
        records=tuple(found),
    )
    records.write(PAGE, page)


def main() -> None:
    """Measure what is not measured yet, or make the figures of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file of the runs")
    parser.add_argument("--federations", nargs="*", choices=FEDERATIONS, default=FEDERATIONS)
    parser.add_argument("--methods", nargs="*", choices=ALL_METHODS, default=list(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rate", type=float, default=SOLVER.lr, help="of local SGD")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--page", action="store_true", help="make the figures of the page")
    parser.add_argument("--machine")
    arguments = parser.parse_args()
    if arguments.page:
        write_page(arguments.out, arguments.machine)
        return
    end = time.monotonic() + 60 * arguments.minutes
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    measure(arguments.out, arguments.federations, arguments.methods, seeds, arguments.rate, end)


if __name__ == "__main__":
    main()

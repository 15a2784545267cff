"""Compare personalised methods, before and after adaptation, on seen and unseen clients.

    python -m benchmarks.personal --out runs/personal
    python -m benchmarks.personal --out runs/personal --federations femnist --methods FedAvg Ditto \\
        --seeds 0
    python -m benchmarks.personal --out runs/personal --page --machine "two cores" --commit 7da2de5

Each federation has a file in the folder, to which runs are added one by one. A run that is there
already is not done again, so a measurement may be stopped after ``--minutes`` and go on later.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.personal import mixtures, pages
from benchmarks.personal.federations import ADAPT, FEDERATIONS, UNSEEN, Federation
from benchmarks.personal.files import Found, read, write
from benchmarks.personal.methods import METHODS
from coterie.data import Population


def measure(name: str, methods: Sequence[str], seeds: Sequence[int], out: Path, end: float) -> None:
    """Do the runs of a federation that its file does not have, until a time of the clock."""
    federation = FEDERATIONS[name]
    done = read(out, name)
    known = {(one["method"], one["seed"]) for one in done}
    for seed in seeds:
        missing = [method for method in methods if (method, seed) not in known]
        if not missing or time.monotonic() > end:
            continue
        data = federation.population(seed)
        for method in missing:
            if time.monotonic() > end:
                return
            one = {"method": method, "seed": seed, **one_run(federation, data, method, seed)}
            done.append(one)
            write(out, name, done)
            print(name, one, flush=True)


def one_run(federation: Federation, data: Population, method: str, seed: int) -> Found:
    """The figures of a run after its last round, by the way in which clients are scored."""
    entry = METHODS[method]
    ways: dict[str, Any] = {}
    if entry.several_models:
        # The clients that never train are left out, so it trains those of the other methods.
        data = federation.seen(data, seed)
    else:
        ways = {"evaluate": {"adapt": ADAPT, "unseen": UNSEEN, "rounds": "last"}}
    began = time.perf_counter()
    result = ct.run(
        entry.make(federation),
        data=data,
        model=federation.network(entry.normalised),
        local=federation.local,
        rounds=federation.rounds,
        clients_per_round=federation.per_round,
        seed=seed,
        engine="serial",
        personal={"layers": entry.personal},
        train={"evaluate_every": federation.rounds},
        **ways,
    )
    seconds = time.perf_counter() - began
    scores = {
        one.way.name: {
            "value": one.value,
            "mean": one.mean,
            "worst tenth": one.worst_tenth,
        }
        for one in result.client_scores
    }
    return {
        "scores": scores,
        "groups": len(result.state.models),
        "rounds": federation.rounds,
        "seconds": round(seconds, 1),
    }


def chosen(text: str | None, known: Sequence[str]) -> list[str]:
    """The names of a list with commas, all of them without one."""
    if text is None:
        return list(known)
    names = text.split(",")
    wrong = [name for name in names if name not in known]
    if wrong:
        raise SystemExit(f"{', '.join(wrong)}: expected some of {', '.join(known)}")
    return names


def main() -> None:
    """Measure what is not measured yet, or make the figures of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--federations", help="names with commas between; default: all")
    # Titles of methods have commas themselves.
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--page", action="store_true", help="make benchmarks/results/personal.json")
    parser.add_argument("--machine")
    parser.add_argument("--commit")
    arguments = parser.parse_args()
    if arguments.page:
        runs = {name: read(arguments.out, name) for name in FEDERATIONS}
        mixed = {name: read(arguments.out, name) for name in (mixtures.NAME, mixtures.STARTS_NAME)}
        pages.write(runs, mixed, arguments.machine, arguments.commit)
        return
    end = time.monotonic() + 60 * arguments.minutes
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    for name in chosen(arguments.federations, [*FEDERATIONS, mixtures.NAME, mixtures.STARTS_NAME]):
        if name == mixtures.STARTS_NAME:
            mixtures.measure_starts(arguments.out, end)
            continue
        if name == mixtures.NAME:
            mixtures.measure(arguments.out, seeds, end)
            continue
        measure(name, arguments.methods, seeds, arguments.out, end)


if __name__ == "__main__":
    main()

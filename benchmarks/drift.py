"""How accurate are methods over time when clients' concepts drift, beside an oracle that knows them?

    python -m benchmarks.drift --out runs/drift.json
    python -m benchmarks.drift --out runs/drift.json --page --machine "two cores"

The federations of FedDrift's experiments: points of SEA, SINE and CIRCLE, and MNIST with pairs of
digits that are taken for each other. Clients change their concept at different times, and see new
samples in each time step. Runs that the file has already are not done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import coterie as ct
from benchmarks.results import records
from benchmarks.results.records import Measurement, Record, ResultPage
from benchmarks.resumable import RunsFile, read_request, request_parser, today
from coterie.core.arrays import FloatArray

PAGE = "drift"
# Of a time step.
ROUNDS = 10
CLIENTS = 10
SOLVER = ct.Solver(epochs=5, batch_size=10, lr=0.1)
# Training samples of a client in a time step, and those that it is tested on.
SAMPLES = 100
TESTED = 250
# The schedules of drift of FedDrift's authors: a row for each time step, a concept for each client.
TWO_CONCEPTS = (
    (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    (0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
    (0, 1, 0, 0, 0, 0, 0, 1, 0, 0),
    (0, 1, 1, 1, 0, 1, 0, 1, 0, 0),
    (0, 1, 1, 1, 0, 1, 0, 1, 1, 0),
    (1, 0, 1, 1, 0, 1, 1, 0, 1, 0),
    (1, 0, 0, 1, 0, 0, 1, 0, 1, 0),
    (1, 0, 0, 0, 1, 0, 1, 0, 1, 1),
    (1, 0, 0, 0, 1, 0, 1, 0, 0, 1),
    (1, 0, 0, 0, 1, 0, 1, 0, 0, 1),
)
FOUR_CONCEPTS = (
    (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    (1, 1, 1, 0, 0, 0, 0, 0, 0, 0),
    (1, 1, 1, 2, 2, 2, 0, 0, 0, 0),
    (2, 2, 1, 2, 2, 2, 2, 1, 0, 0),
    (2, 2, 2, 1, 2, 2, 2, 1, 3, 0),
    (2, 3, 2, 1, 2, 3, 3, 1, 3, 0),
    (3, 3, 2, 1, 1, 3, 3, 2, 1, 0),
    (3, 0, 3, 3, 1, 3, 3, 2, 1, 3),
    (0, 0, 3, 3, 3, 1, 3, 2, 2, 3),
    (0, 0, 0, 3, 3, 1, 1, 3, 2, 2),
)
STEPS = len(FOUR_CONCEPTS)
SWAPS = ((), ((1, 2),), ((3, 4),), ((5, 6),))
FEDERATIONS = {"SEA-4": 4, "SINE-2": 2, "CIRCLE-2": 2, "MNIST-2": 2, "MNIST-4": 4}


def matrix(concepts: int) -> tuple[tuple[int, ...], ...]:
    """The concept of each client in each time step."""
    return FOUR_CONCEPTS if concepts == len(SWAPS) else TWO_CONCEPTS


# By the number of concepts, which methods with a number of groups are told.
METHODS: Mapping[str, Callable[[int], ct.Method]] = {
    "FedAvg": lambda _: ct.fedavg(),
    "FlexCFL": lambda k: ct.flexcfl(groups=k, on_shortage="fewer"),
    "IFCA-MIG": lambda k: ct.ifca(groups=k, migration="per_label"),
    "IFCA": lambda k: ct.ifca(groups=k),
    "FedDrift, delta 0.1": lambda _: ct.feddrift(every=ROUNDS),
    "FedDrift, delta 0.3": lambda _: ct.feddrift(every=ROUNDS, delta=0.3),
    "FLUX": lambda _: ct.flux(),
    "FLUX, migration": lambda _: ct.flux(migration="per_label"),
    "Feroma": lambda _: ct.feroma(),
    "oracle": lambda k: ct.known_groups(members=matrix(k), every=ROUNDS),
}


def population(federation: str, seed: int) -> ct.Population:
    """The clients of a federation, each with all the samples that it will see."""
    concepts = FEDERATIONS[federation]
    each = STEPS * SAMPLES + TESTED
    partition: dict[str, Any] = {
        "kind": "planted",
        "clients": CLIENTS,
        "groups": concepts,
        "copies": True,
        "size": each,
    }
    stream, _ = federation.lower().split("-")
    if stream == "mnist":
        partition |= {"how": "swap", "swaps": SWAPS[:concepts]}
        return ct.load("mnist", partition=partition, seed=seed, pixels="unit")
    columns = [f"concept_{concept}" for concept in range(concepts)]
    partition |= {"how": "columns", "columns": columns}
    # `size` counts what a client has of its group's copy.
    samples = CLIENTS * each
    return ct.load("drift_stream", partition=partition, seed=seed, function=stream, samples=samples)


def one_run(data: ct.Population, federation: str, method: str, seed: int) -> dict[str, Any]:
    """The accuracy after each round, in percent."""
    concepts = FEDERATIONS[federation]
    began = time.perf_counter()
    result = ct.run(
        METHODS[method](concepts),
        data=data,
        model={"name": "mlp", "hidden": 64 if federation.startswith("MNIST") else 10},
        local=SOLVER,
        rounds=ROUNDS * STEPS,
        clients_per_round=CLIENTS,
        seed=seed,
        engine="serial",
        shift={"kind": "concepts", "every": ROUNDS, "matrix": matrix(concepts), "fresh": True},
    )
    found = [round(100 * row["accuracy"], 2) for row in result.rows]
    return {"accuracy": found, "seconds": round(time.perf_counter() - began, 1)}


def measure(runs: RunsFile, federations: list[str], seeds: list[int], end: float) -> None:
    """Do the runs that the file lacks, until a time of the clock."""
    for seed in seeds:
        for federation in federations:
            data = population(federation, seed)
            for method in METHODS:
                of = {"federation": federation, "method": method, "seed": seed}
                if of in runs:
                    continue
                if time.monotonic() > end:
                    return
                runs.add(of | one_run(data, federation, method, seed))


def _whole_seeds(runs: RunsFile, federation: str) -> tuple[int, ...]:
    """The seeds in which every method was run."""
    found = [{one["seed"] for one in runs.of(federation=federation, method=m)} for m in METHODS]
    return tuple(sorted(set.intersection(*found)))


def _record(
    case: str, method: str, metric: str, values: FloatArray, seeds: tuple[int, ...], steps: int
) -> Record:
    return Record(
        case=case,
        subject=method,
        metric=metric,
        unit="%",
        values=tuple(round(float(value), 2) for value in values),
        seeds=seeds,
        rounds=ROUNDS * steps,
        measured="all",
    )


def _records(runs: RunsFile) -> list[Record]:
    found = []
    for federation in FEDERATIONS:
        seeds = _whole_seeds(runs, federation)
        for method in METHODS if seeds else ():
            of_method = runs.of(federation=federation, method=method)
            ours = [one for one in of_method if one["seed"] in seeds]
            # [seeds, steps, rounds of a step]
            accuracy = np.array([one["accuracy"] for one in ours]).reshape(-1, STEPS, ROUNDS)
            figures = {
                # In the first time step there is one concept.
                "mean": accuracy[:, 1:].mean(axis=(1, 2)),
                "end of steps": accuracy[:, 1:, -1].mean(axis=1),
                "first round of steps": accuracy[:, 1:, 0].mean(axis=1),
            }
            for metric, values in figures.items():
                found.append(_record(federation, method, metric, values, seeds, STEPS))
            for step in range(STEPS):
                values = accuracy[:, step].mean(axis=1)
                case = f"{federation}, step by step"
                found.append(_record(case, method, "accuracy", values, seeds, step + 1))
    return found


def write_page(runs: RunsFile, machine: str | None) -> None:
    """Write the figures of the page."""
    how = Measurement(
        what="Accuracy over time under drift",
        settings=f"{CLIENTS} clients, all in each round; {STEPS} time steps of {ROUNDS} rounds, in "
        f"each of which a client has {SAMPLES} training samples that it never had before; "
        f"{SOLVER.epochs} local epochs in batches of {SOLVER.batch_size} by SGD with learning "
        f"rate {SOLVER.lr}; one hidden layer of 10 units for points and 64 for MNIST.",
        machine=machine,
        command="python -m benchmarks.drift --out runs/drift.json",
        **today(),
    )
    page = ResultPage(
        question="How accurate are methods while concepts drift?",
        topic="drift",
        settings=None,
        measurements={"all": how},
        records=tuple(_records(runs)),
    )
    records.write(PAGE, page)


def main() -> None:
    """Measure what is not measured yet, or make the figures of the page."""
    parser = request_parser(__doc__.splitlines()[0])
    parser.add_argument("--federations", nargs="*", choices=FEDERATIONS, default=[*FEDERATIONS])
    request = read_request(parser)
    if request.page:
        write_page(request.runs, request.machine)
        return
    measure(request.runs, request.options.federations, request.seeds, request.end)


if __name__ == "__main__":
    main()

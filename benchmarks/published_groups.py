"""Do clustered methods reach the figures that authors publish beside their code?

    python -m benchmarks.published_groups --out runs/published-groups.json
    python -m benchmarks.published_groups --out runs/published-groups.json --page --machine "two cores"

The authors of CORNFLQS keep a file of results for their own method and for others that they ran.
These are its settings for MNIST. Runs that the file has already are not done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from torch import nn

import coterie as ct
from benchmarks.results import records
from benchmarks.results.records import Measurement, Record, ResultPage
from benchmarks.resumable import RunsFile, read_request, request_parser, today

PAGE = "published-groups"
SOLVER = ct.Solver(epochs=10, batch_size=128, lr=0.001, optimizer="adam")
ROUNDS = 20
CLIENTS = 100
GROUPS = 4
# 50 training images of each digit, and 70 to test on.
PARTITION: Mapping[str, Any] = {
    "kind": "planted",
    "clients": CLIENTS,
    "groups": GROUPS,
    "size": 570,
    "test_fraction": 70 / 570,
}
HOW: Mapping[str, Mapping[str, Any]] = {
    "rotation": {"how": "rotate"},
    "two swapped digits": {
        "how": "swap",
        "swaps": (((1, 7),), ((2, 7),), ((4, 7),), ((3, 8),)),
    },
}
METHODS: Mapping[str, Callable[[], ct.Method]] = {
    "FedAvg": ct.fedavg,
    "FedGroup": lambda: ct.fedgroup(groups=GROUPS),
    "IFCA": lambda: ct.ifca(groups=GROUPS),
    "IFCA, best of ten starts": lambda: ct.ifca(groups=GROUPS, restarts=10),
    "SR-FCA": lambda: ct.sr_fca(refine_every=5),
    "CORNFLQS": lambda: ct.cornflqs(groups=GROUPS),
}
# Means of the authors' five seeds: accuracy in percent, adjusted Rand index. Their row of IFCA is the
# best of several starts, so it stands beside both of ours.
PRINTED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "rotation": {
        "FedAvg": (56.45, 0.0),
        "FedGroup": (91.50, 1.0),
        "IFCA": (91.53, 1.0),
        "IFCA, best of ten starts": (91.53, 1.0),
        "SR-FCA": (89.99, 1.0),
        "CORNFLQS": (91.59, 1.0),
    },
    "two swapped digits": {
        "FedAvg": (71.02, 0.0),
        "FedGroup": (91.49, 1.0),
        "IFCA": (91.52, 1.0),
        "IFCA, best of ten starts": (91.52, 1.0),
        "SR-FCA": (89.95, 1.0),
        "CORNFLQS": (91.58, 1.0),
    },
}
PRINTED_AT = "Results.xlsx of leahcimali/CFL-Evaluation-of-labels-and-quantity-skew, sheet noqs, dataset mnist."


def two_layers() -> nn.Module:
    """The authors' "linear" network: two layers without anything between them."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.Linear(200, 10))


# One layer has the same functions as two linear ones, and compiled steps. The other is the authors'.
NETWORKS: Mapping[str, Callable[[], Any]] = {"one layer": lambda: "mclr", "two layers": two_layers}


def one_run(how: str, method: str, seed: int, network: str) -> dict[str, Any]:
    """What a run measures after its last round."""
    partition = {**PARTITION, **HOW[how]}
    data = ct.load("mnist", partition=partition, seed=seed, pixels="unit")
    began = time.perf_counter()
    result = ct.run(
        METHODS[method](),
        data=data,
        model=NETWORKS[network](),
        local=SOLVER,
        rounds=ROUNDS,
        clients_per_round=CLIENTS,
        seed=seed,
        engine="serial",
        train={"evaluate_every": ROUNDS},
    )
    last = result.rows[-1]
    agreement = last.get("agreement") or {"ari": 0.0}
    return {
        "accuracy": round(100 * last["accuracy"], 2),
        "ARI": round(agreement["ari"], 2),
        "seconds": round(time.perf_counter() - began, 1),
    }


def measure(runs: RunsFile, network: str, seeds: list[int], end: float) -> None:
    """Do the runs that the file lacks, until a time of the clock."""
    for seed in seeds:
        for how in HOW:
            for method in METHODS:
                of = {"how": how, "method": method, "seed": seed, "network": network}
                if of in runs:
                    continue
                if time.monotonic() > end:
                    return
                runs.add(of | one_run(how, method, seed, network))


def _records(runs: RunsFile) -> list[Record]:
    found = []
    for how, network, method in product(HOW, NETWORKS, METHODS):
        ours = runs.of(how=how, method=method, network=network)
        if ours:
            for place, (metric, unit) in enumerate({"accuracy": "%", "ARI": ""}.items()):
                measured = Record(
                    case=f"{how}, {network}",
                    subject=method,
                    metric=metric,
                    unit=unit,
                    values=tuple(one[metric] for one in ours),
                    seeds=tuple(one["seed"] for one in ours),
                    rounds=ROUNDS,
                    measured="ours",
                )
                printed = measured.model_copy(
                    update={
                        "metric": f"{metric}, authors",
                        "values": (PRINTED[how][method][place],),
                        "seeds": None,
                        "measured": "authors",
                    }
                )
                found += [measured, printed]
    return found


def write_page(runs: RunsFile, machine: str | None) -> None:
    """Write the figures of the page."""
    ours = Measurement(
        what="Coterie",
        settings=f"MNIST; {CLIENTS} clients in {GROUPS} groups, all in each round, each with 500 "
        f"images for training and 70 for testing; {SOLVER.epochs} local epochs in batches of "
        f"{SOLVER.batch_size} by Adam with learning rate {SOLVER.lr}; one linear layer, or two "
        "without anything between them, 784-200-10, as the authors have.",
        machine=machine,
        command="python -m benchmarks.published_groups --out runs/published-groups.json "
        "--network 'one layer'",
        **today(),
    )
    authors = Measurement(
        what="The authors of CORNFLQS, means of five seeds",
        settings=PRINTED_AT,
        machine=None,
        date=None,
        commit=None,
        command=None,
    )
    page = ResultPage(
        question="Do clustered methods reach the figures that authors publish beside their code?",
        topic="groups",
        settings=None,
        measurements={"ours": ours, "authors": authors},
        records=tuple(_records(runs)),
    )
    records.write(PAGE, page)


def main() -> None:
    """Measure what is not measured yet, or make the figures of the page."""
    parser = request_parser(__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="one layer")
    request = read_request(parser)
    if request.page:
        write_page(request.runs, request.machine)
        return
    measure(request.runs, request.options.network, request.seeds, request.end)


if __name__ == "__main__":
    main()

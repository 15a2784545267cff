"""What FedClust's clients have before they are clustered: their layers, and their own networks.

    python -m benchmarks.final_layers fedclust/fmnist --seeds 0-2

A line is one of Table 1a of ``coterie reproduce fedclust``. All clients train once from the first
model. Prints, as one line of JSON for each seed,

- how many clients the largest cluster has, by linkage and number of clusters;
- how many clusters the automatic thresholds find;
- the mean accuracy of the clients' own networks, by both readings of their test sets: what a
  training without any federation reaches.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.dirichlet import READINGS, lines_of, prepared_as
from coterie.clients.clients import ClientStores
from coterie.core.keep import ClientStore
from coterie.core.vectors import Layout
from coterie.core.work import Train
from coterie.engines import make_clients
from coterie.math.clustering import Linkage, agglomerate
from coterie.math.distances import l2
from coterie.measures.own_models import score_local_networks
from coterie.measures.scoring import Evaluate
from coterie.models import initial_models
from coterie.rules.signatures import span
from coterie.runs.spec import RunSpec
from coterie.studies.reproduce.papers import Line
from coterie.sweep.grid import read_seeds

LINKAGES: tuple[Linkage, ...] = ("average", "ward")
NUMBERS = (2, 5, 10, 20, 30, 40)


def trained_once(spec: RunSpec) -> tuple[Tensor, ClientStore]:
    """The final layers that all clients send, and the networks that they trained.

    Args:
        spec: of a run of FedClust.
    """
    ids = np.flatnonzero(spec.population.sizes("train") > 0)
    module = spec.network.module
    first = initial_models(module, spec.key)(0)
    work = Train(upload=span(Layout.of(module), "final", bias=True))
    # The stream of the run, so that the layers are those by which it clusters.
    key = spec.key.at(0).of("assign").of("signatures")
    evaluation = replace(spec.schedule.evaluation, evaluate=Evaluate(local=True))
    schedule = replace(spec.schedule, evaluation=evaluation)
    with replace(spec, schedule=schedule).make_clients("serial", {}) as clients:
        reply = clients.run(work, ids, first[None], np.zeros(len(ids), np.int64), key=key)
        assert clients.stores.networks is not None
        return torch.from_numpy(reply.fields["delta"]), clients.stores.networks


def clusters(layers: Tensor) -> dict[str, int]:
    """The largest of so many clusters, and how many the automatic thresholds find, by linkage."""
    distance = l2(layers)
    found = {}
    for linkage in LINKAGES:
        for number in NUMBERS:
            labels = agglomerate(distance, linkage, "auto", number).labels
            found[f"{linkage} {number}"] = int(np.bincount(labels).max())
        found[f"{linkage} auto"] = agglomerate(distance, linkage, "auto").count
        found[f"{linkage} gap"] = agglomerate(distance, linkage, "gap").count
    return found


def accuracies(line: Line, seed: int, networks: ClientStore) -> dict[str, float]:
    """Mean accuracy of the clients' networks in percent, by reading of the test set."""
    found = {}
    for reading in READINGS:
        spec = prepared_as(line, seed, 1, reading).spec
        module = spec.network.module
        with make_clients(spec.population, module, spec.local, "serial") as made:
            clients = replace(made, stores=ClientStores(networks=networks))
            testable = spec.population.sizes("test") > 0
            row: dict[str, Any] = score_local_networks(clients, testable, spec.key)
        found[f"local {reading}"] = 100 * row["accuracy_local_mean"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("line", metavar="LINE", help="fedclust/fmnist, fedclust/cifar10")
    parser.add_argument("--seeds", default="0")
    options = parser.parse_args()
    line = lines_of(options.line)[0]
    for seed in read_seeds(options.seeds):
        spec = prepared_as(line, seed, 1, READINGS[0]).spec
        layers, networks = trained_once(spec)
        found = {"seed": seed, **clusters(layers), **accuracies(line, seed, networks)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

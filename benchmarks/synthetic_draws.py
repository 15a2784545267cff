"""How much the draw of Synthetic(1,1) decides: what logistic regression can reach on each of nine.

    python benchmarks/synthetic_draws.py --out runs/synthetic-draws.json

The draws have nearly as many samples as FlexCFL's paper prints, 75,349; all lie within 400 of it.
Prints, as one line of JSON for each, the accuracy in percent on all clients' test samples of a
logistic regression that is fitted centrally, with the weight decay of the paper's lines,

- ``pooled``: on all clients' training samples: one model, which FedAvg looks for;
- ``groups``: on those of each group that FlexCFL's cold start finds: what its groups look for;
- ``local``: on those of each client.

No round is trained but the one in which FlexCFL finds its groups.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from coterie.core.arrays import IntArray
from coterie.data.population import Population
from coterie.experiment import Experiment, check
from coterie.runs.compose import compose
from coterie.runs.run import Run
from coterie.studies.reproduce.command import choose
from coterie.studies.reproduce.tables import overlay

DATA_SEEDS = (2432, 2205, 3460, 1227, 96, 1914, 3837, 1192, 353)
ITERATIONS = 300


def config_of(data_seed: int) -> Experiment:
    """FlexCFL's line of Table 3 with another draw of the data."""
    (line,) = choose(["flexcfl"], "full", "3", ["synthetic-mclr/flexcfl"])
    changed = {"data": {"seed": data_seed}, "engine": {"name": "serial"}, "seed": 0}
    return check(overlay(line.tables or {}, changed))


def first_groups(config: Experiment) -> tuple[Population, IntArray]:
    """The data, and the group of each client after the first round.

    All 100 clients take part in the cold start, so each has a group then.
    """
    composed = compose(config)
    with composed.clients() as clients:
        result = next(iter(Run.start(composed.spec, clients).rounds()))
    return composed.population, result.groups.member


def reached(population: Population, groups: IntArray, l2: float) -> float:
    """Accuracy in percent of one centrally fitted model for each group, over all test samples.

    Args:
        population: the data.
        groups: int64 ``[N]``, of each client.
        l2: weight decay, which a fit of ``n`` samples has as ``1 / (n C)``.
    """
    right = 0
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        train = np.concatenate([population.train[client] for client in members])
        test = np.concatenate([population.test[client] for client in members])
        labels = population.y[train].numpy()
        if len(np.unique(labels)) == 1:
            # A fit needs two classes; with one there is nothing to choose.
            predicted = np.full(len(test), labels[0])
        else:
            model = LogisticRegression(C=1 / (l2 * len(train)), max_iter=ITERATIONS)
            model.fit(population.x[train].numpy(), labels)
            predicted = model.predict(population.x[test].numpy())
        right += int((predicted == population.y[test].numpy()).sum())
    return 100 * right / int(population.sizes("test").sum())


def measured(data_seed: int) -> dict[str, float]:
    """The three accuracies of a draw, its samples and its largest client."""
    config = config_of(data_seed)
    population, groups = first_groups(config)
    sizes = population.sizes("train")
    alone = np.arange(population.clients)
    return {
        "data_seed": data_seed,
        "samples": int(sizes.sum() + population.sizes("test").sum()),
        "largest": 100 * float(sizes.max() / sizes.sum()),
        "pooled": reached(population, np.zeros_like(alone), config.local.l2),
        "groups": reached(population, groups, config.local.l2),
        "local": reached(population, alone, config.local.l2),
    }


def main() -> None:
    """Measure every draw, and write what is known after each."""
    parser = argparse.ArgumentParser(description="What logistic regression reaches on nine draws.")
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = []
    for data_seed in DATA_SEEDS:
        found.append(measured(data_seed))
        print(json.dumps(found[-1]), flush=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

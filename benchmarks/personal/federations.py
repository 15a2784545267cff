"""The federations on which personalised methods are compared, and the recipe that all methods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data import Population
from coterie.measures.unseen import unseen_clients

Options = Mapping[str, Any]

# Clients that never train: 4 of 20, 20 of 100, one of the four hospitals.
UNSEEN = 0.2
ADAPT = ct.Adaptation(epochs=5)
# The networks of the federations with batch normalisation, without which FedBN keeps nothing.
NORMALISED = "benchmarks.personal.networks:normalised"


@dataclass(frozen=True)
class Federation:
    """Clients, their network, and how all methods train.

    Args:
        title: on the page.
        source: of the samples.
        partition: among the clients.
        model: table ``[model]``.
        clients: so many are drawn from those of the partition; ``None``: all.
        samples: for training, at most so many of each client, drawn at random.
        per_round: clients of a round.
        groups: of methods that need a number.
        rounds: of every run.
        local: local training of every run.
    """

    title: str
    source: str | Options
    partition: Options
    model: Options
    clients: int | None = None
    samples: int = 100
    per_round: int = 16
    groups: int = 3
    rounds: int = 40
    local: ct.Solver = ct.Solver(epochs=1, batch_size=20, lr=0.05)

    def population(self, seed: int) -> Population:
        """The clients of a seed."""
        found = ct.load(self.source, partition=self.partition, seed=seed)
        key = Key(seed).of("personal")
        if self.clients is not None:
            ids = key.of("clients").generator().permutation(found.clients)[: self.clients]
            found = of_clients(found, ids)
        return with_samples(found, self.samples, self.local.batch_size, key.of("samples"))

    def network(self, normalised: bool) -> Options:
        """The model, or the same one with batch normalisation."""
        if normalised:
            return {"name": NORMALISED}
        return self.model

    def seen(self, population: Population, seed: int) -> Population:
        """The clients that train in the runs of a seed."""
        unseen = unseen_clients(UNSEEN, population, Key(seed))
        return of_clients(population, np.setdiff1d(np.arange(population.clients), unseen))


def of_clients(population: Population, ids: IntArray) -> Population:
    """Some clients of a population."""
    chosen = ids.tolist()
    return replace(
        population,
        train=tuple(population.train[i] for i in chosen),
        test=tuple(population.test[i] for i in chosen),
        names=tuple(population.names[i] for i in chosen),
    )


def with_samples(population: Population, most: int, batch: int, key: Key) -> Population:
    """The population with at most so many training samples of each client, drawn at random.

    Args:
        population: of whose clients.
        most: samples of each.
        batch: samples of a step; one is left out where the last step would have it alone, from
            which batch normalisation learns nothing.
        key: of the draw.
    """
    train = []
    for i, rows in enumerate(population.train):
        drawn = key.client(i).generator().permutation(rows)[:most]
        train.append(drawn[1:] if len(drawn) % batch == 1 else drawn)
    return replace(population, train=tuple(train))


MLP = {"name": "mlp", "hidden": 64}


def _images(clients: int, rounds: int) -> dict[str, Federation]:
    """Two labels a client and Dir(0.1) of two sets of pictures."""
    partitions = {
        ("labels", "two labels"): {"kind": "shards", "clients": clients, "shards_per_client": 2},
        ("dirichlet", "Dir(0.1)"): {"kind": "dirichlet", "clients": clients, "beta": 0.1},
    }
    sources = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
    found = {}
    for source, title in sources.items():
        for (short, split), partition in partitions.items():
            whole_title = f"{title}, {split}, {clients} clients"
            found[f"{source}-{short}-{clients}"] = Federation(
                whole_title, source, partition, MLP, rounds=rounds
            )
    return found


FEDERATIONS = {
    **_images(clients=20, rounds=40),
    "heart-disease": Federation(
        "Heart disease, four hospitals",
        "heart_disease",
        {"kind": "natural", "column": "hospital", "test_fraction": 0.25},
        MLP,
        samples=1000,
        per_round=3,
        groups=2,
    ),
    "femnist": Federation(
        "FEMNIST, 100 writers",
        {"source": "femnist", "pixels": "inverted"},
        {"kind": "natural", "column": "writer_id", "min_size": 50},
        MLP,
        clients=100,
        rounds=120,
    ),
    **_images(clients=100, rounds=120),
}

"""The experiments that other frameworks time: as Coterie's configuration, and as a file that their
programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

# FLUTE's own benchmark.
FLUTE = {
    "data": {"source": "mnist", "partition": {"kind": "iid", "clients": 1000}},
    "model": {"name": "mclr"},
    "local": {"epochs": 1, "batch_size": 10, "lr": 0.03},
    "train": {"rounds": 100, "clients_per_round": 10, "evaluate_every": 20},
    "algorithm": {"name": "fedavg"},
}
# pfl-research's, with as many rounds as are asked for.
PFL = {
    "data": {"source": "cifar10", "partition": {"kind": "iid", "clients": 1000}},
    "model": {"name": "benchmarks.whole.networks:pfl_cnn"},
    "local": {"epochs": 1, "batch_size": 10, "lr": 0.1},
    "train": {"rounds": 10, "clients_per_round": 50, "evaluate_every": 10},
    "algorithm": {"name": "fedavg"},
}
# BlazeFL's: all clients train in every round.
BLAZEFL = {
    "data": {
        "source": "cifar10",
        "partition": {"kind": "shards", "clients": 100, "shards_per_client": 2},
    },
    "model": {"name": "benchmarks.whole.networks:blazefl_cnn"},
    "local": {"epochs": 5, "batch_size": 50, "lr": 0.1},
    "train": {"rounds": 1, "clients_per_round": 100, "evaluate_every": 1},
    "algorithm": {"name": "fedavg"},
}
# The same with its large network: a round of all clients and epochs would take an hour.
BLAZEFL_RESNET = BLAZEFL | {
    "model": {"name": "benchmarks.whole.networks:resnet18"},
    "local": {"epochs": 1, "batch_size": 50, "lr": 0.1},
    "train": {"rounds": 1, "clients_per_round": 4, "evaluate_every": 1},
}
RECIPES: dict[str, dict[str, Any]] = {
    "flute": FLUTE,
    "pfl": PFL,
    "blazefl": BLAZEFL,
    "blazefl-resnet18": BLAZEFL_RESNET,
}


def write_recipe(file: Path, tables: dict[str, Any]) -> None:
    """The file that the other programs read: samples, who holds which, and the recipe's numbers.

    Args:
        file: to write, without compression.
        tables: of Coterie's configuration.
    """
    # Imported here: the file is made once, and the driver loads no torch for the rest.
    from coterie.experiment import check
    from coterie.runs.data import load_data

    _, _, data = load_data(check(tables))
    sizes = [len(rows) for rows in data.train]
    np.savez(
        file,
        x=data.x.numpy(),
        y=data.y.numpy(),
        rows=np.concatenate(data.train),
        ends=np.cumsum(sizes),
        test=np.concatenate(data.test),
        network=tables["model"]["name"].rpartition(":")[2],
        epochs=tables["local"]["epochs"],
        batch=tables["local"]["batch_size"],
        lr=tables["local"]["lr"],
        rounds=tables["train"]["rounds"],
        cohort=tables["train"]["clients_per_round"],
        every=tables["train"]["evaluate_every"],
    )

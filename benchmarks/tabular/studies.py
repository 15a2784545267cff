"""What each study runs: the table, the networks, the methods, and where settings are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.tabular import validation
from coterie.core.keys import Key
from coterie.data import Population

Settings = dict[str, Any]
Draw = Callable[[np.random.Generator], Any]

# With the settings that were chosen for FedAvg: whether a method gains by its groups, or because it
# trains more before the first round.
LONGER = {"fedavg-longer": "fedavg"}
MORE_ROUNDS = 2
ONE_MODEL = ("local", "pooled", "fedavg")
GROUPED = ("fedgroup", "ifca", "fedclust")
TITLES = {
    "local": "Local",
    "pooled": "Pooled",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedadam": "FedAdam",
    "fedgroup": "FedGroup",
    "ifca": "IFCA",
    "fedclust": "FedClust",
    "fedavg-longer": "FedAvg, two rounds more",
}


@dataclass(frozen=True)
class Study:
    """A table, and how methods are compared on it.

    Args:
        name: of the page, and of the file of its runs.
        tables: the configuration that all runs share.
        networks: tables ``[model]`` by the title of the network.
        methods: names of methods.
        seeds: of the runs.
        rounds: the most rounds of a run.
        trials: settings that are tried for each method and network.
        local: draws of ``[local]``.
        groups: numbers of groups that grouped methods try.
        criterion: metric by which settings are chosen, on validation samples, and whether less of
            it is better.
        split: population, key -> the population whose test samples are training samples held out.
        tune_each_seed: whether each seed chooses settings for itself. It must where seeds draw
            test samples, since test samples of one are training samples of another.
        by_fold: whether the seed says which clients are tested on.
    """

    name: str
    tables: Mapping[str, Any]
    networks: Mapping[str, Settings]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    rounds: int
    trials: int
    local: Mapping[str, Draw]
    groups: tuple[int, ...]
    criterion: str
    split: Callable[[Population, Key], Population]
    tune_each_seed: bool = True
    by_fold: bool = False

    def configuration(self, seed: int) -> Settings:
        """The tables of a run that do not depend on its method."""
        tables = {**self.tables, "seed": seed, "engine": {"name": "serial"}}
        if self.by_fold:
            tables["data"] = {**tables["data"], "fold": seed}
        return tables

    def settings(self, method: str) -> list[Settings]:
        """The settings that are tried for a method: ``[local]`` and ``[algorithm]``.

        The draws of ``[local]`` are the same for all methods, so none is luckier than another.
        """
        found = []
        for trial in range(self.trials):
            stream = np.random.default_rng([trial, len(self.name)])
            local = {name: draw(stream) for name, draw in self.local.items()}
            own = np.random.default_rng([trial, len(self.name), list(TITLES).index(method)])
            found.append({"local": local, "algorithm": self._algorithm(method, trial, own)})
        return found

    def _algorithm(self, method: str, trial: int, stream: np.random.Generator) -> Settings:
        """The table ``[algorithm]`` of a trial."""
        table: Settings = {"name": method}
        if method == "fedprox":
            table["mu"] = between(1e-3, 1.0)(stream)
        elif method == "fedadam":
            table["lr"] = between(1e-3, 1e-1)(stream)
        elif method in GROUPED:
            choices: tuple[int | str, ...] = self.groups
            if method == "fedclust":
                # It needs no number: by default the distances between clients decide.
                choices = ("auto", *self.groups)
            table["groups"] = choices[trial % len(choices)]
        if method == "fedgroup":
            # As many clients as can be take part in the cold start.
            table["alpha"] = self.tables["train"]["clients_per_round"] // table["groups"]
            table["on_shortage"] = "fewer"
        return table


def between(low: float, high: float) -> Draw:
    """Draws between two numbers, evenly in their logarithm, to three digits."""

    def draw(stream: np.random.Generator) -> float:
        value = np.exp(stream.uniform(np.log(low), np.log(high)))
        return float(f"{value:.3g}")

    return draw


def one_of(*values: Any) -> Draw:
    """Draws one of some values."""
    return lambda stream: values[int(stream.integers(len(values)))]


HEART = Study(
    name="heart-disease",
    tables={
        "data": {
            "source": "heart_disease",
            "partition": {"kind": "natural", "column": "hospital", "test_fraction": 0.25},
        },
        "task": {"kind": "binary"},
        "train": {"clients_per_round": 4},
    },
    networks={
        "logistic regression": {"name": "mclr"},
        "MLP": {"name": "mlp", "hidden": 32},
    },
    methods=tuple(name for name in TITLES if name not in LONGER),
    seeds=(0, 1, 2, 3, 4),
    rounds=15,
    trials=6,
    local={
        "lr": between(3e-3, 0.3),
        "epochs": one_of(1, 3),
        "batch_size": one_of(16),
        "l2": one_of(0.0, 1e-3, 1e-2),
    },
    groups=(2, 3),
    criterion="log_loss",
    split=validation.some_samples,
)

PARKINSONS = Study(
    name="parkinsons",
    tables={
        "data": {
            "source": "parkinsons",
            "partition": {"kind": "natural", "column": "patient", "test_fraction": 0.2},
        },
        "task": {"kind": "regression", "unit": "points", "scaling": "none"},
        "train": {"clients_per_round": 42},
    },
    networks={
        "linear regression": {"name": "mclr"},
        "MLP": {"name": "mlp", "hidden": 64},
    },
    methods=(*ONE_MODEL, *GROUPED),
    seeds=(0, 1, 2, 3, 4),
    rounds=30,
    trials=4,
    local={
        "lr": between(1e-3, 1e-2),
        "epochs": one_of(1, 3),
        "batch_size": one_of(16),
        "l2": one_of(0.0, 1e-3),
    },
    groups=(2, 3, 5),
    criterion="mae",
    split=validation.some_samples,
)

# Local training has no model for a patient who never trained.
PATIENTS = replace(
    PARKINSONS,
    name="parkinsons-patients",
    tables={
        **PARKINSONS.tables,
        "data": {
            "source": "parkinsons",
            "unseen": "patients",
            "partition": {"kind": "natural", "column": "patient", "split": "source"},
        },
    },
    methods=("pooled", "fedavg", *GROUPED),
    split=validation.some_clients,
    criterion="mae_all",
    by_fold=True,
)

# The recorded figures are of targets as they are.
BEIJING_TASK = {
    "kind": "regression",
    "loss": "huber",
    "delta": 20.0,
    "unit": "ug/m3",
    "scaling": "none",
}
AIR = Study(
    name="beijing-air",
    tables={
        "data": {
            "source": "beijing_air",
            "window": {
                "past": 168,
                "horizon": 24,
                "stride": 24,
                "season": 24,
                "test_fraction": 0.2,
            },
            "partition": {"kind": "natural", "column": "station"},
        },
        "task": BEIJING_TASK,
        "train": {"clients_per_round": 12},
    },
    networks={
        "linear regression": {"name": "mclr"},
        "MLP": {"name": "mlp", "hidden": 32},
    },
    methods=(*ONE_MODEL, *GROUPED, *LONGER),
    seeds=(0, 1, 2, 3, 4),
    rounds=6,
    trials=4,
    local={
        "lr": between(3e-5, 3e-3),
        "epochs": one_of(1),
        "batch_size": one_of(32),
        "l2": one_of(0.0, 1e-2, 1e-1),
    },
    groups=(2, 3, 4),
    criterion="mae",
    split=validation.last_windows,
    # The test hours are the same for every seed, so no seed trains on those of another.
    tune_each_seed=False,
)

# A recurrent network takes a hundred times as long as the others, so batches are larger and fewer
# settings are tried.
AIR_GRU = replace(
    AIR,
    name="beijing-air-gru",
    networks={"GRU": {"name": "forecaster", "hidden": 32}},
    trials=2,
    local={
        "lr": between(5e-3, 5e-2),
        "epochs": one_of(1),
        "batch_size": one_of(128),
        "clip_norm": one_of(20.0),
    },
)

STUDIES = {study.name: study for study in (HEART, PARKINSONS, PATIENTS, AIR, AIR_GRU)}

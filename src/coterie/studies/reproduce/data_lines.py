"""Lines that follow from the clients' data or a short training: FedGroup's pairs of clients, FedGSP's
grouping, and FedClust's layers and transfers.
"""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch

from coterie.core.arrays import FloatArray
from coterie.core.keys import Key
from coterie.core.training import Steps
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Train
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.files import read_json
from coterie.math.balanced import inter_cluster, random_equal_groups
from coterie.math.similarity import Matrix, edc_embedding, madc
from coterie.measures.groups import (
    common_gamma,
    cpd_label,
    cpd_share,
    cpd_vector,
    gamma_of_shares,
    totals,
)
from coterie.models import build_model
from coterie.rules.signatures import span
from coterie.runs.compose import Composed, compose
from coterie.runs.data import load_data
from coterie.studies.layers import LayerStudy, study_layers
from coterie.studies.reproduce.outcome import DistanceMap, Outcome
from coterie.studies.reproduce.papers import Line

# --- FedGroup, Fig. 5: how its two distances between clients, MADC and EDC, go together -----------

PRETRAINING_STEPS = 50  # of the cold start, as in the authors' code
MOST_DRAWN = 2000  # a thousand clients have half a million pairs


@dataclass(frozen=True, slots=True)
class MeasurePairs:
    """EDC and MADC of all pairs of clients, ``[p]`` each; the key draws the pairs that are shown."""

    edc: FloatArray = field(repr=False)
    madc: FloatArray = field(repr=False)
    key: Key

    @property
    def correlation(self) -> float:
        """Pearson's correlation: 1 where MADC is a linear function of EDC."""
        return float(np.corrcoef(self.edc, self.madc)[0, 1])

    def sample(self) -> tuple[tuple[float, float], ...]:
        """EDC and MADC of some pairs, all of them where there are few."""
        order = self.key.generator().permutation(len(self.edc))[:MOST_DRAWN]
        return tuple((float(self.edc[p]), float(self.madc[p])) for p in np.sort(order))


def measure_pairs(composed: Composed) -> MeasurePairs:
    """Train every client briefly from ``w_0``, and compare the updates of each pair by both
    measures. The directions of EDC are those of ``alpha m`` clients, as in a cold start.

    Source: Duan et al., FedGroup (2021), eq. 7, eq. 8 and Fig. 5.
    """
    options = composed.experiment.options("algorithm")
    groups = options["groups"]
    key = Key(composed.experiment.seed).of("fig5")
    w0 = flatten(composed.module)
    ids = np.flatnonzero(composed.population.sizes("train") > 0)
    work = Train(how=Steps(PRETRAINING_STEPS))
    with composed.clients() as clients:
        reply = clients.run(work, ids, w0, key=key.at(0))
    delta = reply.delta
    in_cold_start = (
        key.of("sample").generator().permutation(len(delta))[: options["alpha"] * groups]
    )
    embedding = edc_embedding(delta, groups, basis=delta[torch.from_numpy(in_cold_start)])
    first, second = np.triu_indices(len(delta), k=1)
    # Pair by pair: the differences of all pairs at once are as large as m distance matrices.
    apart = np.linalg.norm(embedding[first] - embedding[second], axis=1)
    return MeasurePairs(apart / groups, madc(delta)[first, second], key.of("drawn"))


# --- FedGSP, Fig. 3a: grouping and the class probability distance ---------------------------------

DRAWS = 5  # of groups, each with another key


def cpd_cut(line: Line, root: str | None) -> float:
    """By how much ICG's groups lower the median class probability distance, in percent.

    The line's arguments are ``groups`` (M), ``against`` (``clients``: pairs of single clients, as
    in FedAvg; ``random``: groups of equal size), ``reading`` of eq. 14 (``label``, ``vector`` or
    ``share``), and ``normalize`` (ICG compares class shares). Groups are drawn with the keys of
    seeds 0 to 4, and medians are averaged over them.
    """
    wanted = line.arguments
    config = line.config(root).resolved()
    # The counts do not depend on the algorithm: lines that differ in it share them.
    config["algorithm"] = {"name": "fedavg"}
    held = _histograms(json.dumps(config, sort_keys=True))
    groups = wanted["groups"]
    reading = wanted["reading"]
    keys = [Key(seed) for seed in range(DRAWS)]
    # NaiveGSP+ICG makes its groups once, so it appends the clients that are left over.
    by_icg = [inter_cluster(held, groups, key, "append", wanted["normalize"]) for key in keys]
    ours = np.mean([_median(totals(held, group), held, reading) for group in by_icg])
    if wanted["against"] == "clients":
        theirs = _median(held, held, reading)
    else:
        by_chance = [random_equal_groups(len(held), groups, key) for key in keys]
        theirs = float(np.mean([_median(totals(held, one), held, reading) for one in by_chance]))
    return float(100 * (1 - ours / theirs))


def _median(rows: Matrix, clients: Matrix, reading: str) -> float:
    """The median distance of the rows. The kernel's width is that of the clients, for all alike."""
    if reading == "label":
        distances = cpd_label(rows)
    elif reading == "vector":
        distances = cpd_vector(rows, common_gamma(clients))
    else:
        distances = cpd_share(rows, gamma_of_shares(clients))
    return float(np.median(distances))


@cache
def _histograms(config: str) -> Matrix:
    """The clients' label counts. They are kept, since to decode the images takes seconds."""
    _, _, population = load_data(check(read_json(config), "reproduce"))
    return population.histograms().astype(np.float64)


# --- FedClust: what is sent, and how far layers part the clients ----------------------------------


def sent_values(config: Experiment, shape: tuple[int, ...], classes: int) -> float:
    """Numbers that pass between server and clients in a run, those of the clustering included.

    With ``N`` clients, ``K`` of them in each of ``T`` rounds, and a model of ``d`` numbers:

    - FedAvg: ``2 K T d``.
    - FedClust: ``2 K T d + N (d + s)``; all clients get ``w_0`` and send a final layer of ``s``.
    - PACFL: ``2 K T d + N f p c``; all clients send ``p`` vectors of ``f`` features for each of
      ``c`` classes. Classes that a client does not hold count, since zeros are sent for them.
    - IFCA with ``m`` models: ``K (m + 1) T d``.
    """
    network = build_model(config.name("model"), shape, classes, Key(0), **config.options("model"))
    layout = Layout.of(network)
    d = layout.d
    clients = int(config.options("partition")["clients"])
    trained = config.train.clients_per_round * config.train.rounds
    name = config.name("algorithm")
    options = config.options("algorithm")
    if name == "fedavg":
        return 2 * trained * d
    if name == "fedclust":
        start, stop = span(layout, "final", bias=True)
        return 2 * trained * d + clients * (d + stop - start)
    if name == "pacfl":
        vectors = int(options["vectors"])
        return 2 * trained * d + clients * math.prod(shape) * vectors * classes
    if name == "ifca":
        return trained * (int(options["groups"]) + 1) * d
    what = "no formula for this algorithm"
    expected = "fedavg, fedclust, pacfl or ifca"
    raise ConfigError("does-not-fit", "algorithm.name", what, got=name, allowed=expected)


def sent_ratio(line: Line, root: str | None) -> float:
    """What a method sends, relative to FedAvg with the same rounds and clients."""
    config = line.config(root)
    shape = tuple(line.arguments["shape"])
    classes = int(line.arguments["classes"])
    tables: dict[str, Any] = {**(line.tables or {}), "algorithm": {"name": "fedavg"}}
    fedavg = check(tables)
    return sent_values(config, shape, classes) / sent_values(fedavg, shape, classes)


def layer_distances(line: Line, root: str | None) -> Outcome:
    """Distance of clients with other labels over that of clients with the same, for one layer: both
    are means of Euclidean distances between its trained weights (Fig. 1)."""
    study = _study(line.config(root).toml())
    layer = study.layers[int(line.arguments["layer"])]
    assert layer.separation is not None, "the lines of Fig. 1 have planted groups"
    assert study.planted is not None
    shown = DistanceMap(
        distance=tuple(tuple(map(float, row)) for row in layer.distance),
        groups=tuple(map(int, study.planted)),
        names=tuple(study.names),
    )
    return Outcome(line, (layer.separation,), distances=shown)


@lru_cache(maxsize=2)
def _study(config: str) -> LayerStudy:
    """The study of a configuration in TOML; the lines of its layers share one training."""
    return study_layers(compose(check(tomllib.loads(config))))

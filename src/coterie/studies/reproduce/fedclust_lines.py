"""What FedClust's lines compute: what is sent, and how far layers part the clients."""

from __future__ import annotations

import math
import tomllib
from functools import lru_cache
from typing import Any

from coterie.core.keys import Key
from coterie.core.vectors import Layout
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.models import build_model
from coterie.rules.signatures import span
from coterie.runs.compose import compose
from coterie.studies.layers import LayerStudy, study_layers
from coterie.studies.reproduce.outcome import DistanceMap, Outcome
from coterie.studies.reproduce.papers import Line


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
    expected = "fedavg, fedclust, pacfl or ifca"
    raise ConfigError(f"algorithm.name: no formula, got {name!r}; expected {expected}")


def sent_ratio(line: Line, root: str | None) -> float:
    """What a method sends, relative to FedAvg with the same rounds and clients."""
    config = line.config(root)
    shape = tuple(line.arguments["shape"])
    classes = int(line.arguments["classes"])
    tables: dict[str, Any] = {**(line.tables or {}), "algorithm": {"name": "fedavg"}}
    fedavg = check(tables)
    return sent_values(config, shape, classes) / sent_values(fedavg, shape, classes)


def layer_distances(line: Line, root: str | None) -> Outcome:
    """Distance of clients with other labels over that of clients with the same, for one layer.

    Both are means of Euclidean distances between the trained weights of a layer (Fig. 1). The
    result has all distances, too.
    """
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

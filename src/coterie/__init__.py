"""Coterie: clustered federated learning that groups clients which belong together, and does so fast."""

from coterie.algorithms import fedavg, fedgroup, fedgrouprox, fedprox
from coterie.api import Result, load, run
from coterie.data.population import Population
from coterie.engines.door import Door
from coterie.keys import Key
from coterie.rounds import Algorithm, Method
from coterie.types import (
    CheckpointError,
    ConfigError,
    CoterieError,
    DataError,
    Groups,
    Plan,
    QuorumError,
    Solver,
    Train,
    Updates,
)

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "CheckpointError",
    "ConfigError",
    "CoterieError",
    "DataError",
    "Door",
    "Groups",
    "Key",
    "Method",
    "Plan",
    "Population",
    "QuorumError",
    "Result",
    "Solver",
    "Train",
    "Updates",
    "fedavg",
    "fedgroup",
    "fedgrouprox",
    "fedprox",
    "load",
    "run",
]

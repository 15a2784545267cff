"""Coterie: clustered federated learning that groups clients which belong together, and does so fast."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.algorithms.astraea import astraea
    from coterie.algorithms.cfl import cfl
    from coterie.algorithms.fedavg import fedavg
    from coterie.algorithms.fedclust import fedclust
    from coterie.algorithms.fedfusion import fedfusion
    from coterie.algorithms.fedgroup import fedgroup, fedgrouprox
    from coterie.algorithms.fedgsp import fedgsp
    from coterie.algorithms.fedmmd import fedmmd
    from coterie.algorithms.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
    from coterie.algorithms.fedprox import fedprox
    from coterie.algorithms.fesem import fesem
    from coterie.algorithms.flexcfl import flexcfl
    from coterie.algorithms.flhc import flhc
    from coterie.algorithms.ida import ida
    from coterie.algorithms.ifca import ifca
    from coterie.algorithms.naive_gsp import naive_gsp
    from coterie.algorithms.pacfl import pacfl
    from coterie.algorithms.rfedavg import rfedavg, rfedavg_kmeans, rfedavg_optimal
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

__version__ = "0.2.0"  # the only place: the build, `--version` and run folders read it

_TYPES = (
    *("CheckpointError", "ConfigError", "CoterieError", "DataError", "QuorumError"),
    *("Groups", "Plan", "Solver", "Train", "Updates"),
)
_HOME = {
    **dict.fromkeys(("fedavg", "fedgroup", "fedgrouprox", "fedprox", "fesem", "flexcfl", "ifca"), "coterie.algorithms"),
    **dict.fromkeys(("astraea", "fedgsp", "naive_gsp"), "coterie.algorithms"),
    **dict.fromkeys(("rfedavg", "rfedavg_kmeans", "rfedavg_optimal"), "coterie.algorithms"),
    **dict.fromkeys(("fedadagrad", "fedadam", "fedavgm", "fedyogi"), "coterie.algorithms"),
    **dict.fromkeys(("fedfusion", "fedmmd", "ida"), "coterie.algorithms"),
    **dict.fromkeys(("Result", "load", "run"), "coterie.api"),
    **dict.fromkeys(("Algorithm", "Method"), "coterie.rounds"),
    **dict.fromkeys(_TYPES, "coterie.types"),
    **dict.fromkeys(("cfl", "fedclust", "flhc", "pacfl"), "coterie.algorithms"),
    "Population": "coterie.data.population",
    "Door": "coterie.engines.door",
    "Key": "coterie.keys",
}  # imported when first used, so that `coterie --help` does not wait for torch

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
    "astraea",
    "cfl",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedclust",
    "fedfusion",
    "fedgroup",
    "fedgrouprox",
    "fedgsp",
    "fedmmd",
    "fedprox",
    "fedyogi",
    "fesem",
    "flexcfl",
    "flhc",
    "ida",
    "ifca",
    "load",
    "naive_gsp",
    "pacfl",
    "rfedavg",
    "rfedavg_kmeans",
    "rfedavg_optimal",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]

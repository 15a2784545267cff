"""Coterie: clustered federated learning that groups clients which belong together, and does so
fast."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.deprecated import install

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
    from coterie.clients.clients import Clients
    from coterie.clients.round import Round
    from coterie.core.groups import Groups
    from coterie.core.keys import Key
    from coterie.core.plan import Plan
    from coterie.core.solver import Solver
    from coterie.core.updates import Updates
    from coterie.core.work import Train
    from coterie.data.population import Population
    from coterie.errors import CheckpointError, ConfigError, CoterieError, DataError, QuorumError
    from coterie.methods.algorithm import Algorithm
    from coterie.methods.method import Method
    from coterie.runs.python import Result, load, run

__version__ = "0.2.0"  # the only place; the build puts it into the metadata

# Where each public name lives; imported on first use, so that `coterie --help` need not wait for
# torch.
_HOMES = {
    "coterie.clients.clients": ("Clients",),
    "coterie.clients.round": ("Round",),
    "coterie.core.groups": ("Groups",),
    "coterie.core.keys": ("Key",),
    "coterie.core.plan": ("Plan",),
    "coterie.core.solver": ("Solver",),
    "coterie.core.updates": ("Updates",),
    "coterie.core.work": ("Train",),
    "coterie.data.population": ("Population",),
    "coterie.errors": (
        "CheckpointError",
        "ConfigError",
        "CoterieError",
        "DataError",
        "QuorumError",
    ),
    "coterie.methods.method": ("Method",),
    "coterie.methods.algorithm": ("Algorithm",),
    "coterie.runs.python": ("Result", "load", "run"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_RENAMED = {"Door": "Clients"}  # since version 0.2

__all__ = [
    "Algorithm",
    "CheckpointError",
    "Clients",
    "ConfigError",
    "CoterieError",
    "DataError",
    "Groups",
    "Key",
    "Method",
    "Plan",
    "Population",
    "QuorumError",
    "Result",
    "Round",
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
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(f"coterie.{name} is deprecated; use coterie.{new}", DeprecationWarning, 2)
        return __getattr__(new)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "coterie.algorithms")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]


install()

"""Coterie: clustered federated learning that groups clients which belong together, and does so
fast."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.algorithms import *  # noqa: F403
    from coterie.clients.clients import Clients as Clients
    from coterie.clients.cohort import Sampler as Sampler
    from coterie.clients.round import Round as Round
    from coterie.core.augment import Augment as Augment
    from coterie.core.groups import Groups as Groups
    from coterie.core.keys import Key as Key
    from coterie.core.lr_schedule import LrSchedule as LrSchedule
    from coterie.core.plan import Plan as Plan
    from coterie.core.solver import Solver as Solver
    from coterie.core.updates import Updates as Updates
    from coterie.core.vectors import flatten as flatten
    from coterie.core.work import Score as Score
    from coterie.core.work import Train as Train
    from coterie.data.from_python import load as load
    from coterie.data.population import Population as Population
    from coterie.engines import make_clients as make_clients
    from coterie.errors import CheckpointError as CheckpointError
    from coterie.errors import ConfigError as ConfigError
    from coterie.errors import CoterieError as CoterieError
    from coterie.errors import DataError as DataError
    from coterie.errors import PrivacyError as PrivacyError
    from coterie.errors import QuorumError as QuorumError
    from coterie.experiment import Experiment as Experiment
    from coterie.experiment import Training as Training
    from coterie.measures.own_models import Adaptation as Adaptation
    from coterie.measures.scoring import Evaluate as Evaluate
    from coterie.methods.algorithm import Algorithm as Algorithm
    from coterie.methods.first_models import FirstModels as FirstModels
    from coterie.methods.method import Method as Method
    from coterie.notebook import LiveTable as LiveTable
    from coterie.privacy.private import Privacy as Privacy
    from coterie.privacy.secure_sums import SecureSums as SecureSums
    from coterie.python import resume as resume
    from coterie.python import run as run
    from coterie.result import Result as Result

__version__ = "0.2.0"  # the only place; the build puts it into the metadata

# Where each public name lives but for the methods, which are those of `coterie.algorithms`. They are
# imported on first use, so that `coterie --help` need not wait for torch.
_HOME = {
    "Adaptation": "coterie.measures.own_models",
    "Algorithm": "coterie.methods.algorithm",
    "CheckpointError": "coterie.errors",
    "Clients": "coterie.clients.clients",
    "ConfigError": "coterie.errors",
    "CoterieError": "coterie.errors",
    "DataError": "coterie.errors",
    "Evaluate": "coterie.measures.scoring",
    "Experiment": "coterie.experiment",
    "FirstModels": "coterie.methods.first_models",
    "Groups": "coterie.core.groups",
    "Key": "coterie.core.keys",
    "Augment": "coterie.core.augment",
    "LiveTable": "coterie.notebook",
    "LrSchedule": "coterie.core.lr_schedule",
    "Method": "coterie.methods.method",
    "Plan": "coterie.core.plan",
    "Population": "coterie.data.population",
    "Privacy": "coterie.privacy.private",
    "SecureSums": "coterie.privacy.secure_sums",
    "PrivacyError": "coterie.errors",
    "QuorumError": "coterie.errors",
    "Result": "coterie.result",
    "Round": "coterie.clients.round",
    "Sampler": "coterie.clients.cohort",
    "Score": "coterie.core.work",
    "Solver": "coterie.core.solver",
    "Train": "coterie.core.work",
    "Training": "coterie.experiment",
    "Updates": "coterie.core.updates",
    "flatten": "coterie.core.vectors",
    "load": "coterie.data.from_python",
    "make_clients": "coterie.engines",
    "resume": "coterie.python",
    "run": "coterie.python",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name == "__all__":
        value = sorted([*_HOME, *filter(_may_be_algorithm, _algorithms())])
    elif _may_be_algorithm(name) and name in _algorithms():
        value = _algorithms()[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _algorithms() -> dict[str, Any]:
    """The factories of all methods by name; imports torch."""
    factories: dict[str, Any] = import_module("coterie.algorithms").ALGORITHMS
    return factories


def _may_be_algorithm(name: str) -> bool:
    """Whether only the registry of methods can say if a name is one: not for what tools look for in
    any module, and not for submodules, which Python looks for here first."""
    return not name.startswith("_") and find_spec(f"{__name__}.{name}") is None


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})

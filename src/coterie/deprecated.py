"""Names of modules before version 0.2: they still import, and warn with the new name.

Code of users names modules in imports and as ``module:factory`` in configurations, so run folders
of version 0.1 keep working while their owners change the names.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

# Old module -> the modules that hold its names now; the first one that has a name is its home.
MOVED: dict[str, tuple[str, ...]] = {
    "coterie.api": ("coterie.python.call", "coterie.python.loading", "coterie.python.result"),
    "coterie.clustering": ("coterie.math.clustering",),
    "coterie.costs": ("coterie.measures.costs",),
    "coterie.counting": ("coterie.math.group_count",),
    "coterie.data.dealing": ("coterie.data.partitions.helpers",),
    "coterie.data.drawn": ("coterie.data.lazy",),
    "coterie.data.files": (
        "coterie.data.sources.files",
        "coterie.data.tabular.arrow",
        "coterie.data.tabular.columns",
    ),
    "coterie.data.given": ("coterie.data.partitions.natural",),
    "coterie.data.majority": ("coterie.data.partitions.few_classes",),
    "coterie.data.parts": ("coterie.data.partitions", "coterie.data.npz"),
    "coterie.data.synthetic": ("coterie.data.sources.generated",),
    "coterie.data.text": ("coterie.data.sources.text", "coterie.data.sources.word_vectors"),
    # The client.py of a deployment made by version 0.1 imports `share` from it.
    "coterie.deploy.own": ("coterie.deploy.data_sources",),
    "coterie.engines.door": (
        "coterie.clients.clients",
        "coterie.clients.quorum",
        "coterie.clients.ledger",
        "coterie.clients.validation",
    ),
    "coterie.engines.gate": ("coterie.clients.validation",),
    "coterie.experiment": (
        "coterie.runs.run",
        "coterie.runs.prepare",
        "coterie.runs.configured",
        "coterie.runs.data",
    ),
    "coterie.grouping": ("coterie.rules.single_group", "coterie.rules.cold_start"),
    "coterie.inter_group": ("coterie.rules.inter_group",),
    "coterie.keys": ("coterie.core.keys",),
    "coterie.ledger": ("coterie.clients.transfers",),
    "coterie.measures_groups": ("coterie.measures.groups",),
    "coterie.models.own": ("coterie.models.custom",),
    "coterie.observing": ("coterie.measures.optional",),
    "coterie.reproduce.faults": ("coterie.studies.reproduce.faults",),
    "coterie.rounds": (
        "coterie.methods.method",
        "coterie.methods.algorithm",
        "coterie.methods.step",
        "coterie.methods.training",
        "coterie.rules.serving",
        "coterie.runs.cohort",
        "coterie.runs.loop",
        "coterie.runs.round_row",
        "coterie.runs.schedule",
        "coterie.measures.view",
    ),
    "coterie.server": ("coterie.rules.server",),
    "coterie.similarity": (
        "coterie.math.similarity",
        "coterie.math.distances",
        "coterie.math.subspaces",
    ),
    "coterie.theory": ("coterie.measures.theory",),
    "coterie.threads": ("coterie.core.process",),
    "coterie.types": (
        "coterie.errors",
        "coterie.core.arrays",
        "coterie.core.groups",
        "coterie.core.plan",
        "coterie.core.updates",
        "coterie.core.solver",
        "coterie.core.objective",
        "coterie.core.describe",
        "coterie.core.work",
        "coterie.core.engine",
    ),
    "coterie.variants": ("coterie.methods.override", "coterie.methods.fit_to_model"),
    "coterie.vectors": ("coterie.core.vectors",),
    "coterie.weighing": ("coterie.rules.weighing", "coterie.algorithms.ida"),
}
PACKAGES = ("coterie.reproduce",)  # old packages of which only a submodule is known
NAMES = {
    "Door": "Clients",
    "Gate": "ReplyValidator",
    "Look": "RoundView",
    "Scene": "FederationSnapshot",
    "checked": "validated",
    "varied": "override",
    "fitted": "fit_to_model",
    "clustered": "Clustered",
    "given": "predefined",
    "rfedavg": "majority_classes",
    "share": "trial_share",
    "missing": "missing_column",
    "own": "custom_model",
    "between": "linkage_distance",
    "count": "estimate_groups",
    "nearest": "nearest_direction",
    "starts": "initial_models",
    "Starts": "InitialModels",
    "Place": "SelectGroup",
    "Watch": "DriftReports",
    "gate_for": "validator_for",
    "Parts": "Partition",
    "load_parts": "load_partition",
    "save_parts": "save_partition",
    "cached": "cached_images",
    "Synthetic": "SyntheticClient",
}


class OldModule(Loader):
    """Makes a module that finds its names in the new ones."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        homes = MOVED.get(spec.name, ())
        if homes:
            text = f"{spec.name} is deprecated; use {', '.join(homes)}"
            warnings.warn(text, DeprecationWarning, stacklevel=6)
        module = ModuleType(spec.name)
        if spec.name in PACKAGES:
            module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        homes = MOVED.get(module.__name__, ())

        def find(name: str) -> Any:
            for home in homes:
                found = import_module(home)
                for known in (name, NAMES.get(name, name)):
                    if hasattr(found, known):
                        return getattr(found, known)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = find  # type: ignore[method-assign]


class OldModules(MetaPathFinder):
    """Finds modules by their names of version 0.1."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = fullname in MOVED or fullname in PACKAGES
        if known:
            return spec_from_loader(fullname, OldModule())
        return None


def renamed(module: str, name: str, names: Mapping[str, str]) -> Any:
    """The value of a name that a module had before, with a warning; for its ``__getattr__``.

    Args:
        module: the module that is asked.
        name: the name that it does not have.
        names: old name -> new name.

    Raises:
        AttributeError: if the name is not an old one either.
    """
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    text = f"{module}.{name} is deprecated; use {module}.{names[name]}"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), names[name])


def install() -> None:
    """Let old names import, after all others were tried."""
    if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
        sys.meta_path.append(OldModules())

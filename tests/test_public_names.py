"""The names that the package has for its users."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import coterie as ct
from coterie import algorithms
from coterie.algorithms import ALGORITHMS

PUBLIC = [
    *(
        "Algorithm",
        "Adaptation",
        "Augment",
        "CheckpointError",
        "Clients",
        "ConfigError",
        "CoterieError",
        "DataError",
    ),
    *("Evaluate", "Experiment"),
    *("FirstModels", "Groups", "Key", "LiveTable", "LrSchedule", "Method", "Plan", "Population"),
    *("Privacy", "PrivacyError"),
    *(
        "QuorumError",
        "Result",
        "Round",
        "Sampler",
        "Score",
        "SecureSums",
        "Solver",
        "Train",
        "Training",
        "Updates",
        "load",
    ),
    *("flatten", "make_clients", "resume", "run"),
]  # and every method


def test_public_names_are_frozen() -> None:
    """A name that comes or goes is a change of the interface: change this list and the changelog
    together."""
    methods = set(ALGORITHMS) - {"local"}
    assert ct.__all__ == sorted([*PUBLIC, *methods])
    assert set(ct.__all__) < set(dir(ct))
    assert all(getattr(ct, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'fedavgg'"):
        ct.fedavgg  # noqa: B018


def test_every_method_is_a_public_name() -> None:
    assert set(algorithms.__all__) == {"ALGORITHMS", *ALGORITHMS}
    for name, factory in ALGORITHMS.items():
        assert getattr(algorithms, name) is factory
        # `coterie.local` is a package, so that this one method is `coterie.algorithms.local` alone.
        if name != "local":
            assert getattr(ct, name) is factory
    assert isinstance(ct.local, ModuleType)
    assert "local" not in ct.__all__
    everything: dict[str, object] = {}
    exec("from coterie import *", everything)
    assert set(ct.__all__) <= set(everything)


def test_type_checkers_know_the_public_names() -> None:
    """They read the imports under ``TYPE_CHECKING``, Python reads the table of homes."""
    source = ast.parse(Path(ct.__file__).read_text(encoding="utf-8"))
    (typed,) = (one for one in source.body if isinstance(one, ast.If))
    imports = [one for one in ast.walk(typed) if isinstance(one, ast.ImportFrom)]
    known = {one.name: line.module for line in imports for one in line.names}
    assert known.pop("*") == "coterie.algorithms"
    assert sorted(known) == sorted(PUBLIC)
    assert all(
        getattr(import_module(home), name) is getattr(ct, name) for name, home in known.items()
    )


def test_submodules_do_not_wait_for_torch() -> None:
    """The command line imports them before it knows whether it needs any method."""
    code = (
        "import sys; from coterie import errors, terminal; import coterie as ct; ct.ConfigError; "
        "hasattr(ct, '__wrapped__'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

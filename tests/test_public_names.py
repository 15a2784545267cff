"""The names that the package has for its users."""

from __future__ import annotations

import pytest

import coterie as ct
from coterie import algorithms

PUBLIC = [
    *(
        "Algorithm",
        "CheckpointError",
        "ConfigError",
        "CoterieError",
        "DataError",
        "Clients",
        "Groups",
        "Key",
        "Method",
    ),
    *("Plan", "Population", "QuorumError", "Result", "Round", "Solver", "Train", "Updates"),
    *("fedavg", "fedgroup", "fedgrouprox", "fedprox", "fesem", "flexcfl", "ifca", "load", "run"),
    *("fedadagrad", "fedadam", "fedavgm", "fedfusion", "fedmmd", "fedyogi", "ida"),
    *("rfedavg", "rfedavg_kmeans", "rfedavg_optimal"),
    *("astraea", "fedgsp", "naive_gsp"),
    *("cfl", "fedclust", "flhc", "pacfl"),
]


def test_public_names_are_frozen() -> None:
    """A name that comes or goes is a change of the interface: change this list and the changelog
    together."""
    assert sorted(ct.__all__) == sorted(PUBLIC)
    assert all(getattr(ct, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'fedavgg'"):
        ct.fedavgg  # noqa: B018


def test_every_algorithm_is_a_public_name() -> None:
    assert set(algorithms.__all__) == {"ALGORITHMS", *algorithms.ALGORITHMS}
    assert set(algorithms.ALGORITHMS) <= set(ct.__all__)

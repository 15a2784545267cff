"""What the page knows of a run, and the numbers it derives from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, as the page shows it.

    Args:
        name: what the run is called on the page.
        rounds: the rows of ``rounds.jsonl``, in order; only ``round`` and ``accuracy`` must be
            there.
        groups: int64 ``[N]``, the group of each client at the end, ``-1`` for none.
        names: ``N`` client names.
        embedding: ``[N, m]`` coordinates of the clients in EDC space; a row of NaN is a client that
            was not measured.
        histograms: ``[N, c]`` label counts of the clients' training data.
        planted: int64 ``[N]``, the true population of each client where it is known.
        joined: int64 ``[N]``, the round in which the client got its group, ``-1`` for never.
        newcomers: bool ``[N]``, the clients that came late.
        labels: ``c`` names of the classes; default their numbers.
        memory: what the method remembers at the end; a tree of clients is drawn (see `trees.Tree`).
        placed_by: what the embedding shows, in words; default the direction of a client's first
            update.
        each: float64 ``[N]``, accuracy of each client's model on its own test samples at the end,
            NaN without any.
        tests: int64 ``[N]``, the clients' test samples.
        tables: the resolved configuration; runs whose configurations differ in their seeds alone
            are shown as one.
        versions: of the software that the run was done with.
        dealt: a text that is the same for runs over the same clients with the same data.

    Raises:
        ConfigError: if an array has not one entry per client.

    Example:
        >>> view = RunView("FedAvg", [{"round": 0, "accuracy": 0.5}], np.zeros(2, int), ("a", "b"))
        >>> view.clients, view.count, view.final
        (2, 1, 0.5)
    """

    name: str
    rounds: Sequence[Mapping[str, Any]]
    groups: IntArray
    names: Sequence[str]
    embedding: FloatArray | None = None
    histograms: IntArray | None = None
    planted: IntArray | None = None
    joined: IntArray | None = None
    newcomers: NDArray[np.bool_] | None = None
    labels: Sequence[str] = ()
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    placed_by: str = "the direction of its first update (EDC)"
    each: FloatArray | None = None
    tests: IntArray | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    dealt: str = ""

    def __post_init__(self) -> None:
        for name in (
            "names",
            "embedding",
            "histograms",
            "planted",
            "joined",
            "newcomers",
            "each",
            "tests",
        ):
            value = getattr(self, name)
            if value is not None and len(value) != self.clients:
                raise ConfigError(
                    f"{name}: one entry per client, got {len(value)}; expected {self.clients}"
                )

    @property
    def clients(self) -> int:
        """Number of clients ``N``."""
        return len(self.groups)

    @property
    def count(self) -> int:
        """Number of groups that have members."""
        return len(np.unique(self.groups[self.groups >= 0]))

    @property
    def accuracies(self) -> list[float]:
        """Accuracy after each round that was evaluated, as fractions."""
        return [float(row["accuracy"]) for row in self.rounds if row.get("accuracy") is not None]

    @property
    def final(self) -> float:
        """Accuracy after the last evaluated round; NaN before the first."""
        if self.accuracies:
            return self.accuracies[-1]
        return float("nan")

    @property
    def last(self) -> Mapping[str, Any]:
        """The last row that was evaluated; empty before the first."""
        return next((row for row in reversed(self.rounds) if row.get("accuracy") is not None), {})

    @property
    def seed(self) -> int:
        """The seed of its configuration."""
        return int(self.tables.get("seed", 0))

    @property
    def algorithm(self) -> str:
        """The algorithm of its configuration; empty where there is none."""
        return str(self.tables.get("algorithm", {}).get("name", ""))

    @property
    def late(self) -> IntArray:
        """The newcomers' numbers."""
        if self.newcomers is not None:
            return np.flatnonzero(self.newcomers)
        return np.empty(0, np.int64)


def displayed(round: int) -> int:
    """The number of a round as people count: files and code count from 0, the page from 1.

    Example:
        >>> displayed(0)
        1
    """
    return round + 1


def agreement(view: RunView) -> float | None:
    """Adjusted Rand index between the groups and the planted populations, over clients that have a
    group.

    Returns:
        1 for the same grouping, about 0 for one by chance; ``None`` where nothing was planted or
        nobody has a group.

    Example:
        >>> planted = np.array([0, 0, 1, 1])
        >>> agreement(RunView("run", [], np.array([1, 1, 0, 0]), "abcd", planted=planted))
        1.0
    """
    from sklearn.metrics import adjusted_rand_score

    known = view.groups >= 0
    if view.planted is None or not known.any():
        return None
    return float(adjusted_rand_score(view.planted[known], view.groups[known]))


def homes(view: RunView) -> dict[int, int]:
    """The group of each planted population: where most of its clients are that did not come late.

    Example:
        >>> homes(RunView("run", [], np.array([1, 1, 0, 0]), "abcd", planted=np.array([0, 0, 1, 1])))
        {0: 1, 1: 0}
    """
    if view.planted is None:
        return {}
    settled = view.groups >= 0
    if view.newcomers is not None:
        settled &= ~view.newcomers
    populations = np.unique(view.planted[settled])
    return {
        int(p): int(np.bincount(view.groups[settled & (view.planted == p)]).argmax())
        for p in populations
    }


def placements(view: RunView) -> list[dict[str, Any]]:
    """Where each newcomer was placed: client, round, group, population, and whether most of its
    population is there.

    Example:
        >>> late = np.array([False, False, True])
        >>> view = RunView("run", [], np.array([0, 0, 0]), "abc", planted=np.array([1, 1, 1]), newcomers=late)
        >>> placements(view)
        [{'client': 'c', 'round': None, 'group': 0, 'planted': 1, 'right': True}]
    """
    home = homes(view)
    return [_placement(view, int(i), home) for i in view.late]


def _placement(view: RunView, i: int, home: Mapping[int, int]) -> dict[str, Any]:
    group = int(view.groups[i])
    planted = None if view.planted is None else int(view.planted[i])
    joined = -1 if view.joined is None else int(view.joined[i])
    return {
        "client": str(view.names[i]),
        "round": joined if joined >= 0 else None,
        "group": group if group >= 0 else None,
        "planted": planted,
        "right": None if planted is None else group >= 0 and home.get(planted) == group,
    }

"""What the page knows of a run, and the numbers that it derives from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.tabular.text_columns import TextColumn
from coterie.errors import ConfigError
from coterie.headline import ACCURACY, Headline
from coterie.math.labellings import adjusted_rand_index
from coterie.measures.client_table import ScoredClients
from coterie.measures.seeds import Split
from coterie.report.tree import Tree
from coterie.runs.published import is_private

# The fields of a view that have one entry per client.
PER_CLIENT = ("names", "embedding", "histograms", "planted", "joined", "newcomers")


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, as the page shows it.

    Args:
        rounds: the rows of ``rounds.jsonl``, in order; only ``round`` and the headline
            (``accuracy``) must be there.
        groups: int64 ``[N]``, the group of each client at the end, ``-1`` for none.
        embedding: ``[N, m]`` coordinates of the clients for the map; a row of NaN is a client that
            was not measured.
        histograms: ``[N, c]`` label counts of the clients' training data.
        planted: int64 ``[N]``, the true population of each client, where it is known.
        joined: int64 ``[N]``, the round in which the client first had a group, ``-1`` for never.
        newcomers: bool ``[N]``, the clients that joined the federation after its start.
        labels: ``c`` names of the classes; default their numbers.
        client_table: its ``clients.csv``, where the run has one.
        split: the samples that it trains on and tests on; ``None`` where they are not known.
        tables: the tables of the resolved configuration. Runs that differ only in their seeds are
            shown as one.
        data_id: a text that is equal for runs over the same clients with the same data.
        without_model: values of it that predictions without a model have, by what makes them.
        repeat: the number of the repetition, if the page does not name seeds.
        identity: equal for runs that differ only in their seeds, where ``tables`` are not whole.
        text_columns: the columns of its table that are read as text.
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
    tree: Tree | None = None
    placed_by: str = "the direction of its first update (EDC)"
    client_table: ScoredClients | None = None
    split: Split | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    data_id: str = ""
    headline: Headline = ACCURACY
    without_model: Mapping[str, float] = field(default_factory=dict)
    repeat: int | None = None
    identity: str = ""
    text_columns: Sequence[TextColumn] = ()

    def __post_init__(self) -> None:
        # An array of another length would colour the wrong clients without a word.
        for name in PER_CLIENT:
            value = getattr(self, name)
            if value is not None and len(value) != self.clients:
                what = "not one entry per client"
                raise ConfigError("wrong-shape", name, what, found=len(value), allowed=self.clients)

    def of_first(self, clients: int) -> RunView:
        """The view of so many clients alone."""
        columns = {name: getattr(self, name) for name in ("groups", *PER_CLIENT)}
        cut = {name: value[:clients] for name, value in columns.items() if value is not None}
        return replace(self, **cut)

    @property
    def clients(self) -> int:
        """Number of clients ``N``."""
        return len(self.groups)

    @property
    def group_count(self) -> int:
        """Number of groups that have members."""
        return len(np.unique(self.groups[self.groups >= 0]))

    @property
    def accuracies(self) -> list[float]:
        """The headline after each evaluated round; accuracies as fractions."""
        name = self.headline.name
        return [float(row[name]) for row in self.rounds if row.get(name) is not None]

    @property
    def final_accuracy(self) -> float:
        """Accuracy after the last evaluated round; NaN before the first."""
        if self.accuracies:
            return self.accuracies[-1]
        return float("nan")

    @property
    def last_evaluated(self) -> Mapping[str, Any]:
        """The row of the last evaluated round; empty before the first."""
        for row in reversed(self.rounds):
            if row.get(self.headline.name) is not None:
                return row
        return {}

    @property
    def private(self) -> bool:
        """Whether it has noise on updates; then it shows no single client, and no seed."""
        return is_private(self.tables)

    @property
    def seed(self) -> int:
        """The seed of its configuration, or a number that stands for it."""
        if self.repeat is not None:
            return self.repeat
        return int(self.tables.get("seed", 0))

    @property
    def seed_name(self) -> str:
        """The seed as a text has it."""
        if self.private:
            return f"repetition {self.seed + 1}"
        return f"seed {self.tables.get('seed', 0)}"

    @property
    def algorithm(self) -> str:
        """The algorithm of its configuration; empty where there is none."""
        return str(self.tables.get("algorithm", {}).get("name", ""))

    @property
    def newcomer_ids(self) -> IntArray:
        """The numbers of the newcomers."""
        if self.newcomers is not None:
            return np.flatnonzero(self.newcomers)
        return np.empty(0, np.int64)


def displayed_round(round: int) -> int:
    """The number of a round as people count: files and code count from 0, the page from 1.

    Example:
        >>> displayed_round(0)
        1
    """
    return round + 1


def group_agreement(view: RunView) -> float | None:
    """Adjusted Rand index between the groups and the planted populations, over clients that have a
    group; ``None`` if there are none of either."""
    # Clients without a group would count as a group of their own.
    known = view.groups >= 0
    if view.planted is None or not known.any():
        return None
    return adjusted_rand_index(view.planted[known], view.groups[known])


def population_groups(view: RunView) -> dict[int, int]:
    """The group of each planted population: the one with most of its clients, newcomers left out."""
    if view.planted is None:
        return {}
    settled = view.groups >= 0
    if view.newcomers is not None:
        # A newcomer must not vote for the group that it is then compared with.
        settled &= ~view.newcomers
    found = {}
    for population in np.unique(view.planted[settled]):
        members = view.groups[settled & (view.planted == population)]
        found[int(population)] = int(np.bincount(members).argmax())
    return found


@dataclass(frozen=True, slots=True)
class NewcomerPlacement:
    """Where a newcomer was placed: the round in which it first had a group, its group at the end,
    its planted population, and whether these agree; each ``None`` if there is none."""

    client: str
    round: int | None
    group: int | None
    population: int | None
    right: bool | None


def newcomer_placements(view: RunView) -> list[NewcomerPlacement]:
    """Where each newcomer was placed."""
    expected = population_groups(view)
    return [_placement(view, int(i), expected) for i in view.newcomer_ids]


def _placement(view: RunView, i: int, expected: Mapping[int, int]) -> NewcomerPlacement:
    group = int(view.groups[i])
    joined = None
    if view.joined is not None and view.joined[i] >= 0:
        joined = int(view.joined[i])
    population = None
    right = None
    if view.planted is not None:
        population = int(view.planted[i])
        right = group >= 0 and expected.get(population) == group
    return NewcomerPlacement(
        str(view.names[i]), joined, group if group >= 0 else None, population, right
    )


@dataclass(frozen=True, slots=True)
class Stay:
    """A time that a client spent in a group: the rounds ``[start, stop)``, counted from 0."""

    client: int
    group: int
    start: int
    stop: int


def stays_of(run: RunView) -> list[Stay] | None:
    """Each time that a client spent in a group; ``None`` for a run that did not keep the moves."""
    if any("moves" not in row for row in run.rounds):
        return None
    # Rows hold only the moves, so that those of a thousand clients stay small.
    current: dict[int, tuple[int, int]] = {}  # of each client: its group, and since when
    found = []
    for row in run.rounds:
        number = int(row["round"])
        for client, group in row["moves"]:
            if client in current:
                found.append(Stay(client, *current[client], number))
            current[int(client)] = (int(group), number)
    end = 0
    if run.rounds:
        end = int(run.rounds[-1]["round"]) + 1
    # Clients that are in a group at the end leave it after the last round.
    found += [Stay(client, *stay, end) for client, stay in current.items()]
    return [stay for stay in found if stay.group >= 0]

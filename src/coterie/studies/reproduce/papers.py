"""Records of papers, their tables and the lines of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.experiment import Experiment, check

Profile = Literal["quick", "full"]
Unit = Literal["percent", "count", "number", "ratio", "share"]
How = Literal["value", "difference", "ratio"]
Tables = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One printed value and the runs that should give it.

    Args:
        printed: the value; ``None`` if the paper prints none.
        unit: ``percent`` of accuracy, a ``count``, a plain ``number``, a ``ratio``, or a ``share``
            in percent.
        metric: what is read off a run, see ``metrics.METRICS``; empty if the value is computed.
        compute: a formula of ``computed.FORMULAS`` in place of a run.
        how: the metric itself, or a difference or ratio against the other run.
        tables: the configuration without its seed, not validated; ``None`` if none is needed.
        against: the same for the other run.
        target: an accuracy, for rounds to a target.
        full_rounds: rounds in print.
        seconds: an estimate of the time of a round on two cores.
        notes: keys of the paper's notes.
        place: keys and indices of the value in ``paper_tables.toml``.
        quick: whether the quick profile has it.
        shortcut: what the quick profile changes.
        method: what a figure calls its run: the parts that set the algorithm.
        seeds: seeds that replace 0, 1, ..., if the paper's file names seeds for one of the parts.
        until: the metric is read off the run's first so many rounds; 0: off all of them.
        axis: what a figure calls the value, with its unit; empty: it is named by ``unit``.
    """

    paper: str
    table: str
    name: str
    printed: float | None
    printed_std: float | None
    unit: Unit
    metric: str
    compute: str
    how: How
    tables: Tables | None
    against: Tables | None
    arguments: Mapping[str, Any]
    target: float
    full_rounds: int
    seconds: float
    notes: tuple[str, ...]
    place: tuple[Any, ...] | None
    quick: bool
    shortcut: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""
    against_method: str = ""
    seeds: tuple[int, ...] = ()
    until: int = 0
    axis: str = ""

    @property
    def rounds(self) -> int:
        """Rounds of its run; 0 if it has none."""
        if self.compute or not self.tables:
            return 0
        return int(self.tables["train"]["rounds"])

    def configs(self, seed: int, root: str | None = None) -> tuple[Experiment, ...]:
        """The validated configurations of its runs with one seed: its run, and the other run."""
        if self.compute:
            return ()
        wanted = [tables for tables in (self.tables, self.against) if tables is not None]
        return tuple(_validated(tables, seed, root) for tables in wanted)

    def config(self, root: str | None = None) -> Experiment:
        """The configuration of its run with the first seed, for a formula."""
        seed = next(iter(self.seeds), 0)
        return _validated(self.tables or {}, seed, root)


def _validated(tables: Tables, seed: int, root: str | None) -> Experiment:
    # A copy: all seeds of a line share its tables.
    data = dict(tables["data"])
    if root is not None:
        data["root"] = root
    return check({**tables, "data": data, "seed": seed}, "reproduce")


@dataclass(frozen=True)
class Drawings:
    """What is drawn of a table, in addition to its figures.

    Args:
        curves: keys of ``panels.CURVES``: what is drawn round by round, each in a panel of its own.
        together: whether all rows share these panels, as where a row is a method.
        bars: whether the values of the lines are drawn, those of one row and axis in a panel.
        grid: two options of the algorithm, which are the axes of a map of the lines' values; a row
            is a panel.
        scatter: names of the two values of a line's points; a row is a panel.
        distances: whether the distances of clients behind a line are drawn; a row is a panel.
    """

    curves: tuple[str, ...] = ()
    together: bool = False
    bars: bool = False
    grid: tuple[str, str] | None = None
    scatter: tuple[str, str] | None = None
    distances: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper."""

    name: str
    title: str
    notes: tuple[str, ...]
    drawings: Drawings
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Paper:
    """A paper's tables.

    Args:
        seeds: how many the full profile has: ``0 .. seeds - 1``, or those that a line names.
        notes: key -> where paper, reference code and this run differ.
        left_out: what of the paper has no line, and why.
    """

    name: str
    title: str
    seeds: int
    tables: tuple[PaperTable, ...]
    notes: Mapping[str, str]
    left_out: Mapping[str, str]

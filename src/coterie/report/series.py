"""Runs that differ only in their seeds, shown as one series."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.config.identity import config_hash, differing
from coterie.config.toml_text import value_at
from coterie.errors import shown
from coterie.headline import Headline
from coterie.measures.client_table import ScoredClients
from coterie.report.view import RunView

# Points of a curve; longer ones are thinned. More are not seen on a screen, and make a page large.
MOST_POINTS = 500


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A value of a series in one round."""

    round: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of one configuration with different seeds."""

    name: str
    runs: tuple[RunView, ...]

    @property
    def first(self) -> RunView:
        """The run that is shown where only one can be."""
        return self.runs[0]

    @property
    def headline(self) -> Headline:
        """What its runs are measured by."""
        return self.first.headline

    @property
    def many_seeds(self) -> bool:
        """Whether it has several runs."""
        return len(self.runs) > 1

    @property
    def grouped(self) -> bool:
        """Whether any of its runs ended with several groups."""
        return any(run.group_count > 1 for run in self.runs)

    @property
    def evaluated(self) -> bool:
        """Whether any of its runs was evaluated in any round."""
        return any(run.accuracies for run in self.runs)

    @property
    def client_tables(self) -> list[ScoredClients]:
        """The clients of its runs that have figures of them."""
        return [run.client_table for run in self.runs if run.client_table is not None]

    @property
    def without_model(self) -> dict[str, float]:
        """What predictions without a model reach, means over its runs."""
        known = [run.without_model for run in self.runs if run.without_model]
        names = dict.fromkeys(name for of_run in known for name in of_run)
        return {
            name: statistics.fmean(of_run[name] for of_run in known if name in of_run)
            for name in names
        }

    @property
    def final_accuracy(self) -> float:
        """Mean accuracy after the last evaluated round; NaN where nothing was evaluated."""
        known = [run.final_accuracy for run in self.runs if run.accuracies]
        if known:
            return statistics.fmean(known)
        return float("nan")

    def curve(self, values: Sequence[Sequence[float | None]] | None = None) -> list[CurvePoint]:
        """Mean, least and greatest value over the seeds, in the rounds that all runs have, of the
        headline or of ``values``, one for each row of each run."""
        if not values:
            name = self.headline.name
            values = [[row.get(name) for row in run.rounds] for run in self.runs]
        by_round = [_by_round(run, column) for run, column in zip(self.runs, values, strict=True)]
        # A mean over other seeds in every round would jump where a run is shorter than the others.
        common = sorted(set.intersection(*(set(one) for one in by_round)))
        return [_point(round, [one[round] for one in by_round]) for round in thinned(common)]


def _by_round(run: RunView, values: Sequence[float | None]) -> dict[int, float]:
    return {
        int(row["round"]): float(value)
        for row, value in zip(run.rounds, values, strict=True)
        if value is not None
    }


def _point(round: int, values: Sequence[float]) -> CurvePoint:
    return CurvePoint(round, statistics.fmean(values), min(values), max(values))


def thinned(values: Sequence[int], most: int = MOST_POINTS) -> list[int]:
    """About ``most`` of some values at equal distances, always with the last one.

    Example:
        >>> thinned(range(10), 3), thinned([1, 2], 3)
        ([1, 5, 9], [1, 2])
    """
    if not values:
        return []
    step = -(-len(values) // most)
    # Counted from the end, so that the last value is kept whatever the step.
    return list(values[::-1][::step][::-1])


def best_series(series: Iterable[Series]) -> Series | None:
    """The series with the best final accuracy; those that were not evaluated come last."""
    return max(series, key=_rank, default=None)


def best_first(series: Iterable[Series]) -> list[Series]:
    """Some series by their final accuracy, from the best."""
    return sorted(series, key=_rank, reverse=True)


def _rank(series: Series) -> float:
    # NaN compares with nothing, so a series without an accuracy is put below all others.
    gain = series.headline.gain(series.final_accuracy, over=0.0)
    return float(np.nan_to_num(gain, nan=-np.inf))


def series_of(runs: Sequence[RunView]) -> list[Series]:
    """Put runs together that differ only in their seeds, in the order in which they first appear. A
    run without a configuration stands alone.

    A series is named after its algorithm, and after the keys in which series of the same algorithm
    differ, or else after its runs.
    """
    found: dict[Any, list[RunView]] = {}
    for index, run in enumerate(runs):
        key: Any = index
        if run.tables:
            key = run.identity or config_hash({**run.tables, "seed": 0})
        if any(other.seed == run.seed for other in found.get(key, ())):
            # The same run twice is no second seed: it would narrow the interval.
            key = (key, index)
        found.setdefault(key, []).append(run)
    together = [sorted(group, key=lambda run: run.seed) for group in found.values()]
    # The charts know runs by their names, so a run takes the name of its series.
    return [
        Series(name, tuple(replace(run, name=name) for run in group))
        for name, group in zip(_names(together), together, strict=True)
    ]


def _names(groups: Sequence[Sequence[RunView]]) -> list[str]:
    """A name for each group of runs, no two alike."""
    first_runs = [group[0] for group in groups]
    # Three attempts, each for the names that are still alike: settings, folders, numbers.
    names = []
    for run in first_runs:
        others = [other for other in first_runs if other is not run]
        names.append(_name(run, others))
    with_run = [
        f"{name} ({run.name})" if names.count(name) > 1 else name
        for name, run in zip(names, first_runs, strict=True)
    ]
    return [
        f"{name} {number}" if with_run.count(name) > 1 else name
        for number, name in enumerate(with_run, 1)
    ]


def _name(run: RunView, others: Sequence[RunView]) -> str:
    """``fedgroup``, or ``fedgroup, groups = 3`` if there is another fedgroup."""
    if not run.tables:
        return run.name
    keys: dict[str, None] = {}
    for other in others:
        if other.algorithm == run.algorithm:
            keys |= dict.fromkeys(differing(run.tables, other.tables))
    settings = [
        f"{key.removeprefix('algorithm.')} = {_setting(run.tables, key)}"
        for key in keys
        if key != "seed"
    ]
    return ", ".join([run.algorithm, *settings])


def _setting(tables: Mapping[str, Any], key: str) -> str:
    """The value of a dotted key of a configuration as text, ``-`` where it has none."""
    value = value_at(tables, key.split("."))
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return shown(value)

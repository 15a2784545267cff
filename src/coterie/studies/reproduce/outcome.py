"""The result of a line."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path

from coterie.studies.reproduce.papers import Line


@dataclass(frozen=True)
class DistanceMap:
    """Distances of ``n`` clients from each other, and the planted group of each."""

    distance: tuple[tuple[float, ...], ...]
    groups: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of a line.

    Args:
        values: one for each seed that was run, in the line's unit.
        seeds: of ``values``; empty for what is computed.
        last10: mean accuracy of the last ten evaluated rounds of its runs, in percent.
        rounds: of each of its runs, or as many of them as were read.
        problem: why there is no value, or not for each seed.
        folders: for each seed, of its run and of the other run.
    """

    line: Line
    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    last10: tuple[float, ...] = ()
    rounds: int = 0
    problem: str = ""
    folders: tuple[tuple[Path, ...], ...] = field(default=(), compare=False)
    points: tuple[tuple[float, float], ...] = field(default=(), compare=False)
    distances: DistanceMap | None = field(default=None, compare=False)

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        if not self.values:
            return None
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; ``None`` for one seed."""
        if len(self.values) < 2:
            return None
        return statistics.stdev(self.values)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        if self.mean is None or self.line.printed is None:
            return None
        return self.mean - self.line.printed

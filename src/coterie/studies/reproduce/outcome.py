"""The result of a line, as a record, as a row of text, and in a sentence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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


# --- rows of text ---------------------------------------------------------------------------------

COLUMNS = ["line", "paper", "ours", "difference", "last ten", "rounds", "notes"]
NEAR = 2.0  # points of accuracy


def outcomes_headline(outcomes: Sequence[Outcome]) -> str:
    """The result in a sentence.

    Example:
        >>> outcomes_headline([])
        'Nothing is run yet'
    """
    # Only accuracies: points of them can be compared across lines.
    gaps = [
        abs(outcome.difference)
        for outcome in outcomes
        if outcome.difference is not None and outcome.line.unit == "percent"
    ]
    if gaps:
        near = sum(gap <= NEAR for gap in gaps)
        return f"{near} of {len(gaps)} accuracies are within 2 points of print"
    done = sum(bool(outcome.values) for outcome in outcomes)
    if done:
        return f"{done} of {len(outcomes)} lines have a value"
    return "Nothing is run yet"


def value_text(value: float | None, line: Line) -> str:
    """A value in its line's unit, ``-`` for none."""
    if value is None:
        return "-"
    if line.unit == "count" and float(value).is_integer():
        return f"{value:,.0f}"
    if line.unit == "count":
        return f"{value:,.1f}"
    if line.unit == "number" and abs(value) >= 10:
        return f"{value:,.1f}"
    if line.unit == "number":
        return f"{value:.3g}"
    if line.unit == "ratio":
        return f"{value:.2f}"
    return f"{value:.1f}"


def outcome_row(outcome: Outcome) -> list[str]:
    """A row of the page as text, in the order of `COLUMNS`."""
    line = outcome.line
    return [
        line.name,
        _printed_text(line),
        _ours_text(outcome),
        _difference_text(outcome),
        _last10_text(outcome),
        _rounds_text(outcome),
        _notes_text(outcome),
    ]


def _printed_text(line: Line) -> str:
    text = value_text(line.printed, line)
    if line.printed_std is not None:
        text += f" ± {line.printed_std:g}"
    return text


def _ours_text(outcome: Outcome) -> str:
    text = value_text(outcome.mean, outcome.line)
    if outcome.spread is not None:
        text += f" ± {value_text(outcome.spread, outcome.line)}"
    return text


def _difference_text(outcome: Outcome) -> str:
    if outcome.difference is None:
        return "-"
    text = value_text(outcome.difference, outcome.line)
    if text.startswith("-"):
        return text
    return f"+{text}"


def _last10_text(outcome: Outcome) -> str:
    # A maximum on test data flatters a curve that jumps: the mean of the last ten stands beside it.
    is_accuracy = outcome.line.metric in ("max", "median") and outcome.line.how == "value"
    if not is_accuracy or not outcome.last10:
        return "-"
    return f"{sum(outcome.last10) / len(outcome.last10):.1f}"


def _rounds_text(outcome: Outcome) -> str:
    if not outcome.rounds:
        return "-"
    return f"{outcome.rounds} of {outcome.line.full_rounds}"


def _notes_text(outcome: Outcome) -> str:
    # A row and its column may have the same note.
    notes = list(dict.fromkeys(outcome.line.notes))
    if outcome.problem:
        notes.append(outcome.problem)
    if outcome.line.compute and outcome.values:
        notes.append("computed")
    return ", ".join(notes)

"""The result of a line, as a record, as a row of text, and in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coterie.runs.scores import deviation_of_known, mean_of_known
from coterie.studies.reproduce.papers import Line
from coterie.terminal import number_text


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
        seeds: the seeds of ``values``; empty for computed values.
        last10: mean accuracy of the last ten evaluated rounds of its runs, in percent.
        rounds: number of rounds of each of its runs, or of those that were read.
        problem: why there is no value, or not for each seed.
        folders: for each seed, the folders of its run and of the other run.
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
        return mean_of_known(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; ``None`` for one seed."""
        return deviation_of_known(self.values)

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
        'Nothing has been run yet'
    """
    # Only accuracies: points of them can be compared across lines.
    gaps = [
        abs(outcome.difference)
        for outcome in outcomes
        if outcome.difference is not None and outcome.line.unit == "percent"
    ]
    if gaps:
        near = sum(gap <= NEAR for gap in gaps)
        return f"{near} of {len(gaps)} accuracies are within 2 points of the paper"
    done = sum(bool(outcome.values) for outcome in outcomes)
    if done:
        return f"{done} of {len(outcomes)} lines have a value"
    return "Nothing has been run yet"


def value_text(value: float | None, line: Line) -> str:
    """A value in its line's unit, ``-`` for none."""
    digits = {"count": ",.1f", "number": ".3g", "ratio": ".2f"}.get(line.unit, ".1f")
    if value is not None and line.unit == "count" and float(value).is_integer():
        digits = ",.0f"
    elif value is not None and line.unit == "number" and abs(value) >= 10:
        digits = ",.1f"
    return number_text(value, digits)


def outcome_row(outcome: Outcome) -> list[str]:
    """A row of the page as text, in the order of `COLUMNS`."""
    line = outcome.line
    printed = value_text(line.printed, line)
    if line.printed_std is not None:
        printed += f" ± {line.printed_std:g}"
    ours = value_text(outcome.mean, line)
    if outcome.spread is not None:
        ours += f" ± {value_text(outcome.spread, line)}"
    difference = value_text(outcome.difference, line)
    if not difference.startswith("-"):
        difference = f"+{difference}"
    rounds = "-"
    if outcome.rounds:
        rounds = f"{outcome.rounds} of {line.full_rounds}"
    notes = [*line.notes, outcome.problem]
    if line.compute and outcome.values:
        notes.append("computed")
    # A row and its column may have the same note.
    noted = ", ".join(note for note in dict.fromkeys(notes) if note)
    return [line.name, printed, ours, difference, _last10_text(outcome), rounds, noted]


def _last10_text(outcome: Outcome) -> str:
    # A maximum on test data flatters a curve that jumps: the mean of the last ten stands next to it.
    is_accuracy = outcome.line.metric in ("max", "median") and outcome.line.how == "value"
    if not is_accuracy:
        return "-"
    return number_text(mean_of_known(outcome.last10), ".1f")

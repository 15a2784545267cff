"""What a finished run is worth on a scoreboard, at equal work and at equal traffic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.experiment import check
from coterie.headline import Headline
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.scores import ways_of
from coterie.studies.scoreboard.suite import Score

COURSE = 15  # points of a curve that a results file keeps
# Changes from run to run of the same bits.
TIMES = ("seconds", "chain")


@dataclass(frozen=True)
class FedAvgBudget:
    """What a method may spend: what FedAvg spends on the same clients with the same seed."""

    steps: int
    bytes: int


@dataclass(frozen=True)
class Course:
    """A run round by round: seconds so far, without evaluation, and the figure that is scored,
    ``None`` in rounds that were not evaluated."""

    values: Sequence[float | None]
    steps: Sequence[int]
    bytes: Sequence[int]
    seconds: Sequence[float] = ()

    def value(self, score: Score, rounds: int) -> float | None:
        """The score after so many rounds: that of the last evaluated one; ``None`` if there is
        none.

        Where data drift, it is the mean over all rounds of the run: later rounds are harder, so a
        method that has spent its budget early would gain by it.
        """
        part = self.values if score == "course" else self.values[:rounds]
        known = [value for value in part if value is not None]
        if not known:
            return None
        if score == "course":
            return float(np.mean(known))
        return known[-1]

    def rounds_within(self, steps: int | None = None, bytes: int | None = None) -> int:
        """The rounds after which no more was spent than that."""
        found = 0
        for spent, moved in zip(self.steps, self.bytes, strict=True):
            if steps is not None and spent > steps:
                break
            if bytes is not None and moved > bytes:
                break
            found += 1
        return found

    @property
    def spent(self) -> FedAvgBudget:
        """What the whole run spent."""
        return FedAvgBudget(self.steps[-1], self.bytes[-1])

    def shown(self) -> list[int]:
        """The evaluated rounds that a curve shows: some of them, in even distances."""
        known = [at for at, value in enumerate(self.values) if value is not None]
        chosen = np.unique(np.linspace(0, len(known) - 1, COURSE).round().astype(int))
        return [known[at] for at in chosen] if known else []

    def points(self) -> list[list[Any]]:
        """Points of the curve, as (round, steps, bytes, value)."""
        return [[at, self.steps[at], self.bytes[at], self.values[at]] for at in self.shown()]


def course_of(folder: RunFolder, headline: Headline, score: Score) -> Course:
    """The course of a run."""
    check_folder(folder)
    scored = headline
    if score == "unseen":
        ways = {way.name: way for way in ways_of(folder.resolved, headline)}
        scored = ways["unseen"].headline
    rows = folder.rows()
    moved = [row["transfers"]["down_bytes"] + row["transfers"]["up_bytes"] for row in rows]
    seconds = [row["seconds"]["total"] - row["seconds"]["evaluation"] for row in rows]
    return Course(
        [row.get(scored.name) for row in rows],
        np.cumsum([row["local_steps"] for row in rows]).tolist(),
        np.cumsum(moved).tolist(),
        np.cumsum(seconds).tolist(),
    )


def figures_of_run(
    path: Path, headline: Headline, score: Score, budget: FedAvgBudget, *, curve: bool
) -> dict[str, Any]:
    """The figures of a finished run, as a results file has them. ``curve`` keeps points of its
    course, which would make the file of all runs large."""
    folder = RunFolder.open(path)
    course = course_of(folder, headline, score)
    rows = folder.rows()
    last = rows[-1]
    agreement = last.get("agreement") or {}
    # Equal for runs of the same bits.
    lasting = [{k: v for k, v in row.items() if k not in TIMES} for row in rows]
    return {
        "seed": check(folder.resolved).seed,
        "equal_work": course.value(score, course.rounds_within(steps=budget.steps)),
        "equal_bytes": course.value(score, course.rounds_within(bytes=budget.bytes)),
        "all_rounds": course.value(score, len(rows)),
        "ari": agreement.get("ari"),
        "groups": sum(size > 0 for size in last["sizes"]),
        "steps": course.spent.steps,
        "bytes": course.spent.bytes,
        "course": course.points() if curve else [],
        "digest": hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest(),
        "seconds": {
            # Evaluation is ours and no method's.
            "run": course.seconds[-1],
            "grouping": sum(row["seconds"]["grouping"] for row in rows),
            "course": [course.seconds[at] for at in course.shown()] if curve else [],
        },
    }

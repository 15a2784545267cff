"""Settings of a sweep that are chosen by validation.

Each algorithm is tried at every point of the grid, with the first seed. In a trial, a part of each
client's training samples is kept out of training and scored in place of its test samples, so no test
sample decides. The runs that are compared have the best point of their algorithm.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from coterie.config.identity import config_hash
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.headline import Headline
from coterie.runs.published import is_private
from coterie.sweep.measured import Measured
from coterie.sweep.plan import ID_DIGITS, Point, SweepPlan, SweepRun

VALIDATION = 0.2  # of each client's training samples
# In the folder of the sweep: a report of that folder shows only the runs that are compared.
TRIALS = "tuning"
TUNING = "tuning.json"


@dataclass(frozen=True, slots=True)
class Tuned:
    """The trials of one algorithm.

    Args:
        trials: how many there are.
        skipped: those that failed or diverged, and why.
        seconds: of all that are done.
        steps: of the same, batches that clients trained on.
        best: the place of the best one in the grid; ``None`` if all were skipped.
        value: its figure on validation samples.
        edges: its settings whose values are the least or the greatest that were tried.
    """

    trials: int
    skipped: tuple[str, ...]
    seconds: float = 0.0
    steps: int = 0
    best: int | None = None
    value: float | None = None
    edges: tuple[str, ...] = ()


def plan_trials(plan: SweepPlan) -> SweepPlan:
    """The trials of a plan.

    They have its first seed: with a further one, they could train on the test samples of every run
    where the seed decides which samples are for tests.
    """
    if any(is_private(run.tables) for run in plan.runs):
        why = "every trial would consume privacy that is not charged to the runs' budget"
        raise ConfigError("does-not-fit", "--tune", why, do="leave out [privacy]")
    if any("validation" in run.tables.get("evaluate", {}) for run in plan.runs):
        raise ConfigError("in-conflict", "--tune", "cannot be combined with evaluate.validation")
    seed = plan.seeds[0]
    cells = {cell: _trial(run) for cell, run in plan.cells.items() if cell[2] == seed}
    return replace(plan, seeds=(seed,), cells=cells)


def _trial(run: SweepRun) -> SweepRun:
    evaluate = {**run.tables.get("evaluate", {}), "validation": VALIDATION}
    resolved = check({**run.tables, "evaluate": evaluate}, "--tune").resolved()
    # The id of the run stands for its data.
    whole = config_hash(resolved) + run.id
    trial_id = hashlib.sha256(whole.encode()).hexdigest()[:ID_DIGITS]
    return replace(run, id=trial_id, tables=resolved)


def best_trials(
    trials: SweepPlan,
    measured: Mapping[str, Measured],
    failed: Mapping[str, str],
    headline: Headline,
) -> dict[str, Tuned]:
    """The best trial of each algorithm; of equal ones the first.

    Args:
        measured: id of a trial that is done -> its figures.
        failed: id of a trial -> why it failed.
    """
    found = {}
    for name in trials.allowed:
        runs = _trials_of(name, trials)
        done = {index: measured[run.id] for index, run in runs.items() if run.id in measured}
        values = {
            index: one.value
            for index, one in done.items()
            if one.value is not None and math.isfinite(one.value) and not one.diverged
        }
        skipped = [
            f"{run.name}: {failed.get(run.id, 'training diverged')}"
            for index, run in runs.items()
            if index not in values
        ]
        chosen = Tuned(
            trials=len(runs),
            skipped=tuple(skipped),
            seconds=sum(one.seconds for one in done.values()),
            steps=sum(one.steps for one in done.values()),
        )
        if values:
            top = headline.best(values.values())
            best = next(index for index, value in values.items() if value == top)
            edges = _edges(runs[best].point, trials)
            chosen = replace(chosen, best=best, value=values[best], edges=edges)
        found[name] = chosen
    return found


def _trials_of(name: str, trials: SweepPlan) -> dict[int, SweepRun]:
    """Place in the grid -> trial of an algorithm. Points that do not apply to it share a trial."""
    found: dict[int, SweepRun] = {}
    for index in range(len(trials.points)):
        run = trials.cells[name, index, trials.seeds[0]]
        if all(run.id != other.id for other in found.values()):
            found[index] = run
    return found


def _edges(point: Point, trials: SweepPlan) -> tuple[str, ...]:
    """The settings at a point whose values are the least or the greatest that were tried."""
    found = []
    for at, (key, value) in enumerate(point):
        try:
            tried = {float(other[at]) for other in trials.points}
        except ValueError:
            # Names and lists have no least one.
            continue
        if value is not None and len(tried) > 1 and float(value) in (min(tried), max(tried)):
            found.append(f"{key} = {value}")
    return tuple(found)


def with_best(plan: SweepPlan, tuned: Mapping[str, Tuned]) -> SweepPlan:
    """The plan with the best point of each algorithm alone, as if the grid had no other."""
    cells = {}
    refused = dict(plan.refused)
    for name in plan.algorithms:
        best = None
        if name in tuned:
            best = tuned[name].best
            if best is None:
                refused[name] = f"{name}: every trial failed or diverged"
        for seed in plan.seeds:
            run = plan.cells[name, best or 0, seed]
            if best is None:
                run = replace(run, point=tuple((key, None) for key in plan.keys))
            cells[name, 0, seed] = run
    return replace(plan, points=plan.points[:1], cells=cells, refused=refused)

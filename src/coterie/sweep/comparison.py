"""From the runs of a sweep to the rows of its table: means over seeds, and paired differences to a
baseline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from coterie.config.wording import describe_type, nearest
from coterie.errors import ConfigError
from coterie.experiment.experiment import check
from coterie.headline import ACCURACY, Headline
from coterie.math.intervals import half_width
from coterie.measures.client_table import ScoredClients
from coterie.measures.seeds import SeedOverlap, overlap_of
from coterie.measures.verdict import Verdict, candidate, verdict
from coterie.runs.compose import task_headline, task_metrics
from coterie.runs.published import is_private
from coterie.runs.scores import ClientScores, deviation_of_known, mean_of_known, mean_scores
from coterie.sweep.measured import Figure, Measured, measure
from coterie.sweep.plan import SweepPlan, SweepRun
from coterie.sweep.run_once import different_headlines, is_done
from coterie.sweep.tuning import Tuned

# Method, with its values of the grid -> its runs, by seed, and their clients.
ScoredRuns = dict[str, list[tuple[SweepRun, ScoredClients]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences, and half the width of its 95 % confidence interval, see
    `coterie.math.intervals.half_width`; ``None`` with one pair."""

    mean: float
    half: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: an algorithm at a point of the grid, over all seeds.

    Args:
        values: the grid values, ``-`` for a key that does not apply to this algorithm.
        mean: the mean of the headline metric.
        sd: its standard deviation (``n - 1``).
        reached: runs that reached the target.
        rounds: mean over those.
        bytes: mean over those.
        scored: clients that the headline counts, those with a group at the end, mean over the runs.
        refused: why the algorithm cannot be run with this configuration; empty where it can.
    """

    algorithm: str
    values: tuple[str, ...]
    done: int
    planned: int
    mean: float | None
    sd: float | None
    difference: Difference | None
    reached: int
    rounds: float | None
    bytes: float | None
    seconds: float | None
    scored: float | None = None
    scores: tuple[ClientScores, ...] = ()
    refused: str = ""
    start_up: float | None = None
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The rows of a sweep, and what they compare.

    Args:
        metrics: the metrics of the task after its headline.
        clients: method, with its values of the grid -> the clients of its runs, by seed.
        tuning: algorithm -> the trials that its settings were chosen by; empty without ``--tune``.
    """

    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    baseline: str
    target: float | None
    figure: Figure
    rows: tuple[Row, ...]
    headline: Headline = ACCURACY
    without_model: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict, repr=False)
    overlap: SeedOverlap = SeedOverlap()
    private: bool = False
    verdict: Verdict | None = None
    metrics: tuple[Headline, ...] = ()
    clients: Mapping[str, Sequence[ScoredClients]] = field(default_factory=dict, repr=False)
    tuning: Mapping[str, Tuned] = field(default_factory=dict)


def check_choices(
    plan: SweepPlan, baseline: str | None, figure: str, target: float | None = None
) -> str:
    """Check the options of a comparison; returns the baseline, by default the first algorithm."""
    headline = headline_for(plan)
    if target is not None and headline.unit == "%" and not 0 <= target <= 1:
        expected = f"{headline.title} as a fraction, from 0 to 1"
        raise ConfigError("out-of-range", "--target", got=target, allowed=expected)
    choices = (("--baseline", baseline, plan.allowed), ("--figure", figure, get_args(Figure)))
    for option, value, known in choices:
        if value is not None and value not in known:
            expected = describe_type(Literal[known])
            hint = nearest(value, known)
            raise ConfigError("unknown-choice", option, got=value, allowed=expected, hint=hint)
    return baseline or plan.allowed[0]


def headline_for(plan: SweepPlan) -> Headline:
    """What the runs of a plan are measured by."""
    if plan.headline is not None:
        return plan.headline
    found = {task_headline(check(run.tables)) for run in plan.runs}
    if len(found) > 1:
        raise different_headlines(found)
    return found.pop()


# --- rows -----------------------------------------------------------------------------------------


def tabulate(
    plan: SweepPlan, out: Path, baseline: str, target: float | None = None, figure: Figure = "final"
) -> SweepTable:
    """Compare the runs of a plan that are done, each with the baseline's run of the same seed and
    grid values."""
    measured = {
        run.id: measure(out / run.id, target, figure) for run in plan.runs if is_done(run, out)
    }
    # Points of the grid that do not apply to an algorithm give the same runs. The first of them
    # stands for all.
    first: dict[tuple[Any, ...], tuple[int, Row]] = {}
    for name in plan.algorithms:
        for index in range(len(plan.points)):
            ours = [plan.cells[name, index, seed] for seed in plan.seeds]
            theirs = [plan.cells[baseline, index, seed] for seed in plan.seeds]
            difference = None
            # The baseline has no difference to itself, not one of 0.
            if name != baseline:
                difference = _difference(ours, theirs, measured)
            row = _row(ours, measured, difference, has_target=target is not None)
            row = replace(row, refused=plan.refused.get(name, ""))
            first.setdefault(_comparison_key(ours, theirs), (index, row))
    rows = _with_distinct_values(list(first.values()), plan)
    headline = headline_for(plan)
    scored = _scored(plan, measured)
    naive: dict[str, list[float]] = {}
    for one in measured.values():
        for name, value in one.without_model.items():
            naive.setdefault(name, []).append(value)
    return SweepTable(
        plan.keys,
        plan.seeds,
        baseline,
        target,
        figure,
        rows,
        headline.with_decimals_for(row.mean for row in rows),
        {name: statistics.fmean(values) for name, values in naive.items()},
        measured,
        overlap_of(one.split for one in measured.values()),
        private=any(is_private(run.tables) for run in plan.runs),
        verdict=_verdict(plan, scored, headline),
        metrics=_other_metrics(plan),
        clients={name: [each for _, each in runs] for name, runs in scored.items() if runs},
    )


def _other_metrics(plan: SweepPlan) -> tuple[Headline, ...]:
    """The metrics of the task after its headline, but for bounds of the errors of others."""
    found = task_metrics(check(plan.runs[0].tables))[1:]
    return tuple(one for one in found if not one.name.endswith("_bound"))


def _scored(plan: SweepPlan, measured: Mapping[str, Measured]) -> ScoredRuns:
    """The runs with figures of single clients. Points of the grid that do not apply to an algorithm give
    the same runs, and are there once."""
    found: ScoredRuns = {}
    for name in plan.allowed:
        for index in range(len(plan.points)):
            runs = [plan.cells[name, index, seed] for seed in plan.seeds]
            # A single point needs no name.
            point = runs[0].point if len(plan.points) > 1 else ()
            values = [f"{key} = {value}" for key, value in point if value is not None]
            scored = []
            for run in runs:
                clients = measured[run.id].clients if run.id in measured else None
                if clients is not None:
                    scored.append((run, clients))
            found[", ".join([name, *values])] = scored
    return found


def _verdict(plan: SweepPlan, scored: ScoredRuns, headline: Headline) -> Verdict | None:
    """Whether grouping is worth it; ``None`` where no method with groups is compared."""
    if any(is_private(run.tables) for run in plan.runs):
        return Verdict("unknown", missing="runs with [privacy] do not show single clients")
    candidates = []
    for name, runs in scored.items():
        known = [(run.tables, int(run.tables["train"]["rounds"]), table) for run, table in runs]
        algorithm = runs[0][0].algorithm if runs else name
        candidates.append(candidate(name, algorithm, known))
    if not any(one.grouped for one in candidates):
        return None
    return verdict(candidates, headline)


def _comparison_key(ours: Sequence[SweepRun], theirs: Sequence[SweepRun]) -> tuple[Any, ...]:
    """Equal for rows of the same runs that are compared with the same runs."""
    name = ours[0].algorithm
    # The baseline's own rows are equal if their runs are.
    others = [run.id for run in theirs if run.algorithm != name]
    return (name, *(run.id for run in ours), *others)


def _with_distinct_values(rows: Sequence[tuple[int, Row]], plan: SweepPlan) -> tuple[Row, ...]:
    """The rows, each with other values than the others of its algorithm.

    The same runs may be compared with different ones: FedAvg has no groups, but the baseline has 2
    at one point of the grid and 3 at the next. Such rows show the values of the point.
    """
    shown = [(row.algorithm, row.values) for _, row in rows]
    found = []
    for index, row in rows:
        if shown.count((row.algorithm, row.values)) > 1:
            row = replace(row, values=plan.points[index])
        found.append(row)
    return tuple(found)


def _row(
    runs: Sequence[SweepRun],
    measured: Mapping[str, Measured],
    difference: Difference | None,
    has_target: bool,
) -> Row:
    done = [measured[run.id] for run in runs if run.id in measured]
    values = [one.value for one in done]
    reached = [one for one in done if one.rounds is not None]
    # Bytes to the target are those of the runs that reached it.
    counted = reached if has_target else done
    return Row(
        algorithm=runs[0].algorithm,
        values=tuple("-" if value is None else value for _, value in runs[0].point),
        done=len(done),
        planned=len(runs),
        mean=mean_of_known(values),
        sd=deviation_of_known(values),
        difference=difference,
        reached=len(reached),
        rounds=mean_of_known(one.rounds for one in reached),
        bytes=mean_of_known(one.bytes for one in counted),
        seconds=mean_of_known(one.seconds for one in done),
        start_up=mean_of_known(one.start_up for one in done),
        steps=mean_of_known(one.steps for one in done),
        scored=mean_of_known(one.scored for one in done),
        scores=tuple(mean_scores([one.scores for one in done])),
    )


def _difference(
    ours: Sequence[SweepRun], theirs: Sequence[SweepRun], measured: Mapping[str, Measured]
) -> Difference | None:
    known = {name: one.value for name, one in measured.items() if one.value is not None}
    # Paired by seed: the same seed means the same data and cohorts, so their luck cancels.
    pairs = [
        (one.id, other.id)
        for one, other in zip(ours, theirs, strict=True)
        if one.id in known and other.id in known
    ]
    overlap = overlap_of(measured[one].split for one, _ in pairs)
    return paired([known[one] - known[other] for one, other in pairs], overlap)


def paired(differences: Sequence[float], overlap: SeedOverlap = SeedOverlap()) -> Difference | None:
    """The mean of paired differences and half the width of its 95 % interval, by `half_width`."""
    n = len(differences)
    if n == 0:
        return None
    mean = statistics.fmean(differences)
    if n == 1:
        return Difference(mean, None, 1)
    return Difference(mean, half_width(differences, overlap.reuse), n)

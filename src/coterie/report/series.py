"""Runs that differ in their seeds alone, shown as one; and what they say about grouping, in
words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.config.identity import config_hash, differing
from coterie.config.wording import shown
from coterie.core.arrays import FloatArray
from coterie.report.view import RunView
from coterie.sweep.comparison import Difference, paired
from coterie.terminal import counted, percent

MOST_POINTS = 500  # of a curve; longer ones are thinned
BASELINE = "fedavg"
DASH = 0.0005  # a gain that is smaller, as a fraction, is none


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of one configuration with different seeds.

    Args:
        name: what it is called on the page.
        runs: one or more, by seed; the first one stands for all where only one can be shown.
    """

    name: str
    runs: tuple[RunView, ...]

    @property
    def first(self) -> RunView:
        """The run that is shown where only one can be."""
        return self.runs[0]

    @property
    def grouped(self) -> bool:
        """Whether it ended with several groups."""
        return self.first.count > 1

    @property
    def final(self) -> float:
        """Mean accuracy at the end; NaN where nothing was evaluated."""
        known = [run.final for run in self.runs if run.accuracies]
        if known:
            return statistics.fmean(known)
        return float("nan")

    def curve(
        self, measured: Sequence[Sequence[float | None]] | None = None
    ) -> list[dict[str, float]]:
        """Mean, least and greatest value over the seeds, by round, in the rounds that all runs
        have.

        Args:
            measured: a value for each row of each run; default the accuracy.

        Example:
            >>> runs = [RunView("a", [{"round": 0, "accuracy": a}], np.zeros(1, int), "x") for a in (0.4, 0.6)]
            >>> Series("a", tuple(runs)).curve()
            [{'round': 0, 'mean': 0.5, 'low': 0.4, 'high': 0.6}]
        """
        values = measured or [[row.get("accuracy") for row in run.rounds] for run in self.runs]
        every = [
            {
                int(row["round"]): float(value)
                for row, value in zip(run.rounds, column, strict=True)
                if value is not None
            }
            for run, column in zip(self.runs, values, strict=True)
        ]
        common = sorted(set.intersection(*(set(one) for one in every))) if every else []
        found = []
        for t in thinned(common):
            here = [one[t] for one in every]
            found.append(
                {"round": t, "mean": statistics.fmean(here), "low": min(here), "high": max(here)}
            )
        return found


def thinned(values: Sequence[int], most: int = MOST_POINTS) -> list[int]:
    """About ``most`` of some values at equal distances, the last one among them.

    Example:
        >>> thinned(range(10), 3), thinned([1, 2], 3)
        ([1, 5, 9], [1, 2])
    """
    step = -(-len(values) // most) if len(values) else 1
    return list(values[::-1][::step][::-1])


def series_of(runs: Sequence[RunView]) -> list[Series]:
    """Runs of the same configuration together, whatever their seeds, in the order in which they are
    first met.

    A run without a configuration stands for itself. Series are called by their algorithm, and by
    the keys in which those of the same algorithm differ; where that is not enough, by the names of
    their runs.
    """
    found: dict[Any, list[RunView]] = {}
    for at, run in enumerate(runs):
        key: Any = config_hash({**run.tables, "seed": 0}) if run.tables else at
        if any(other.seed == run.seed for other in found.get(key, ())):
            key = (key, at)
        found.setdefault(key, []).append(run)
    every = [sorted(group, key=lambda run: run.seed) for group in found.values()]
    names = _names(every)
    return [
        Series(name, tuple(replace(run, name=name) for run in group))
        for name, group in zip(names, every, strict=True)
    ]


def _names(every: Sequence[Sequence[RunView]]) -> list[str]:
    names = [
        _name(group[0], [other[0] for other in every if other is not group]) for group in every
    ]
    own = [group[0].name for group in every]
    twice = [
        f"{name} ({run})" if names.count(name) > 1 else name
        for name, run in zip(names, own, strict=True)
    ]
    return [f"{name} {at}" if twice.count(name) > 1 else name for at, name in enumerate(twice, 1)]


def _name(run: RunView, others: Sequence[RunView]) -> str:
    """``fedgroup``, or ``fedgroup, groups = 3`` where there is another fedgroup."""
    if not run.tables:
        return run.name
    same = [other for other in others if other.algorithm == run.algorithm]
    keys = dict.fromkeys(
        key for other in same for key in differing(run.tables, other.tables) if key != "seed"
    )
    said = [f"{key.removeprefix('algorithm.')} = {_value(run.tables, key)}" for key in keys]
    return ", ".join([run.algorithm, *said])


def _value(tables: Mapping[str, Any], key: str) -> str:
    value: Any = tables
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return shown(value)


# --- against a baseline ---------------------------------------------------------------------------


def baseline_of(series: Sequence[Series]) -> Series | None:
    """FedAvg where it is there, else the best without groups; ``None`` where there is none."""
    plain = [one for one in series if not one.grouped]
    named = [one for one in plain if one.first.algorithm == BASELINE]
    return max(named or plain, key=lambda one: np.nan_to_num(one.final, nan=-1), default=None)


def pairs(ours: Series, theirs: Series) -> list[tuple[RunView, RunView]]:
    """The runs of two series over the same clients with the same data and seed."""
    return [
        (a, b)
        for a in ours.runs
        for b in theirs.runs
        if a.seed == b.seed
        and a.clients == b.clients
        and a.dealt == b.dealt
        and list(a.names) == list(b.names)
    ]


def everybody(ours: RunView, theirs: RunView) -> bool:
    """Whether the two are to be compared over all clients: at its end, one of them scored only
    those with a group.

    Example:
        >>> row = {"round": 0, "accuracy": 0.9, "accuracy_all": 0.6, "clients_assigned": 1}
        >>> one = RunView("a", [row], np.array([0, -1]), "xy")
        >>> everybody(one, RunView("b", [{**row, "clients_assigned": 2}], np.zeros(2, int), "xy")), everybody(one, one)
        (True, False)
    """
    known = all(run.last.get("accuracy_all") is not None for run in (ours, theirs))
    return known and ours.last.get("clients_assigned") != theirs.last.get("clients_assigned")


def finals(ours: Series, theirs: Series) -> list[tuple[float, float]]:
    """The accuracies at the end of every pair of runs, over the same clients."""
    found = []
    for a, b in pairs(ours, theirs):
        if a.accuracies and b.accuracies:
            name = "accuracy_all" if everybody(a, b) else "accuracy"
            found.append((float(a.last[name]), float(b.last[name])))
    return found


def difference(ours: Series, theirs: Series) -> Difference | None:
    """Paired difference of the accuracies at the end, by seed; ``None`` where no two runs are over
    the same clients."""
    return paired([a - b for a, b in finals(ours, theirs)])


def gains(ours: RunView, theirs: RunView) -> FloatArray | None:
    """What each client gained, a fraction, NaN for one without test samples; ``None`` where it is
    not known.

    Example:
        >>> a, b = (RunView("x", [], np.zeros(2, int), "ab", each=np.array(e)) for e in ([0.5, 1.0], [0.5, 0.25]))
        >>> gains(a, b).tolist()
        [0.0, 0.75]
    """
    if ours.each is None or theirs.each is None:
        return None
    return ours.each - theirs.each


@dataclass(frozen=True, slots=True)
class Balance:
    """Who wins and who loses, over all pairs of runs.

    Args:
        won: clients whose accuracy rose.
        lost: clients whose accuracy fell.
        same: clients for which it stayed as it was.
        mean: mean gain of a client, a fraction.
        worst: mean gain of the tenth that lost most.
    """

    won: int
    lost: int
    same: int
    mean: float
    worst: float

    @property
    def all(self) -> int:
        """Clients counted, each once in every pair of runs."""
        return self.won + self.lost + self.same


def balance(ours: Series, theirs: Series) -> Balance | None:
    """Who wins and who loses by one series in place of another; ``None`` where no client is known
    under both."""
    both = [gains(a, b) for a, b in pairs(ours, theirs)]
    known = np.concatenate(
        [one[np.isfinite(one)] for one in both if one is not None] or [np.empty(0)]
    )
    if not len(known):
        return None
    worst = np.sort(known)[: max(1, len(known) // 10)]
    won = int((known > DASH).sum())
    lost = int((known < -DASH).sum())
    return Balance(won, lost, len(known) - won - lost, float(known.mean()), float(worst.mean()))


# --- in words -------------------------------------------------------------------------------------


def headline(runs: Sequence[RunView]) -> str:
    """The result in words: the best series that has groups against the best that has none, by final
    accuracy.

    Example:
        >>> def run(name, groups, accuracy):
        ...     return RunView(name, [{"round": 0, "accuracy": accuracy}], np.array(groups), "ab")
        >>> headline([run("FedAvg", [0, 0], 0.81), run("FedGroup", [0, 1], 0.931)])
        'FedGroup reached 93.1 %, FedAvg 81.0 %: grouping gained 12.1 points'
        >>> headline([run("FedAvg", [0, 0], 0.81)])
        'FedAvg reached 81.0 %'
    """
    finished = [one for one in series_of(runs) if any(run.accuracies for run in one.runs)]
    if not finished:
        return "No round has been run yet"
    plain = max(
        (one for one in finished if not one.grouped), key=lambda one: one.final, default=None
    )
    grouped = max((one for one in finished if one.grouped), key=lambda one: one.final, default=None)
    if plain is None or grouped is None:
        best = sorted(finished, key=lambda one: -one.final)
        said = ", ".join(
            f"{one.name} {'reached ' if not at else ''}{percent(one.final)}"
            for at, one in enumerate(best[:4])
        )
        return said + (f", and {len(best) - 4} others less" if len(best) > 4 else "")
    paired_finals = finals(grouped, plain)
    if not paired_finals:
        both = (
            f"{grouped.name} reached {percent(grouped.final)}, {plain.name} {percent(plain.final)}"
        )
        return f"{both}: over other clients or with other seeds, so what grouping did is not told"
    ours, theirs = (statistics.fmean(pair[at] for pair in paired_finals) for at in (0, 1))
    whole = any(everybody(a, b) for a, b in pairs(grouped, plain))
    over = " over all clients, with a group or without" if whole else ""
    both = f"{grouped.name} reached {percent(ours)}, {plain.name} {percent(theirs)}{over}"
    found = difference(grouped, plain)
    assert found is not None
    return f"{both}: {_verdict(found)}"


def _verdict(found: Difference) -> str:
    """What grouping did, in points: the figure that the table of the runs has, too."""
    # The difference is rounded, not taken of rounded accuracies, or the page would name two.
    points = f"{abs(100 * found.mean):.1f} points"
    if points == "0.0 points":
        return "grouping made no difference"
    if found.half is not None:
        points += f" (± {100 * found.half:.1f}, {counted(found.pairs, 'seed')})"
        if abs(found.mean) <= found.half:
            return f"a difference of {points} that may be chance"
    if found.mean > 0:
        return f"grouping gained {points}"
    return f"grouping lost {points}"


def lead(runs: Sequence[RunView]) -> str:
    """Who won and who lost by the best series with groups, in a sentence; empty where that is not
    known.

    Example:
        >>> def run(name, groups, each):
        ...     return RunView(name, [{"round": 0, "accuracy": 0.5}], np.array(groups), "ab", each=np.array(each))
        >>> lead([run("FedAvg", [0, 0], [0.5, 0.6]), run("FedGroup", [0, 1], [0.75, 0.5])])
        'Under FedGroup 1 of 2 clients won and 1 lost against FedAvg.'
    """
    series = series_of(runs)
    base = baseline_of(series)
    best = max(
        (one for one in series if one.grouped and one.first.accuracies),
        key=lambda one: one.final,
        default=None,
    )
    found = None if base is None or best is None else balance(best, base)
    if found is None or base is None or best is None:
        return ""
    many = f" over {counted(len(pairs(best, base)), 'seed')}" if len(pairs(best, base)) > 1 else ""
    won = f"{found.won:,} of {counted(found.all, 'client')}{many} won"
    return f"Under {best.name} {won} and {found.lost:,} lost against {base.name}."

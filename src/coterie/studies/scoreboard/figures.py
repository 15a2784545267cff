"""The figures of a scoreboard's tables: means over seeds, and ranks over federations.

Of the ranks, which methods differ. Demšar (2006), "Statistical comparisons of classifiers over
multiple data sets": the test of Friedman over all methods, and the critical difference of Nemenyi for
two of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from coterie.experiment import check
from coterie.headline import Headline
from coterie.runs.compose import task_headline
from coterie.runs.scores import deviation_of_known, mean_of_known
from coterie.studies.scoreboard.results_file import Results
from coterie.studies.scoreboard.running import DEFAULTS, TUNED
from coterie.studies.scoreboard.suite import BASELINE, ORACLE, Federation, Suite, merged

# --- ranks ----------------------------------------------------------------------------------------

LEVEL = 0.05  # of both tests


@dataclass(frozen=True)
class Ranking:
    """The methods from the best to the worst.

    Args:
        p: p-value of Friedman's test that all methods are equal; ``None`` for under three methods or
            two federations.
        critical: mean ranks that differ by less cannot be told apart; ``None`` like ``p``.
    """

    ranks: Mapping[str, float]
    federations: int
    p: float | None
    critical: float | None


def rank(values: Mapping[str, Sequence[float]]) -> Ranking:
    """Rank methods by their values on the same federations; higher is better, equal values share
    ranks."""
    # Imported here: it takes a second, and advice reads figures without ranks.
    from scipy import stats

    table = np.array(list(values.values()), float)
    mean = stats.rankdata(-table, axis=0).mean(axis=1)
    order = np.argsort(mean, kind="stable")
    names = list(values)
    ranks = {names[at]: float(mean[at]) for at in order}
    k, n = table.shape
    if k < 3 or n < 2:
        return Ranking(ranks, n, None, None)
    # Where no two methods differ anywhere the statistic is 0 / 0.
    same = bool((table == table[0]).all())
    p = 1.0 if same else float(stats.friedmanchisquare(*table).pvalue)
    return Ranking(ranks, n, p, critical_difference(k, n))


def critical_difference(methods: int, federations: int) -> float:
    """Nemenyi's critical difference of mean ranks, ``q sqrt(k (k + 1) / (6 N))``, with ``q`` the
    quantile of the studentised range of ``k`` values over ``sqrt 2``."""
    from scipy import stats

    q = float(stats.studentized_range.ppf(1 - LEVEL, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * federations))


# --- figures of a suite ---------------------------------------------------------------------------

Column = Literal["equal_work", "equal_bytes", "all_rounds"]
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, with the standard deviation (``n - 1``) of two or more, and those without
    a value."""

    mean: float
    sd: float | None
    missing: int = 0

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """The mean of those that are known; ``None`` if none is."""
        given = list(values)
        mean = mean_of_known(given)
        if mean is None:
            return None
        return cls(mean, deviation_of_known(given), given.count(None))


class SuiteFigures:
    """What the entries of one or several results files say."""

    def __init__(self, results: Results, entries: Sequence[Entry]) -> None:
        self.suite = Suite.model_validate(results["suite"])
        self.entries = entries
        self._by_key = {
            (entry["federation"], entry["method"], entry["settings"]): entry for entry in entries
        }
        self._tuned = {one["federation"] for one in entries if one["settings"] == TUNED}
        self._headlines: dict[str, Headline] = {}
        # Ours first, then those of merged files.
        self.methods = list(dict.fromkeys(entry["method"] for entry in entries))

    def entry(self, federation: Federation, method: str, settings: str) -> Entry | None:
        """The results of a method on a federation. Where no method was tuned, as where data drift,
        the tuned columns have those with defaults."""
        if settings == TUNED and federation.name not in self._tuned:
            settings = DEFAULTS
        return self._by_key.get((federation.name, method, settings))

    def headline(self, federation: Federation) -> Headline:
        """What runs on a federation are measured by."""
        # Asked for thousands of times for a page, and a configuration is checked for it.
        if federation.name not in self._headlines:
            tables = merged(self.suite.common, federation.tables)
            config = check({**tables, "algorithm": {"name": BASELINE}})
            self._headlines[federation.name] = task_headline(config)
        return self._headlines[federation.name]

    def figure(
        self, federation: Federation, method: str, settings: str, name: str
    ) -> Spread | None:
        """Any figure of a method's runs on a federation, also the seconds of the ``run`` or of
        ``grouping``; the mean over the seeds, ``None`` for a method that was not run."""
        found = self.entry(federation, method, settings)
        if found is None:
            return None
        return Spread.of({**run, **run["seconds"]}[name] for run in found["runs"])

    def ranking(self, settings: str, column: Column) -> Ranking | None:
        """The ranks of the methods that have a score on every federation; ``None`` for fewer than
        two of them."""
        values: dict[str, list[float]] = {}
        for method in self.methods:
            if method == ORACLE:
                continue
            scores = [self.gain(one, method, settings, column) for one in self.suite.federations]
            known = [score for score in scores if score is not None]
            if len(known) == len(scores):
                values[method] = known
        if len(values) < 2:
            return None
        return rank(values)

    def gain(
        self, federation: Federation, method: str, settings: str, column: Column
    ) -> float | None:
        """A method's mean score, negative where lower is better; ``None`` if it was not run with every
        seed."""
        found = self.entry(federation, method, settings)
        if found is None or len(found["runs"]) < len(self.suite.seeds):
            return None
        values = [run[column] for run in found["runs"]]
        # Who spends the whole budget before the first score comes last, and was run all the same.
        if None in values:
            return -math.inf
        return self.headline(federation).gain(statistics.fmean(values), over=0.0)

    @property
    def tuned(self) -> bool:
        """Whether settings were chosen for any method."""
        return any(entry["settings"] == TUNED for entry in self.entries)

    @cached_property
    def unranked(self) -> list[str]:
        """The methods that could not be run everywhere, and the oracle."""
        found = self.ranking(DEFAULTS, "equal_work")
        if found is None:
            return self.methods
        return [method for method in self.methods if method not in found.ranks]

    def best(self, federation: Federation, settings: str, column: Column) -> list[str]:
        """The methods with the best score on a federation; none where fewer than two have one."""
        scores = {
            method: self.gain(federation, method, settings, column)
            for method in self.methods
            if method != ORACLE
        }
        known = {method: score for method, score in scores.items() if score is not None}
        if len(known) < 2:
            return []
        most = max(known.values())
        return [method for method, score in known.items() if score == most]

    def relative(self, method: str, settings: str, name: str) -> float | None:
        """A figure as a multiple of FedAvg's with defaults, the mean over the federations."""
        found = []
        for federation in self.suite.federations:
            ours = self.figure(federation, method, settings, name)
            base = self.figure(federation, BASELINE, DEFAULTS, name)
            if ours is not None and base is not None and base.mean:
                found.append(ours.mean / base.mean)
        return mean_of_known(found)

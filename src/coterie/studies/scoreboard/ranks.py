"""Mean ranks of methods over federations, and which of them differ.

Demšar (2006), "Statistical comparisons of classifiers over multiple data sets": the test of Friedman
over all methods, and the critical difference of Nemenyi for two of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.05


@dataclass(frozen=True)
class Ranking:
    """The methods from the best to the worst.

    Args:
        p: of Friedman's test that all methods are alike; ``None`` for fewer than three methods or
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
    """Nemenyi's critical difference of mean ranks, ``q sqrt(k (k + 1) / (6 N))``.

    ``q`` is the quantile of the studentised range of ``k`` values over ``sqrt 2``.
    """
    q = float(stats.studentized_range.ppf(1 - LEVEL, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * federations))

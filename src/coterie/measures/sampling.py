"""Evaluation of a sample of the clients, with the standard error of what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.task import Metric, Sums
from coterie.measures.figures import number

Mask = NDArray[np.bool_]


# --- which clients --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluationSample:
    """The at most ``size`` clients that are scored in a round, where scoring all would take too
    long. One random order ``[N]`` holds for the whole run, so that rounds are compared on the same
    clients."""

    size: int
    order: IntArray

    @classmethod
    def of(cls, size: int, clients: int, key: Key) -> EvaluationSample:
        """A sample of some of so many clients."""
        # Another name of the stream would score other clients, and so change the accuracies.
        return cls(size, key.of("panel").generator().permutation(clients))

    def draw(self, testable: Mask, known: Mask) -> IntArray:
        """The clients of a round, ascending, at most ``size``: half of them with a group, half
        without, or more of one kind where the other has too few."""
        # Counted and not summed: a sum of ten million truth values takes ten times as long.
        grouped_count = int(np.count_nonzero(testable & known))
        ungrouped_count = int(np.count_nonzero(testable)) - grouped_count
        half = -(-self.size // 2)
        of_grouped = min(grouped_count, max(self.size - ungrouped_count, half))
        of_ungrouped = min(ungrouped_count, self.size - of_grouped)
        grouped = self._first(lambda ids: testable[ids] & known[ids], of_grouped)
        ungrouped = self._first(lambda ids: testable[ids] & ~known[ids], of_ungrouped)
        return np.sort(np.concatenate([grouped, ungrouped]))

    def _first(self, wanted: Callable[[IntArray], Mask], n: int) -> IntArray:
        """The first ``n`` clients of those wanted, in the run's order."""
        # Of a million clients a few thousand are enough to find some hundreds, so the search looks
        # at a longer and longer part of the order.
        length = 4 * max(n, 1)
        while True:
            part = self.order[:length]
            found = part[wanted(part)]
            if len(found) >= n or length >= len(self.order):
                return found[:n]
            length *= 4


# --- estimates ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stratum:
    """A simple random sample of ``clients``: ``correct [n]``, correct predictions or another sum of
    each one sampled, and its test samples ``size [n]``."""

    clients: int
    correct: FloatArray
    size: FloatArray

    @property
    def factor(self) -> float:
        """Clients that each one sampled stands for."""
        return self.clients / len(self.size)

    def variance(self, values: FloatArray) -> float:
        """The variance of the estimated sum of ``values`` over all clients, ``N^2 (1 - n/N) s^2 /
        n``: 0 where all clients were sampled, NaN where a single client stands for others."""
        n = len(values)
        if n == self.clients:
            return 0.0
        if n == 1:
            return float("nan")
        return self.clients**2 * (1 - n / self.clients) * float(values.var(ddof=1)) / n


def ratio_estimate(strata: list[Stratum]) -> tuple[float | None, float | None]:
    """Correct predictions over samples of all clients, and its standard error.

    ``R = sum_h N_h mean(c_h) / sum_h N_h mean(s_h)``; the error is that of the residuals ``c - R
    s`` (the linearised ratio estimator of a stratified sample; Cochran, Sampling Techniques, sec.
    6.3 and 6.10).

    Args:
        strata: those with clients, each with at least one sampled.

    Returns:
        Both ``None`` without clients; the error ``None`` where a stratum has one client for
        several.

    Example:
        >>> whole = Stratum(2, np.array([1.0, 3.0]), np.array([2.0, 4.0]))
        >>> ratio_estimate([whole])
        (0.6666666666666666, 0.0)
        >>> sampled = Stratum(100, np.array([1.0, 3.0]), np.array([2.0, 4.0]))
        >>> value, error = ratio_estimate([sampled])
        >>> round(value, 4), round(error, 4)
        (0.6667, 0.11)
    """
    total = sum(s.factor * float(s.size.sum()) for s in strata)
    if not total:
        return None, None
    value = sum(s.factor * float(s.correct.sum()) for s in strata) / total
    # Clients with many samples have many correct predictions, too; only the difference varies.
    residual_variance = sum(s.variance(s.correct - value * s.size) for s in strata)
    return value, number(np.sqrt(residual_variance) / total)


def mean_estimate(stratum: Stratum) -> tuple[float, float | None]:
    """The mean of the clients' own accuracies, and its standard error."""
    each = stratum.correct / stratum.size
    error = np.sqrt(stratum.variance(each)) / stratum.clients
    return float(each.mean()), number(error)


def sampling_errors(
    metric: Metric, sums: Sums, known: Mask, clients: tuple[int, int]
) -> dict[str, Any]:
    """How many clients were scored, the headline over all clients, and standard errors; a headline
    that is no mean over samples has none. ``clients``: how many testable ones have a group, and
    have none."""
    size = sums["size"]
    keys = metric.headline.keys
    if metric.total is None:
        return {"evaluated": len(size), keys.all: _estimated(metric, sums, known, clients)}
    total = metric.total(sums)
    grouped = _strata(total[known], size[known], clients[0])
    ungrouped = _strata(total[~known], size[~known], clients[1])
    value_all, all_error = ratio_estimate(grouped + ungrouped)
    # A kind of clients of which none was scored may have any value.
    if (clients[0] and not grouped) or (clients[1] and not ungrouped):
        all_error = None
    mean_error = None
    if grouped:
        mean_error = mean_estimate(grouped[0])[1]
    return {
        "evaluated": len(size),
        keys.all: value_all,
        keys.error: ratio_estimate(grouped)[1],
        f"{keys.all}_error": all_error,
        f"{keys.mean}_error": mean_error,
    }


def _estimated(metric: Metric, sums: Sums, known: Mask, clients: tuple[int, int]) -> float | None:
    """A metric over all clients, from sums in which each client counts for those it stands for."""
    stands_for = np.zeros(len(known))
    for kind, count in ((known, clients[0]), (~known, clients[1])):
        if kind.any():
            stands_for[kind] = count / kind.sum()
    weighted = {name: np.tensordot(stands_for, values, axes=1) for name, values in sums.items()}
    return number(float(metric.value(weighted)))


def estimate_for_all(
    values: FloatArray, size: FloatArray, known: Mask, clients: tuple[int, int]
) -> float | None:
    """A mean per test sample over all clients, from a sample of them.

    Args:
        values: ``[n]``, a sum over each scored client's test samples.
        clients: how many testable clients there are with a group and without.

    Example:
        >>> known = np.array([True, False])
        >>> estimate_for_all(np.array([4.0, 3.0]), np.array([4.0, 1.0]), known, (1, 4))
        2.0
    """
    grouped = _strata(values[known], size[known], clients[0])
    ungrouped = _strata(values[~known], size[~known], clients[1])
    return ratio_estimate(grouped + ungrouped)[0]


def _strata(correct: FloatArray, size: FloatArray, clients: int) -> list[Stratum]:
    """The stratum of one kind of clients, or none where none of them was sampled."""
    if not len(size):
        return []
    return [Stratum(clients, correct, size)]

"""Evaluation of a sample of the clients, with the standard error of what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EvaluationSample:
    """The clients that are asked first: one random order for the whole run, so that rounds can be
    compared.

    Args:
        size: clients scored in a round, at most.
        order: int64 ``[N]``, all clients in the order in which they are asked.

    Example:
        >>> panel = EvaluationSample.of(4, 10, Key(0))
        >>> ids = panel.draw(np.ones(10, bool), np.arange(10) < 3)
        >>> len(ids), int((ids < 3).sum())
        (4, 2)
    """

    size: int
    order: IntArray

    @classmethod
    def of(cls, size: int, clients: int, key: Key) -> EvaluationSample:
        """A panel of some of so many clients.

        Args:
            size: clients scored in a round, at most.
            clients: ``N``.
            key: the run's stream.
        """
        return cls(size, key.of("panel").generator().permutation(clients))

    def draw(self, testable: Mask, known: Mask) -> IntArray:
        """The clients of a round, ascending: half of them with a group, half without, or more where
        one kind is short.

        Args:
            testable: bool ``[N]``, who has test samples and is there.
            known: bool ``[N]``, who has a group.
        """
        inside = testable & known
        outside = testable & ~known
        many = int(inside.sum())
        others = int(outside.sum())
        half = min(many, max(self.size - others, -(-self.size // 2)))
        chosen = self._first(inside, half), self._first(outside, min(others, self.size - half))
        return np.sort(np.concatenate(chosen))

    def _first(self, wanted: Mask, n: int) -> IntArray:
        """The first ``n`` of those wanted, looking no further than it takes."""
        look = 4 * max(n, 1)
        while True:
            found = self.order[:look][wanted[self.order[:look]]]
            if len(found) >= n or look >= len(self.order):
                return found[:n]
            look *= 4


@dataclass(frozen=True, slots=True)
class Stratum:
    """What a simple random sample of some clients found.

    Args:
        clients: how many there are, sampled or not.
        correct: ``[n]``, correct predictions of each one sampled.
        size: ``[n]``, its test samples.
    """

    clients: int
    correct: FloatArray
    size: FloatArray

    @property
    def factor(self) -> float:
        """Clients that each one sampled stands for."""
        return self.clients / len(self.size)

    def variance(self, values: FloatArray) -> float:
        """The variance of the estimated sum of ``values`` over all clients, with the finite
        population's correction.

        ``N^2 (1 - n/N) s^2 / n``; NaN where a single client stands for others.
        """
        n = len(values)
        if n == self.clients:
            return 0.0
        if n > 1:
            return self.clients**2 * (1 - n / self.clients) * float(values.var(ddof=1)) / n
        return float("nan")


def ratio(strata: list[Stratum]) -> tuple[float | None, float | None]:
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
        >>> ratio([whole])
        (0.6666666666666666, 0.0)
        >>> value, error = ratio([Stratum(100, np.array([1.0, 3.0]), np.array([2.0, 4.0]))])
        >>> round(value, 4), round(error, 4)
        (0.6667, 0.11)
    """
    total = sum(s.factor * float(s.size.sum()) for s in strata)
    if not total:
        return None, None
    value = sum(s.factor * float(s.correct.sum()) for s in strata) / total
    error = np.sqrt(sum(s.variance(s.correct - value * s.size) for s in strata)) / total
    return value, _finite(error)


def mean(stratum: Stratum) -> tuple[float, float | None]:
    """The mean of the clients' own accuracies, and its standard error."""
    each = stratum.correct / stratum.size
    return float(each.mean()), _finite(np.sqrt(stratum.variance(each)) / stratum.clients)


def errors(
    correct: FloatArray, size: FloatArray, known: Mask, clients: tuple[int, int]
) -> dict[str, Any]:
    """What a round's row says of a panel beside the accuracies.

    Args:
        correct: ``[n]``, of the clients scored.
        size: ``[n]``, their test samples.
        known: bool ``[n]``, which have a group.
        clients: how many testable clients there are with a group and without.

    Returns:
        ``evaluated``: clients scored; ``accuracy_all`` over all clients, whatever the sample's
        shares; the standard errors ``accuracy_error``, ``accuracy_all_error`` (``None`` where
        nobody of one kind was scored) and ``accuracy_mean_error``.
    """
    strata = [
        Stratum(count, correct[mine], size[mine])
        for count, mine in zip(clients, (known, ~known), strict=True)
        if mine.any()
    ]
    whole, whole_error = ratio(strata)
    inside = [s for s in strata[:1] if known.any()]
    unseen = any(
        count and not mine.any() for count, mine in zip(clients, (known, ~known), strict=True)
    )
    return {
        "evaluated": len(size),
        "accuracy_all": whole,
        "accuracy_error": ratio(inside)[1],
        "accuracy_all_error": None if unseen else whole_error,
        "accuracy_mean_error": mean(inside[0])[1] if inside else None,
    }


def _finite(value: float) -> float | None:
    if np.isfinite(value):
        return float(value)
    return None

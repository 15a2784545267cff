"""How evenly a federation serves its clients: one number for each client, and what becomes of them.

`client_figures` is the one place where the values of single clients become figures of a row,
whichever model they were scored on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.core.task import Metric, Sums
from coterie.headline import Headline, Keys

QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}


def worst_tenth(values: FloatArray, headline: Headline) -> float:
    """The mean of the tenth of the clients that is served worst, of one client at least.

    Args:
        values: ``[n]``, one for each client, ``n >= 1``.
        headline: says which values are bad.

    Example:
        >>> worst_tenth(np.array([0.9, 0.5, 0.7]), Headline())
        0.5
        >>> worst_tenth(np.array([0.9, 0.5, 0.7]), Headline("mae", "lower"))
        0.9
    """
    ascending = np.sort(values)
    if headline.better == "lower":
        ascending = ascending[::-1]
    return float(ascending[: max(1, len(values) // 10)].mean())


def jain_index(values: FloatArray) -> float | None:
    """``J = (sum_i x_i)^2 / (n sum_i x_i^2)``: 1 where all clients have the same, ``1 / n`` where one
    has everything.

    ``None`` where it says nothing: for values below 0, and for zeros alone.

    Source: Jain, Chiu and Hawe, A Quantitative Measure of Fairness and Discrimination for Resource
    Allocation in Shared Computer Systems (1984).

    Example:
        >>> jain_index(np.array([0.5, 0.5])), jain_index(np.array([1.0, 0.0]))
        (1.0, 0.5)
    """
    squares = float((values**2).sum())
    if squares == 0 or (values < 0).any():
        return None
    return float(values.sum() ** 2 / (len(values) * squares))


def fairness(values: FloatArray, headline: Headline) -> dict[str, float | None]:
    """How evenly some clients are served.

    Args:
        values: ``[n]``, the headline of each client, ``n >= 1``.
        headline: what they are values of.

    Returns:
        ``worst_tenth``, see `worst_tenth`; ``spread``, the standard deviation over the clients (by
        ``n``: they are all the clients, not a sample of them); ``jain``, see `jain_index`.

    Example:
        >>> fairness(np.array([0.75, 0.25]), Headline())
        {'worst_tenth': 0.25, 'spread': 0.25, 'jain': 0.8}
    """
    return {
        "worst_tenth": worst_tenth(values, headline),
        "spread": float(values.std()),
        "jain": jain_index(values),
    }


def client_figures(metric: Metric, sums: Sums, keys: Keys) -> dict[str, Any]:
    """Mean, quantiles and fairness of a metric over clients of any size, as a row has them.

    Args:
        metric: of the task.
        sums: of each client, ``[n, *shape]``.
        keys: the names of the figures.

    Returns:
        ``None`` for each of them where no client has a value.
    """
    own = metric.value(sums)
    own = own[np.isfinite(own)]
    if not len(own):
        return {keys.mean: None, keys.quantiles: None, keys.fairness: None}
    quantiles = np.quantile(own, list(QUANTILES.values()))
    return {
        keys.mean: float(own.mean()),
        keys.quantiles: dict(zip(QUANTILES, quantiles.tolist(), strict=True)),
        keys.fairness: fairness(own, metric.headline),
    }

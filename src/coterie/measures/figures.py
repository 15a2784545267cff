"""From the sums of clients to the figures of a row: over all their samples, over the clients, and how
evenly these are served.

`client_figures` is the one place where the values of single clients become figures of a row,
whichever model they were scored on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.core.engine import Reply
from coterie.core.task import Metric, Sums, Task
from coterie.headline import Headline, Keys

QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}


def worst_tenth(values: FloatArray, headline: Headline) -> float:
    """The mean of the tenth of the clients that is served worst, of one client at least."""
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
    """
    squares = float((values**2).sum())
    if squares == 0 or (values < 0).any():
        return None
    return float(values.sum() ** 2 / (len(values) * squares))


def fairness(values: FloatArray, headline: Headline) -> dict[str, float | None]:
    """How evenly some clients are served."""
    return {
        "worst_tenth": worst_tenth(values, headline),
        # By `n`: they are all the clients, not a sample of them.
        "spread": float(values.std()),
        "jain": jain_index(values),
    }


def client_figures(metric: Metric, sums: Sums, keys: Keys) -> dict[str, Any]:
    """Mean, quantiles and fairness of a metric over clients of any size, as a row has them; from
    the sums of each client, ``[n, *shape]``. ``None`` where no client has a value."""
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


def scored_figures(metric: Metric, sums: Sums, keys: Keys) -> dict[str, Any]:
    """The headline over all samples of the clients that were scored, ``None`` if none was, and what
    `client_figures` finds of the sums of each client, ``[n, *shape]``."""
    value = None
    if len(sums["size"]):
        value = number(metric.value({name: each.sum(axis=0) for name, each in sums.items()}))
    return {keys.value: value, **client_figures(metric, sums, keys)}


def own_sums(reply: Reply, task: Task) -> Sums:
    """The sums of each client under the one model that it was scored on, ``[n, *shape]``."""
    sums = {name: reply.fields[name][:, 0].astype(np.float64) for name, _ in task.sums}
    return {**sums, "size": reply.size.astype(np.float64)}


def number(value: Any) -> float | None:
    """A value as a row has it: ``None`` where it is undefined."""
    if np.isfinite(value):
        return float(value)
    return None

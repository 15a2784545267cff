"""What is read off a run's rows and summary, in the units of the papers' tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coterie.measures.costs import rounds_to_target
from coterie.studies.reproduce.tables import How

Rows = Sequence[Mapping[str, Any]]
Metric = Callable[[Rows, Mapping[str, Any], float], float | None]


def _percent(fraction: float | None) -> float | None:
    if fraction is None:
        return None
    return 100 * fraction


def _all_known(rows: Rows) -> list[float]:
    """Accuracies of the rounds in which all clients that ever have a group have one."""
    most = max((row.get("clients_assigned", 0) for row in rows), default=0)
    scored = [
        r for r in rows if r.get("accuracy") is not None and r.get("clients_assigned", 0) == most
    ]
    return [row["accuracy"] for row in scored]


def median_accuracy(rows: Rows) -> float | None:
    """Median accuracy of the rounds in which all clients are known, in percent.

    Example:
        >>> median_accuracy([{"accuracy": a, "clients_assigned": n} for a, n in [(0.9, 1), (0.5, 2), (0.7, 2)]])
        60.0
    """
    known = _all_known(rows)
    if known:
        return _percent(statistics.median(known))
    return None


def mean_local(rows: Rows) -> float | None:
    """Mean of the clients' own accuracies in the last evaluated round, in percent."""
    found = [row["accuracy_mean"] for row in rows if row.get("accuracy_mean") is not None]
    if found:
        return _percent(found[-1])
    return None


def _discrepancies(rows: Rows) -> list[float]:
    return [row["discrepancy"] for row in rows if row.get("discrepancy") is not None]


def _mean(values: Sequence[float]) -> float | None:
    if values:
        return statistics.fmean(values)
    return None


METRICS: Mapping[str, Metric] = {
    "max": lambda rows, summary, target: _percent(summary["accuracy"]["max"]),
    "last10": lambda rows, summary, target: _percent(summary["accuracy"]["last10_mean"]),
    "median": lambda rows, summary, target: median_accuracy(rows),
    "mean_local": lambda rows, summary, target: mean_local(rows),
    "rounds_to": lambda rows, summary, target: rounds_to_target(rows, target),
    "discrepancy_mean": lambda rows, summary, target: _mean(_discrepancies(rows)),
    "discrepancy_var": lambda rows, summary, target: statistics.pvariance(
        _discrepancies(rows) or [0.0]
    ),
    "cpd": lambda rows, summary, target: _mean(
        [r["cpd"]["label"] for r in rows if (r.get("cpd") or {}).get("label")]
    ),
    "transfers": lambda rows, summary, target: float(sum(r["transfers"]["flexcfl"] for r in rows)),
}


def compared(how: How, own: float, other: float) -> float:
    """A metric against that of another run.

    Example:
        >>> compared("difference", 95, 90), compared("ratio", 3, 2), compared("reduction", 1, 4)
        (5, 1.5, 75.0)
    """
    if how == "difference":
        return own - other
    if how == "ratio":
        return own / other
    return 100 * (1 - own / other)

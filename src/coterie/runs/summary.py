"""The figures of a run: what ``summary.json`` holds."""

from __future__ import annotations

import platform
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from coterie.headline import ACCURACY, Headline
from coterie.runs.scores import ways_of


@dataclass(frozen=True, slots=True)
class Kept:
    """How many values stay with the clients of a run, of how many of the whole model, as its
    summary says it."""

    layers: tuple[str, ...]
    values: int
    of: int


def summarise(
    resolved: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    clients: int,
    headline: Headline = ACCURACY,
    kept: Kept | None = None,
) -> dict[str, Any]:
    """What ``summary.json`` holds; ``None`` where nothing was evaluated.

    ``accuracy.max`` is over the rounds in which as many clients had a group as ever will, since
    earlier ones score only some of the clients (FlexCFL, section 5.1), and with real clients over
    those that scored all whom the last one scored; over all rounds if none of those was evaluated.
    ``accuracy.final`` is that of the last evaluated round, ``accuracy.last10_mean`` the mean of the
    last ten. Another task has its headline in the place of ``accuracy``, and ``min`` if lower is
    better.

    ``accuracy_adapted`` and its like have the same three figures. ``fairness`` is that of the last
    evaluated round for each of them, and ``protocol`` says which model, clients and samples they
    are of.
    """
    last: Mapping[str, Any] = {}
    if rows:
        last = rows[-1]
    sizes = list(last.get("sizes", []))
    layers: tuple[str, ...] = ()
    if kept is not None:
        layers = kept.layers
    ways = ways_of(resolved, headline, layers)
    summary: dict[str, Any] = {
        "algorithm": resolved["algorithm"]["name"],
        "dataset": resolved["data"]["source"],
        "partition": resolved["data"]["partition"]["kind"],
        "model": resolved["model"]["name"],
        "seed": resolved["seed"],
        "clients": clients,
        "rounds": len(rows),
        "complete": len(rows) == resolved["train"]["rounds"],
        "skipped": sum(bool(row.get("skipped")) for row in rows),
        "groups": len(sizes),
        "sizes": sizes,
        "agreement": last.get("agreement"),
        **{way.headline.name: figures_of(rows, way.headline) for way in ways},
        "fairness": {way.headline.name: _last_fairness(rows, way.headline) for way in ways},
        "protocol": {way.headline.name: way.protocol for way in ways},
        "seconds": _seconds([row.get("seconds", {}) for row in rows]),
        "transfers": _total(
            (row.get("transfers", {}) for row in rows), ("models", "down_bytes", "up_bytes")
        ),
        "refused": _total(row.get("refused", {}) for row in rows),
        "clipped": _total(row.get("clipped", {}) for row in rows),
        # The same seed gives the same bits with the same versions only.
        "versions": versions(),
    }
    return {**summary, **_of_some_runs(last, headline, kept)}


def _of_some_runs(last: Mapping[str, Any], headline: Headline, kept: Kept | None) -> dict[str, Any]:
    """What only some runs have in their summary."""
    found: dict[str, Any] = {}
    if kept is not None:
        found["personal"] = asdict(kept)
    if headline != ACCURACY:
        found["headline"] = headline.record()
    if last.get("privacy") is not None:
        found["privacy"] = {name: last["privacy"][name] for name in ("epsilon", "delta")}
    if last.get("share_error") is not None:
        found["share_error"] = float(last["share_error"])
    return found


def _last_fairness(
    rows: Sequence[Mapping[str, Any]], headline: Headline
) -> Mapping[str, float | None] | None:
    """Fairness over clients in the last round that was scored so; ``None`` without one."""
    found = [row.get(headline.keys.fairness) for row in rows]
    known = [one for one in found if one is not None]
    if not known:
        return None
    return known[-1]


def without_model(summary: Mapping[str, Any]) -> dict[str, float]:
    """The headlines of predictions that no model made, of a summary, by what makes them.

    Example:
        >>> without_model({"baseline": 0.5, "naive": {"persistence": 0.25}})
        {'without looking at the inputs': 0.5, 'persistence': 0.25}
    """
    found = {}
    if summary.get("baseline") is not None:
        found["without looking at the inputs"] = float(summary["baseline"])
    # A series has predictions that need its past alone.
    for name, value in summary.get("naive", {}).items():
        found[name] = float(value)
    return found


def covered(
    rows: Sequence[Mapping[str, Any]], headline: Headline = ACCURACY
) -> list[Mapping[str, Any]]:
    """The evaluated rounds in which all clients that ever have a group have one.

    Of real clients, some of which may be away, only the rounds count that scored all clients which the
    last one scored: without a client that is served badly a model looks better.

    Example:
        >>> rows = [{"accuracy": 0.9, "clients_assigned": 3}, {"accuracy": 0.8, "clients_assigned": 6}]
        >>> covered(rows)
        [{'accuracy': 0.8, 'clients_assigned': 6}]
    """
    most = max((row.get("clients_assigned", 0) for row in rows), default=0)
    found = [
        row
        for row in rows
        if row.get("clients_assigned", 0) == most and row.get(headline.name) is not None
    ]
    # Rows of simulations have no scores of single clients.
    last = set()
    if found:
        last = set(found[-1].get("client_scores") or ())
    return [row for row in found if "client_scores" not in row or last <= set(row["client_scores"])]


def figures_of(
    rows: Sequence[Mapping[str, Any]], headline: Headline = ACCURACY
) -> dict[str, float | None]:
    """The field ``accuracy`` of a summary, see `summarise`."""
    evaluated = [row[headline.name] for row in rows if row.get(headline.name) is not None]
    if not evaluated:
        return {headline.best_key: None, "final": None, "last10_mean": None}
    comparable = [row[headline.name] for row in covered(rows, headline)] or evaluated
    return {
        # The papers print the best, which is chosen on test data and so is too good; the mean of
        # the last ten rounds stands next to it.
        headline.best_key: headline.best(comparable),
        "final": evaluated[-1],
        "last10_mean": statistics.fmean(evaluated[-10:]),
    }


def _total(tables: Iterable[Mapping[str, Any]], names: Sequence[str] = ()) -> dict[str, Any]:
    total: Counter[str] = Counter(dict.fromkeys(names, 0))
    for one in tables:
        total.update(one)
    return dict(total)


def _seconds(tables: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    split = _total(
        tables, ("total", "training", "grouping", "aggregation", "evaluation", "start_up")
    )
    rounds = [one["total"] for one in tables if "total" in one]
    median = None
    if rounds:
        median = statistics.median(rounds)
    return {**split, "per_round_median": median}


def versions() -> dict[str, str]:
    """The versions that a run's bits depend on."""
    try:
        coterie = version("coterie")
    except PackageNotFoundError:  # a source tree that was never installed
        coterie = "0"
    return {
        "coterie": coterie,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }

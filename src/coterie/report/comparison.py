"""Series of runs against a baseline: the difference of their accuracies, and what each client
gained."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.measures.gains import Pair
from coterie.measures.seeds import overlap_of
from coterie.measures.verdict import FEDAVG, Candidate, Verdict, candidate, verdict
from coterie.report.series import Series, best_series
from coterie.report.view import RunView
from coterie.sweep.comparison import Difference, paired


def verdict_on(series: Sequence[Series]) -> Verdict | None:
    """Whether grouping is worth it; ``None`` where no series has groups."""
    if not any(one.grouped for one in series):
        return None
    if any(run.private for one in series for run in one.runs):
        return Verdict("unknown", missing="runs with [privacy] do not show single clients")
    headline = series[0].headline
    return verdict([_candidate(one) for one in series], headline)


def _candidate(series: Series) -> Candidate:
    runs = [
        (run.tables, len(run.rounds), run.client_table)
        for run in series.runs
        if run.client_table is not None
    ]
    # A run without a configuration is named like its algorithm.
    return candidate(series.name, series.first.algorithm or series.name.lower(), runs)


def baseline_of(series: Sequence[Series]) -> Series | None:
    """The bar of the verdict where there is one, else FedAvg, else the best series without groups;
    ``None`` without any."""
    found = verdict_on(series)
    if found is not None and found.bar:
        return next(one for one in series if one.name == found.bar)
    without_groups = [one for one in series if not one.grouped]
    named = [one for one in without_groups if one.first.algorithm == FEDAVG]
    return best_series(named or without_groups)


def paired_runs(ours: Series, theirs: Series) -> list[tuple[RunView, RunView]]:
    """The runs of two series over the same clients with the same data and seed."""
    # Pairs of the same seed have the same clients, samples and first model, so that what differs
    # between them is the method: the interval of their differences is far narrower.
    return [(a, b) for a in ours.runs for b in theirs.runs if _comparable(a, b)]


def _comparable(a: RunView, b: RunView) -> bool:
    return (
        a.seed == b.seed
        and a.clients == b.clients
        and a.data_id == b.data_id
        and (a.private or b.private or list(a.names) == list(b.names))
    )


def compared_over_all(ours: RunView, theirs: RunView) -> bool:
    """Whether two runs are to be compared over all clients, with a group or without.

    That is so where they scored different clients at the end, because one of them left clients
    without a group.

    Example:
        >>> import numpy as np
        >>> row = {"round": 0, "accuracy": 0.9, "accuracy_all": 0.6, "clients_assigned": 1}
        >>> one = RunView("a", [row], np.array([0, -1]), "xy")
        >>> both = RunView("b", [{**row, "clients_assigned": 2}], np.zeros(2, int), "xy")
        >>> compared_over_all(one, both), compared_over_all(one, one)
        (True, False)
    """
    a = ours.last_evaluated
    b = theirs.last_evaluated
    key = ours.headline.keys.all
    if a.get(key) is None or b.get(key) is None:
        return False
    return bool(a.get("clients_assigned") != b.get("clients_assigned"))


def paired_accuracies(ours: Series, theirs: Series) -> list[tuple[float, float]]:
    """The final accuracies of every pair of runs, over the same clients."""
    found = []
    for a, b in paired_runs(ours, theirs):
        if a.accuracies and b.accuracies:
            keys = a.headline.keys
            name = keys.all if compared_over_all(a, b) else keys.value
            found.append((float(a.last_evaluated[name]), float(b.last_evaluated[name])))
    return found


def final_difference(ours: Series, theirs: Series) -> Difference | None:
    """Paired difference of the final accuracies, by seed; ``None`` without a pair of runs over the
    same clients."""
    overlap = overlap_of(run.split for run in ours.runs)
    return paired([a - b for a, b in paired_accuracies(ours, theirs)], overlap)


def paired_clients(ours: Series, theirs: Series) -> list[Pair]:
    """The clients of every pair of runs that have figures of them."""
    found = []
    for a, b in paired_runs(ours, theirs):
        one, other = a.client_table, b.client_table
        if one is not None and other is not None and list(one.names) == list(other.names):
            found.append((one, other))
    # Seeds may divide the data among other clients.
    return [pair for pair in found if list(pair[0].names) == list(found[0][0].names)]

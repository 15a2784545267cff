"""The charts of a page as tables, for those who do not read charts: a dozen rows of text each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.core.groups import NO_GROUP
from coterie.headline import Headline
from coterie.report.charts.clients import label_names
from coterie.report.charts.costs import PARTS, Seconds, bytes_moved
from coterie.report.charts.events import all_events
from coterie.report.charts.gains import Gain
from coterie.report.charts.rounds import AGREEMENT_NAMES, DIVERGENCE_NAMES
from coterie.report.charts.style import PERCENT, group_name
from coterie.report.comparison import least_gain
from coterie.report.series import CurvePoint, Series, thinned
from coterie.report.tree import Tree
from coterie.report.view import RunView, displayed_round
from coterie.terminal import amount

Table = tuple[list[str], list[list[Any]]]
MOST_ROWS = 12
MOST_COLUMNS = 12
MOST_NAMES = 12
MOST_CLIENTS = 100  # of a table of gains; of more, those that lost most and those that won most


def accuracy_table(series: Sequence[Series]) -> Table:
    """Accuracy of each series in a dozen rounds; with several seeds, the lowest and highest beside
    the mean."""
    curves = [{point.round: point for point in one.curve()} for one in series]
    rounds = thinned(sorted({round for curve in curves for round in curve}), MOST_ROWS)
    rows = []
    for round in rounds:
        cells = [_value(curve.get(round), one) for curve, one in zip(curves, series, strict=True)]
        rows.append([str(displayed_round(round)), *cells])
    return ["round", *(one.name for one in series)], rows


def _value(point: CurvePoint | None, series: Series) -> str:
    if point is None:
        return "-"
    headline = series.headline
    if not series.many_seeds:
        return headline.text(point.mean)
    low = headline.short(point.low)
    high = headline.short(point.high)
    return f"{headline.text(point.mean)} ({low} to {high})"


def bytes_table(series: Sequence[Series]) -> Table:
    """Bytes and accuracy at a quarter, at half and at the end of each series."""
    rows = []
    for one in series:
        moved = bytes_moved(one.first)
        accuracy = {point.round: point.mean for point in one.curve()}
        if moved is None or not accuracy:
            continue
        rounds = [int(row["round"]) for row in one.first.rounds]
        for part in (0.25, 0.5, 1.0):
            wanted = part * max(rounds)
            # Not every round is evaluated: the one that is nearest is shown.
            nearest = min(accuracy, key=lambda round: abs(round - wanted))
            until_then = moved[rounds.index(nearest)]
            number = str(displayed_round(nearest))
            rows.append(
                [one.name, number, amount(until_then), one.headline.text(accuracy[nearest])]
            )
    return ["run", "round", "bytes moved", series[0].headline.title], rows


def seconds_table(by_series: Mapping[str, Seconds]) -> Table:
    """Mean seconds of a round by part."""
    rows = [
        [name, *(f"{seconds[part]:.4f}" for part in PARTS)] for name, seconds in by_series.items()
    ]
    return ["run", *(f"{part}, s" for part in PARTS)], rows


def member_table(run: RunView) -> Table:
    """Sizes of the groups in a dozen rounds, and what happened until the next one."""
    rows = [row for row in run.rounds if "sizes" in row]
    kept = thinned(range(len(rows)), MOST_ROWS)
    groups = min(MOST_COLUMNS, max(len(row["sizes"]) for row in rows))
    cells = []
    for before, i in zip([-1, *kept], kept, strict=False):
        sizes = rows[i]["sizes"]
        # Groups come and go with CFL and FedClust; a table has the same columns throughout.
        shown = [*sizes, *[0] * groups][:groups]
        ungrouped = run.clients - sum(sizes)
        number = str(displayed_round(rows[i]["round"]))
        events = _events(rows[before + 1 : i + 1])
        cells.append([number, *map(str, shown), str(ungrouped), events])
    names = [group_name(group) for group in range(groups)]
    return ["round", *names, group_name(NO_GROUP), "since the row above"], cells


def _events(rows: Sequence[Mapping[str, Any]]) -> str:
    clients: dict[str, int] = {}
    for event in all_events(rows):
        clients[event.name] = clients.get(event.name, 0) + (event.clients or 0)
    return ", ".join(f"{count} {name}" for name, count in clients.items()) or "-"


def client_table(run: RunView) -> Table:
    """The clients of each group, the first of them by name."""
    rows = []
    for group in np.unique(run.groups):
        members = np.flatnonzero(run.groups == group)
        names = ", ".join(str(run.names[i]) for i in members[:MOST_NAMES])
        if len(members) > MOST_NAMES:
            names += ", ..."
        rows.append([group_name(int(group)), f"{len(members):,}", names])
    return ["group", "clients", "names"], rows


def mix_table(run: RunView) -> Table:
    """The labels that most samples of each group carry."""
    assert run.histograms is not None
    names = label_names(run)
    rows = []
    for group in np.unique(run.groups):
        counts = run.histograms[run.groups == group].sum(axis=0)
        total = int(counts.sum())
        largest = np.argsort(-counts, kind="stable")[:MOST_COLUMNS]
        shares = [f"{names[c]} {PERCENT * counts[c] / total:.0f} %" for c in largest if counts[c]]
        rows.append([group_name(int(group)), f"{total:,}", ", ".join(shares)])
    return ["group", "samples", "largest labels"], rows


def shift_table(run: RunView) -> Table:
    """The rounds in which data changed, and what the method made of it."""
    changed = [row for row in run.rounds if row.get("changed") or row.get("migrations")]
    keys = ("changed", "migrations", "same_group", "missed")
    rows = []
    for row in _dozen(changed):
        counts = [str(row.get(key) or 0) for key in keys]
        rows.append([str(displayed_round(row["round"])), *counts])
    return ["round", "data changed", "moved to another group", "stayed", "missed"], rows


def _dozen(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [rows[i] for i in thinned(range(len(rows)), MOST_ROWS)]


def agreement_table(runs: Sequence[RunView]) -> Table:
    """Agreement with the planted groups in a dozen rounds."""
    return _measure_table(runs, "agreement", AGREEMENT_NAMES, ".2f")


def divergence_table(run: RunView) -> Table:
    """Divergence of the gradients in a dozen rounds."""
    return _measure_table([run], "theory", DIVERGENCE_NAMES, ".4g")


def _measure_table(
    runs: Sequence[RunView], measure: str, names: Mapping[str, str], digits: str
) -> Table:
    rows = []
    for run in runs:
        for row in _dozen([row for row in run.rounds if row.get(measure)]):
            values = [_number(row[measure].get(name), digits) for name in names]
            rows.append([run.name, str(displayed_round(row["round"])), *values])
    return ["run", "round", *names.values()], rows


def _number(value: float | None, digits: str) -> str:
    if value is None:
        return "-"
    return format(value, digits)


def merge_table(tree: Tree) -> Table:
    """The last merges of a tree, from the highest."""
    # The last merges are those that decide the groups.
    last = tree.links[::-1][:MOST_ROWS]
    rows = [[f"{distance:.4g}", f"{int(clients)}"] for *_, distance, clients in last]
    return ["distance at the merge", "clients under it"], rows


def distance_table(tree: Tree, groups: np.ndarray) -> Table:
    """Mean distance between the clients of two groups."""
    assert tree.proximity is not None
    of_leaves = groups[tree.leaves]
    known = [int(group) for group in np.unique(of_leaves)][:MOST_COLUMNS]
    rows = []
    for a in known:
        blocks = [tree.proximity[np.ix_(of_leaves == a, of_leaves == b)] for b in known]
        cells = [_mean(block, a == b) for b, block in zip(known, blocks, strict=True)]
        rows.append([group_name(a), *cells])
    return ["mean distance", *map(group_name, known)], rows


def _mean(block: FloatArray, same_group: bool) -> str:
    if same_group:
        # A client's distance to itself says nothing of its group.
        block = block[~np.eye(len(block), dtype=bool)]
    if not block.size:
        return "-"
    return f"{block.mean():.4g}"


def gain_table(rows: Sequence[Gain], headline: Headline) -> Table:
    """The clients by their gain, from the one that lost most; the middle of many is left out."""
    unit = f", {headline.unit}" if headline.unit else ""
    gained = f", {headline.step}" if headline.step else ""
    columns = ["client", "group", f"before{unit}", f"after{unit}", f"gain{gained}"]
    if len(rows) <= MOST_CLIENTS:
        return columns, [_gain_cells(row, headline) for row in rows]
    # Those who lose and those who win most are what the table is read for.
    half = MOST_CLIENTS // 2
    rest = [f"... {len(rows) - MOST_CLIENTS:,} more", "", "", "", ""]
    first = [_gain_cells(row, headline) for row in rows[:half]]
    last = [_gain_cells(row, headline) for row in rows[-half:]]
    return columns, [*first, rest, *last]


def _gain_cells(row: Gain, headline: Headline) -> list[Any]:
    gain = row["gain"]
    least = headline.scale * least_gain(headline)
    css_class = "figure"
    if gain > least:
        css_class = "good"
    elif gain < -least:
        css_class = "bad"
    # These are in the unit already, as the charts have them.
    before = format(row["before"], headline.format)
    after = format(row["after"], headline.format)
    gained = format(gain, f"+{headline.format}")
    return [row["client"], row["group"], before, after, (gained, css_class)]

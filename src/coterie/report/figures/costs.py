"""What runs cost: accuracy by bytes moved, and where the seconds of a round went.

Accuracy stands for whatever the runs' headline is.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.figures.accuracy import series_colour, value_scale
from coterie.report.figures.style import (
    GROUPS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    to_spec,
    tooltip,
)
from coterie.report.render import Chart, Section, Table
from coterie.report.series import Series
from coterie.report.view import RunView, displayed_round
from coterie.terminal import amount, number_text

MEASURED = ("training", "grouping", "aggregation", "evaluation")
PARTS = (*MEASURED, "other")
PART_COLOURS = (GROUPS[0], GROUPS[1], GROUPS[2], GROUPS[4], RUNS[0])
Seconds = Mapping[str, float]  # of a round, by what they went into
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}
NOTE = (
    "How the result changes with the bytes that all clients have received and sent, and how the "
    "time of a round was spent on the machine of the run. Start-up (importing libraries, compiling "
    "code, starting processes) happens once and is not included; the table shows its seconds."
)


def cost_section(series: Sequence[Series]) -> list[Section]:
    """Bytes and seconds, where the runs counted them."""
    charts: list[Chart] = []
    by_bytes = bytes_chart(series)
    if by_bytes is not None:
        title = f"{series[0].headline.capital} by bytes"
        table = bytes_table(series)
        charts.append({"id": "bytes", "spec": by_bytes, "table": table, "title": title})
    found = {one.name: seconds_by_part(one) for one in series}
    seconds = {name: parts for name, parts in found.items() if parts is not None}
    if seconds:
        start_up = {one.name: start_up_of(one) for one in series if one.name in seconds}
        table = seconds_table(seconds, start_up)
        spec = time_chart(seconds)
        charts.append({"id": "time", "spec": spec, "table": table, "title": "Seconds per round"})
    if not charts:
        return []
    return [{"title": "What it costs", "definitions": NOTE, "charts": charts, "wide": True}]


# --- bytes ----------------------------------------------------------------------------------------


def bytes_moved(run: RunView) -> list[float] | None:
    """Bytes down and up until the end of each round; ``None`` for a run that did not count them.

    Example:
        >>> import numpy as np
        >>> rows = [{"round": t, "transfers": {"down_bytes": 8, "up_bytes": 2}} for t in range(2)]
        >>> bytes_moved(RunView("a", rows, np.zeros(1, int), "x"))
        [10.0, 20.0]
    """
    by_round = []
    for row in run.rounds:
        moved = row.get("transfers") or {}
        if "down_bytes" not in moved:
            return None
        by_round.append(float(moved["down_bytes"] + moved["up_bytes"]))
    return list(itertools.accumulate(by_round)) or None


def bytes_chart(series: Sequence[Series]) -> Spec | None:
    """Accuracy by the bytes that all clients have received and sent until then, means over
    seeds."""
    rows = [row for one in series for row in _accuracy_by_bytes(one)]
    if not rows:
        return None
    most = max(row["bytes"] for row in rows)
    unit = next((unit for unit, size in UNITS.items() if most >= size), "B")
    for row in rows:
        # A number that the axis can show, and the text that the tooltip shows.
        moved = row.pop("bytes")
        row["moved"] = moved / UNITS[unit]
        row["amount"] = amount(moved)
    title = f"moved down and up, {unit}"
    across = alt.X("moved:Q", title=title, axis=alt.Axis(grid=False, ticks=False, tickCount=6))
    headline = series[0].headline
    scale = value_scale([row["accuracy"] for row in rows], headline)
    lines = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2.2, point=TOOLTIP_POINTS)
        .encode(
            across,
            alt.Y("accuracy:Q", title=headline.axis, scale=scale),
            color=series_colour(series),
            # Without an order Vega joins the points by their place on the axis. Rounds that move
            # no bytes share a place.
            order=alt.Order("round:Q"),
            tooltip=tooltip(
                "run:N",
                "round:Q",
                alt.Tooltip("amount:N", title="moved"),
                alt.Tooltip("accuracy:Q", format=headline.format, title=headline.axis),
            ),
        )
    )
    return to_spec(lines, 260)


def _accuracy_by_bytes(one: Series) -> list[dict[str, Any]]:
    moved = []
    for run in one.runs:
        of_run = bytes_moved(run)
        if of_run is None:
            return []
        moved.append(of_run)
    mean_moved = {point.round: point.mean for point in one.curve(moved)}
    return [
        {
            "run": one.name,
            "round": displayed_round(point.round),
            "bytes": mean_moved[point.round],
            "accuracy": one.headline.scale * point.mean,
        }
        for point in one.curve()
        if point.round in mean_moved
    ]


def bytes_table(series: Sequence[Series]) -> Table:
    """Bytes and accuracy at a quarter, at half and at the end of each series."""
    rows = []
    for one in series:
        points = _accuracy_by_bytes(one)
        for part in (0.25, 0.5, 1.0) if points else ():
            wanted = part * len(one.first.rounds)
            # Not every round is evaluated: the one that is nearest is shown.
            nearest = min(points, key=lambda point: abs(point["round"] - wanted))
            value = one.headline.text(nearest["accuracy"] / one.headline.scale)
            rows.append([one.name, str(nearest["round"]), amount(nearest["bytes"]), value])
    return ["run", "round", "bytes moved", series[0].headline.title], rows


# --- seconds --------------------------------------------------------------------------------------


def seconds_by_part(one: Series) -> Seconds | None:
    """Mean seconds of a round by what they went into, over all rounds and seeds; ``None`` where
    they were not kept."""
    rows = [
        row["seconds"]
        for run in one.runs
        for row in run.rounds
        if "training" in row.get("seconds", {})
    ]
    if not rows:
        return None
    known = {name: statistics.fmean(row.get(name, 0.0) for row in rows) for name in MEASURED}
    total = statistics.fmean(row["total"] for row in rows)
    # The parts are measured apart from the total, so their sum can be a little more than it.
    return {**known, "other": max(0.0, total - sum(known.values()))}


def start_up_of(one: Series) -> float | None:
    """Mean seconds of start-up of a run; ``None`` where they were not kept."""
    known = [
        sum(row["seconds"].get("start_up", 0.0) for row in run.rounds)
        for run in one.runs
        if any("start_up" in row.get("seconds", {}) for row in run.rounds)
    ]
    if not known:
        return None
    return statistics.fmean(known)


def time_chart(by_series: Mapping[str, Seconds]) -> Spec:
    """Mean seconds of a round, a bar per series, by what they went into."""
    names = list(by_series)
    rows = [
        {"run": name, "part": part, "seconds": seconds[part], "order": i}
        for name, seconds in by_series.items()
        for i, part in enumerate(PARTS)
    ]
    colour = colour_by("part", PARTS, PART_COLOURS, None)
    colour.legend = alt.Legend(columns=3)
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar(height={"band": 0.7})
        .encode(
            # Names of series can be sentences; the whole name is in the tooltip.
            alt.Y("run:N", title=None, sort=names, axis=alt.Axis(labelLimit=150)),
            alt.X("seconds:Q", title="seconds per round, mean", axis=alt.Axis(tickCount=5)),
            colour,
            order=alt.Order("order:Q"),
            tooltip=tooltip("run:N", "part:N", alt.Tooltip("seconds:Q", format=".4f")),
        )
    )
    return to_spec(bars, 34 * len(names) + 24)


def seconds_table(by_series: Mapping[str, Seconds], start_up: Mapping[str, float | None]) -> Table:
    """Mean seconds of a round by part, and of the start-up of a run."""
    rows = [
        [name, *(f"{seconds[part]:.4f}" for part in PARTS), number_text(start_up[name], ".1f")]
        for name, seconds in by_series.items()
    ]
    return ["run", *(f"{part}, s" for part in PARTS), "start-up of a run, s"], rows

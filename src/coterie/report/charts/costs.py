"""What runs cost: accuracy by bytes moved, and where the seconds of a round went.

Used by the section "What it costs" (`coterie.report.sections.overview`); the tables beside the
charts are in `coterie.report.chart_tables`. Accuracy stands for whatever the runs' headline is.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.charts.accuracy import series_colour, value_scale
from coterie.report.charts.style import (
    GROUPS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    to_spec,
)
from coterie.report.series import Series
from coterie.report.view import RunView, displayed_round
from coterie.terminal import amount

MEASURED = ("training", "grouping", "aggregation", "evaluation")
PARTS = (*MEASURED, "other")
PART_COLOURS = (GROUPS[0], GROUPS[1], GROUPS[2], GROUPS[4], RUNS[0])
Seconds = Mapping[str, float]  # of a round, by what they went into
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}


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
    unit = _unit(max(row["bytes"] for row in rows))
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
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("round:Q"),
                alt.Tooltip("amount:N", title="moved"),
                alt.Tooltip("accuracy:Q", format=headline.format, title=headline.axis),
            ],
        )
    )
    return to_spec(lines, 260)


def _unit(most: float) -> str:
    for unit, size in UNITS.items():
        if most >= size:
            return unit
    return "B"


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


def seconds_by_series(series: Sequence[Series]) -> dict[str, Seconds]:
    """`seconds_by_part` of the series that kept them, by their names."""
    found = {one.name: seconds_by_part(one) for one in series}
    return {name: seconds for name, seconds in found.items() if seconds is not None}


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
            alt.X("seconds:Q", title="seconds a round, mean", axis=alt.Axis(tickCount=5)),
            colour,
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("part:N"),
                alt.Tooltip("seconds:Q", format=".4f"),
            ],
        )
    )
    return to_spec(bars, 34 * len(names) + 24)

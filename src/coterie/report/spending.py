"""Charts of what runs cost: accuracy by bytes moved, and where the seconds of a round went."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.charts import POINTS, _room, _run_colour
from coterie.report.colours import GROUPS, RUNS, Spec, colour, finished
from coterie.report.series import Series
from coterie.report.view import RunView, displayed
from coterie.terminal import amount

PARTS = ("training", "grouping", "aggregation", "evaluation", "other")
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def bytes_moved(run: RunView) -> list[float] | None:
    """Bytes down and up until the end of each round; ``None`` for a run that did not count them.

    Example:
        >>> import numpy as np
        >>> rows = [{"round": t, "transfers": {"down_bytes": 8, "up_bytes": 2}} for t in range(2)]
        >>> bytes_moved(RunView("a", rows, np.zeros(1, int), "x"))
        [10.0, 20.0]
    """
    moved = [row.get("transfers") for row in run.rounds]
    if not moved or any(not one or "down_bytes" not in one for one in moved):
        return None
    return list(
        itertools.accumulate(float(one["down_bytes"] + one["up_bytes"]) for one in moved if one)
    )


def bytes_chart(series: Sequence[Series]) -> Spec | None:
    """Accuracy by the bytes that all clients have received and sent until then, means over
    seeds."""
    rows = [row for one in series for row in _by_bytes(one)]
    if not rows:
        return None
    unit, size = next(
        ((u, s) for u, s in UNITS if max(row["bytes"] for row in rows) >= s), UNITS[-1]
    )
    for row in rows:
        row["moved"], row["said"] = row["bytes"] / size, amount(row.pop("bytes"))
    scale = alt.Scale(domain=_room([row["accuracy"] for row in rows]))
    lines = (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2.2, point={"size": 60, "opacity": 0, "tooltip": True})
        .encode(
            alt.X(
                "moved:Q",
                title=f"moved down and up, {unit}",
                axis=alt.Axis(grid=False, ticks=False, tickCount=6),
            ),
            alt.Y("accuracy:Q", title="accuracy, %", scale=scale),
            color=_run_colour(series),
            order="round:Q",
            tooltip=["run:N", "round:Q", alt.Tooltip("said:N", title="moved"), _accuracy()],
        )
    )
    return finished(lines, 260)


def _accuracy() -> alt.Tooltip:
    return alt.Tooltip("accuracy:Q", format=".1f", title="accuracy, %")


def _by_bytes(one: Series) -> list[dict[str, Any]]:
    every = [bytes_moved(run) for run in one.runs]
    if any(moved is None for moved in every):
        return []
    at = {
        point["round"]: point["mean"]
        for point in one.curve([list(moved) for moved in every if moved])
    }
    return [
        {
            "run": one.name,
            "round": displayed(int(point["round"])),
            "bytes": at[point["round"]],
            "accuracy": POINTS * point["mean"],
        }
        for point in one.curve()
        if point["round"] in at
    ]


def split(one: Series) -> Mapping[str, float] | None:
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
    known = {name: statistics.fmean(row.get(name, 0.0) for row in rows) for name in PARTS[:-1]}
    total = statistics.fmean(row["total"] for row in rows)
    return {**known, "other": max(0.0, total - sum(known.values()))}


def time_chart(series: Sequence[Series]) -> Spec | None:
    """Mean seconds of a round, a bar per series, by what they went into."""
    known = {one.name: parts for one in series if (parts := split(one)) is not None}
    if not known:
        return None
    rows = [
        {"run": name, "part": part, "seconds": parts[part], "order": at}
        for name, parts in known.items()
        for at, part in enumerate(PARTS)
    ]
    shades = colour(
        "part", list(PARTS), (GROUPS[0], GROUPS[1], GROUPS[2], GROUPS[4], RUNS[0]), None
    )
    shades.legend = alt.Legend(columns=3)
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar(height={"band": 0.7})
        .encode(
            alt.Y("run:N", title=None, sort=list(known), axis=alt.Axis(labelLimit=150)),
            alt.X("seconds:Q", title="seconds a round, mean", axis=alt.Axis(tickCount=5)),
            shades,
            order="order:Q",
            tooltip=["run:N", "part:N", alt.Tooltip("seconds:Q", format=".4f")],
        )
    )
    return finished(bars, 34 * len(known) + 24)

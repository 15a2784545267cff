"""Who wins and who loses: each client's accuracy before and after grouping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.report.colours import Spec, finished, group_colour, group_name
from coterie.report.series import gains
from coterie.report.view import RunView

LISTED = 100  # clients of a table; of more, those that lost most and those that won most
CAP = 0.0005
STEPS = (0.618034, 0.754878)  # of the moves of marks, which fill a square evenly


def gain_chart(run: RunView, base: RunView) -> Spec:
    """What each client gained, from the one that lost most to the one that won most."""
    rows = ranked(run, base)
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .transform_calculate(left="datum.rank - 0.5", right="datum.rank + 0.5", zero="0")
        .mark_rect()
        .encode(
            alt.X(
                "left:Q",
                title=f"{len(rows)} clients, in order of their gain",
                scale=_ranks(len(rows)),
                axis=_bare(),
            ),
            alt.Y("gain:Q", title=f"gain over {base.name}, points"),
            group_colour(run.groups),
            x2="right:Q",
            y2="zero:Q",
            tooltip=_tooltip(),
        )
    )
    zero = alt.Chart(pd.DataFrame([{"gain": 0}])).mark_rule(opacity=0.8).encode(y="gain:Q")
    return finished(alt.layer(bars, zero), 240)


def _ranks(count: int) -> alt.Scale:
    return alt.Scale(domain=[-0.5, count - 0.5], nice=False)


def _bare() -> alt.Axis:
    return alt.Axis(labels=False, ticks=False, grid=False)


def _tooltip() -> list[Any]:
    percent = {"before": "before, %", "after": "after, %"}
    figures = [
        alt.Tooltip(f"{name}:Q", format=".1f", title=title) for name, title in percent.items()
    ]
    return [
        "client:N",
        "group:N",
        *figures,
        alt.Tooltip("gain:Q", format="+.1f", title="gain, points"),
    ]


def scatter_chart(run: RunView, base: RunView) -> Spec:
    """Each client's accuracy under both: above the line it won. Marks are moved by up to a point,
    so that many show."""
    rows = ranked(run, base)
    for row in rows:
        along, up = (row["rank"] * step % 1 - 0.5 for step in STEPS)
        row["x"], row["y"] = round(row["before"] + 2 * along, 2), round(row["after"] + 2 * up, 2)
    ends = alt.Scale(domain=[-3, 103], nice=False)
    ticks = alt.Axis(values=[0, 20, 40, 60, 80, 100])
    points = (
        alt.Chart(pd.DataFrame(rows))
        .mark_point(filled=True, size=70 if len(rows) <= 200 else 34, opacity=0.75)
        .encode(
            alt.X("x:Q", title=f"accuracy under {base.name}, %", scale=ends, axis=ticks),
            alt.Y("y:Q", title=f"accuracy under {run.name}, %", scale=ends, axis=ticks),
            group_colour(run.groups),
            tooltip=_tooltip(),
        )
    )
    line = pd.DataFrame([{"x": 0, "y": 0}, {"x": 100, "y": 100}])
    same = alt.Chart(line).mark_line(
        strokeDash=[4, 4], strokeWidth=1.2, opacity=0.6, color="#838d99"
    )
    return finished(alt.layer(same.encode(x="x:Q", y="y:Q"), points), 300)


def ranked(run: RunView, base: RunView) -> list[dict[str, Any]]:
    """A row for each client that is known under both, by its gain in percentage points."""
    gained = gains(run, base)
    assert gained is not None
    assert run.each is not None
    assert base.each is not None
    known = np.flatnonzero(np.isfinite(gained))
    order = known[np.argsort(gained[known], kind="stable")]
    return [
        {
            "rank": rank,
            "client": str(run.names[i]),
            "group": group_name(int(run.groups[i])),
            "before": round(100 * float(base.each[i]), 2),
            "after": round(100 * float(run.each[i]), 2),
            "gain": round(100 * float(gained[i]), 2),
        }
        for rank, i in enumerate(order)
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table of the clients, from the one that lost most; the middle of many
    is left out."""
    half = LISTED // 2
    shown = rows if len(rows) <= LISTED else [*rows[:half], None, *rows[-half:]]
    columns = ["client", "group", "before, %", "after, %", "gain, points"]
    left = [f"... {len(rows) - LISTED:,} more", "", "", "", ""]
    return columns, [left if row is None else _cells(row) for row in shown]


def _cells(row: Mapping[str, Any]) -> list[Any]:
    gain = row["gain"]
    look = "good" if gain > 100 * CAP else "bad" if gain < -100 * CAP else "figure"
    return [
        row["client"],
        row["group"],
        f"{row['before']:.1f}",
        f"{row['after']:.1f}",
        (f"{gain:+.1f}", look),
    ]

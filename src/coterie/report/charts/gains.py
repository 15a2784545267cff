"""Who wins and who loses: each client's accuracy under a baseline and under a method with
groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.headline import Headline
from coterie.report.charts.style import Spec, colour_by_group, group_name, to_spec
from coterie.report.comparison import client_gains
from coterie.report.view import RunView

MANY_CLIENTS = 200  # beyond which their marks are smaller
# By how much marks are moved, so that clients with the same accuracies do not hide each other.
# Multiples of two such numbers, modulo 1, fill a square evenly, and are the same in every page.
JITTER_X = 0.618034
JITTER_Y = 0.754878
JITTER_POINTS = 2  # percentage points: the side of that square

Gain = dict[str, Any]  # of a client, of which charts and table are made


def ranked_gains(run: RunView, base: RunView) -> list[Gain]:
    """A row for each client that is known under both, by its gain in percentage points."""
    gains = client_gains(run, base)
    # The caller has chosen a pair of runs for which the clients' accuracies are known.
    assert gains is not None
    assert run.client_accuracy is not None
    assert base.client_accuracy is not None
    known = np.flatnonzero(np.isfinite(gains))
    # A stable order: clients with the same gain stay in the order of their numbers.
    order = known[np.argsort(gains[known], kind="stable")]
    factor = run.headline.scale
    digits = _digits(run.headline)
    return [
        {
            "rank": rank,
            "client": str(run.names[i]),
            "group": group_name(int(run.groups[i])),
            "before": round(factor * float(base.client_accuracy[i]), digits),
            "after": round(factor * float(run.client_accuracy[i]), digits),
            "gain": round(factor * float(gains[i]), digits),
        }
        for rank, i in enumerate(order)
    ]


def gain_chart(rows: Sequence[Gain], run: RunView, base: RunView) -> Spec:
    """What each client gained, from the one that lost most to the one that won most."""
    count = len(rows)
    across = alt.X(
        "left:Q",
        title=f"{count} clients, in order of their gain",
        scale=alt.Scale(domain=[-0.5, count - 0.5], nice=False),
        axis=alt.Axis(labels=False, ticks=False, grid=False),
    )
    # Rectangles that touch: as bars, a thousand clients would be all gaps.
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .transform_calculate(left="datum.rank - 0.5", right="datum.rank + 0.5", zero="0")
        .mark_rect()
        .encode(
            across,
            alt.Y("gain:Q", title=f"gain over {base.name}{_unit(run.headline.step)}"),
            colour_by_group(run.groups),
            x2=alt.X2("right:Q"),
            y2=alt.Y2("zero:Q"),
            tooltip=_tooltip(run.headline),
        )
    )
    zero = alt.Chart(pd.DataFrame([{"gain": 0}])).mark_rule(opacity=0.8).encode(y=alt.Y("gain:Q"))
    return to_spec(alt.layer(bars, zero), 240)


def scatter_chart(gains: Sequence[Gain], run: RunView, base: RunView) -> Spec:
    """Each client's accuracy under both: above the line it won.

    Marks are moved by up to a point, so that clients with the same accuracies are all seen.
    """
    headline = run.headline
    digits = _digits(headline)
    jitter = JITTER_POINTS if headline.unit == "%" else 0
    rows = []
    for row in gains:
        x = row["rank"] * JITTER_X % 1 - 0.5
        y = row["rank"] * JITTER_Y % 1 - 0.5
        moved_x = round(row["before"] + jitter * x, digits)
        moved_y = round(row["after"] + jitter * y, digits)
        rows.append({**row, "x": moved_x, "y": moved_y})
    size = 70 if len(rows) <= MANY_CLIENTS else 34
    points = (
        alt.Chart(pd.DataFrame(rows))
        .mark_point(filled=True, size=size, opacity=0.75)
        .encode(
            _value_axis(alt.X, "x:Q", f"{headline.title} under {base.name}", headline),
            _value_axis(alt.Y, "y:Q", f"{headline.title} under {run.name}", headline),
            colour_by_group(run.groups),
            tooltip=_tooltip(headline),
        )
    )
    ends = [0.0, 100.0]
    if headline.unit != "%":
        values = [row[name] for row in rows for name in ("before", "after")]
        ends = [min(values), max(values)]
    diagonal = alt.Chart(pd.DataFrame([{"x": end, "y": end} for end in ends])).mark_line(
        strokeDash=[4, 4], strokeWidth=1.2, opacity=0.6, color="#838d99"
    )
    return to_spec(alt.layer(diagonal.encode(x=alt.X("x:Q"), y=alt.Y("y:Q")), points), 300)


def _digits(headline: Headline) -> int:
    """Digits behind the point of a value in the page: of percents two are more than are shown."""
    return 2 if headline.unit == "%" else 6


def _unit(unit: str) -> str:
    return f", {unit}" if unit else ""


def _value_axis(channel: Any, field: str, title: str, headline: Headline) -> Any:
    """An axis of 0 to 100 % with room for marks that were moved over its ends; of another figure
    one that holds all marks."""
    title += _unit(headline.unit)
    if headline.unit != "%":
        return channel(field, title=title, scale=alt.Scale(zero=False))
    scale = alt.Scale(domain=[-3, 103], nice=False)
    return channel(field, title=title, scale=scale, axis=alt.Axis(values=[0, 20, 40, 60, 80, 100]))


def _tooltip(headline: Headline) -> Sequence[Any]:
    digits = headline.format
    unit = _unit(headline.unit)
    return [
        alt.Tooltip("client:N"),
        alt.Tooltip("group:N"),
        alt.Tooltip("before:Q", format=digits, title=f"before{unit}"),
        alt.Tooltip("after:Q", format=digits, title=f"after{unit}"),
        alt.Tooltip("gain:Q", format=f"+{digits}", title=f"gain{_unit(headline.step)}"),
    ]

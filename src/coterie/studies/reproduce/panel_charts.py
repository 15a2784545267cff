"""The charts of panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.report.charts.heat_map import heat_map
from coterie.report.charts.style import (
    GROUPS,
    LABELS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
)
from coterie.report.view import displayed_round
from coterie.studies.reproduce.panels import (
    BarPanel,
    CurvePanel,
    DistancePanel,
    GridPanel,
    Panel,
    ScatterPanel,
)

HEIGHT = 260  # pixels
OURS = "ours"
PRINTED = "paper"


def panel_chart(panel: Panel) -> Spec:
    """The chart of a panel."""
    match panel:
        case CurvePanel():
            return _curves(panel)
        case BarPanel():
            return _bars(panel)
        case GridPanel():
            return _grid(panel)
        case ScatterPanel():
            return _scatter(panel)
        case DistancePanel():
            return _distances(panel)


def _palette(names: Sequence[str]) -> Sequence[str]:
    """Colours in which no two methods of a panel look alike, as far as there are enough."""
    if len(names) <= len(RUNS):
        return RUNS
    return LABELS


def _curves(panel: CurvePanel) -> Spec:
    rows: list[dict[str, Any]] = [
        {
            "round": displayed_round(point.round),
            "method": series.label,
            "mean": point.mean,
            "low": point.low,
            "high": point.high,
        }
        for series in panel.series
        for point in series.points
    ]
    names = [series.label for series in panel.series]
    scale = alt.Scale(zero=False)
    base = alt.Chart(pd.DataFrame(rows)).encode(
        round_axis("round:Q"), color=colour_by("method", names, _palette(names), "method")
    )
    value = alt.Tooltip("mean:Q", format=".4g", title=panel.axis)
    lines = base.mark_line(strokeWidth=2.2, point=TOOLTIP_POINTS).encode(
        y=alt.Y("mean:Q", title=panel.axis, scale=scale), tooltip=["method:N", "round:Q", value]
    )
    # The band of the seeds lies under the lines.
    band = base.mark_area(opacity=0.16, line=False, tooltip=False)
    bands = band.encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    return to_spec(alt.layer(bands, lines), HEIGHT)


def _bars(panel: BarPanel) -> Spec:
    rows = []
    for bar in panel.bars:
        rows.append({"line": bar.label, "whose": OURS, "value": bar.ours})
        if bar.printed is not None:
            rows.append({"line": bar.label, "whose": PRINTED, "value": bar.printed})
    # A legend that names the paper would promise bars where it prints no value.
    whose = [OURS, PRINTED] if any(row["whose"] == PRINTED for row in rows) else [OURS]
    order = [bar.label for bar in panel.bars]
    chart = alt.Chart(pd.DataFrame(rows)).mark_bar()
    encoded = chart.encode(
        colour_by("whose", whose, (GROUPS[0], RUNS[0]), None),
        x=alt.X("line:N", title=None, sort=order, axis=alt.Axis(labelAngle=-30)),
        xOffset=alt.XOffset("whose:N", sort=whose),
        y=alt.Y("value:Q", title=panel.axis),
        tooltip=["line:N", "whose:N", alt.Tooltip("value:Q", format=".4g")],
    )
    return to_spec(encoded, HEIGHT)


def _grid(panel: GridPanel) -> Spec:
    across, up = panel.axes
    frame = pd.DataFrame(panel.cells, columns=[across, up, "value"])
    base = alt.Chart(frame).encode(
        x=alt.X(f"{across}:O", title=across), y=alt.Y(f"{up}:O", title=up, sort="descending")
    )
    # Low values are good in a map of losses: they are light.
    cells = base.mark_rect().encode(
        color=alt.Color("value:Q", scale=alt.Scale(scheme="blues"), legend=None),
        tooltip=[f"{across}:O", f"{up}:O", alt.Tooltip("value:Q", format=".4g")],
    )
    middle = (frame["value"].min() + frame["value"].max()) / 2
    dark = alt.condition(f"datum.value > {middle}", alt.value("white"), alt.value("#222"))
    texts = base.mark_text(fontSize=12).encode(alt.Text("value:Q", format=".3f"), color=dark)
    return to_spec(alt.layer(cells, texts), HEIGHT)


def _scatter(panel: ScatterPanel) -> Spec:
    across, up = panel.axes
    frame = pd.DataFrame(panel.points, columns=["across", "up"])
    # Faint points, so that their density shows where many lie on each other.
    points = alt.Chart(frame).mark_circle(size=14, opacity=0.35, color=GROUPS[0])
    encoded = points.encode(
        x=alt.X("across:Q", title=across),
        y=alt.Y("up:Q", title=up),
        tooltip=[
            alt.Tooltip("across:Q", format=".3f", title=across),
            alt.Tooltip("up:Q", format=".3f", title=up),
        ],
    )
    return to_spec(encoded, HEIGHT)


def _distances(panel: DistancePanel) -> Spec:
    shown = panel.shown
    groups = np.array(shown.groups)
    # Clients of a group stand side by side, so that a layer that tells them apart shows blocks.
    order = np.argsort(groups, kind="stable")
    return heat_map(np.array(shown.distance), order, groups, shown.names, HEIGHT, small=True)

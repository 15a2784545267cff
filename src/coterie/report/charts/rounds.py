"""Charts of what happens from round to round beside the accuracy: shifts, agreement with the
planted groups, divergence of gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.charts.events import lanes, shift_events
from coterie.report.charts.style import (
    GROUPS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
)
from coterie.report.view import RunView, displayed_round

# What a row of a run counts in a round with shifts, and its name and colour on the page.
CHANGED = "data changed"
SHIFT_COUNTS = {
    "changed": CHANGED,
    "migrations": "noticed: moved to another group",
    "same_group": "noticed: stayed",
    "missed": "missed",
}
SHIFT_COLOURS = dict(
    zip(SHIFT_COUNTS.values(), (RUNS[0], GROUPS[0], GROUPS[6], GROUPS[1]), strict=True)
)
LANE = 14  # pixels between the lanes of two kinds of shift
LANE_START = 18  # pixels above the chart

AGREEMENT_NAMES = {"ari": "adjusted Rand index", "nmi": "mutual information"}
DIVERGENCE_NAMES = {"divergence": "with these groups", "divergence_one": "as one group"}


def shift_chart(run: RunView) -> Spec | None:
    """Clients by round: whose data changed, and which of them the method noticed or missed; ticks
    above show when a shift came.
    """
    shifted = [row for row in run.rounds if "shift" in row]
    if not shifted:
        return None
    bars = [bar for row in shifted for bar in _bars(row)]
    present = {bar["what"] for bar in bars}
    names = [name for name in SHIFT_COUNTS.values() if name in present]
    colour = colour_by("what", names, [SHIFT_COLOURS[name] for name in names], None)
    colour.legend = alt.Legend(symbolOpacity=1, columns=1)
    # Bars are rectangles: Vega's own bars of one round cannot have two widths.
    base = alt.Chart(pd.DataFrame(bars)).encode(
        colour, tooltip=[alt.Tooltip("what:N"), alt.Tooltip("round:Q"), alt.Tooltip("clients:Q")]
    )
    across = round_axis("left:Q")
    first = displayed_round(shifted[0]["round"])
    last = displayed_round(shifted[-1]["round"])
    across.scale = alt.Scale(domain=[first - 0.7, last + 0.7], nice=False)
    up = alt.Y("low:Q", title="clients")
    rectangles = base.mark_rect().encode(across, up, x2=alt.X2("right:Q"), y2=alt.Y2("high:Q"))
    changed = rectangles.transform_filter(f"datum.what == '{CHANGED}'").mark_rect(opacity=0.35)
    # What was noticed is drawn upon what changed, and leaves its edges in sight.
    noticed = rectangles.transform_filter(f"datum.what != '{CHANGED}'")
    return to_spec(
        alt.layer(changed, noticed, *lanes(shift_events(shifted), LANE, LANE_START)), 260
    )


def _bars(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A wide bar of all clients whose data changed, and on it a stack of what became of them."""
    number = displayed_round(int(row["round"]))
    height = 0
    found = []
    for count, name in SHIFT_COUNTS.items():
        clients = int(row.get(count) or 0)
        low = height
        half_width = 0.3
        if name == CHANGED:
            half_width = 0.48
        else:
            height += clients
        found.append(
            {
                "round": number,
                "clients": clients,
                "what": name,
                "left": number - half_width,
                "right": number + half_width,
                "low": low,
                "high": low + clients,
            }
        )
    # A round in which nothing happened keeps one empty bar, so that the axis shows the round.
    return [bar for bar in found if bar["clients"]] or found[:1]


def agreement_chart(runs: Sequence[RunView]) -> Spec | None:
    """How well groups agree with the planted ones, by round; ``None`` where nothing was planted."""
    # Of several runs those without groups are left out: their agreement is 0 throughout.
    grouped = [run for run in runs if run.group_count > 1] or runs
    rows = [
        {
            "round": displayed_round(row["round"]),
            "agreement": row["agreement"][measure],
            "what": name,
            "run": run.name,
        }
        for run in grouped
        for row in run.rounds
        if row.get("agreement")
        for measure, name in AGREEMENT_NAMES.items()
    ]
    if not rows:
        return None
    # The adjusted Rand index of groups that are worse than chance is negative.
    low = min(0.0, *(row["agreement"] for row in rows))
    up = alt.Y(
        "agreement:Q",
        title="agreement, 1 = the same groups",
        scale=alt.Scale(domain=[low, 1]),
    )
    value = alt.Tooltip("agreement:Q", format=".3f")
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=round_axis("round:Q"),
        y=up,
        tooltip=[alt.Tooltip("run:N"), alt.Tooltip("what:N"), alt.Tooltip("round:Q"), value],
    )
    names = list(AGREEMENT_NAMES.values())
    shown = list(dict.fromkeys(row["run"] for row in rows))
    if len(shown) == 1:
        lines = base.mark_line(strokeWidth=2.2, point=TOOLTIP_POINTS)
        return to_spec(lines.encode(colour_by("what", names, GROUPS, None)), 220)
    # A run has the colour that it has in the chart of accuracies, where all runs are.
    palette = [RUNS[i % len(RUNS)] for i, run in enumerate(runs) if run.name in shown]
    coloured = base.encode(colour_by("run", shown, palette, "run"))
    return to_spec(_dashed(coloured, names), 220)


def _dashed(base: alt.Chart, names: Sequence[str]) -> alt.LayerChart:
    legend = alt.Legend(symbolType="stroke", symbolSize=400, symbolOpacity=1)
    dash = alt.StrokeDash("what:N", title=None, sort=list(names), legend=legend)
    dashed = base.mark_line(strokeWidth=2.2).encode(dash)
    # The points that answer the mouse are a layer apart: as points of the dashed lines they would
    # make the strokes of the legend invisible.
    points = base.mark_point(size=60, opacity=0, tooltip=True).encode(detail=alt.Detail("what:N"))
    return alt.layer(dashed, points)


def divergence_chart(run: RunView) -> Spec | None:
    """Divergence of the clients' gradients by round, with the run's groups and as if all were one
    group; ``None`` if it was not measured."""
    rows = [
        {
            "round": displayed_round(row["round"]),
            "divergence": row["theory"][measure],
            "what": name,
        }
        for row in run.rounds
        if row.get("theory")
        for measure, name in DIVERGENCE_NAMES.items()
        if row["theory"].get(measure) is not None
    ]
    if not rows:
        return None
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(strokeWidth=2.2, point=TOOLTIP_POINTS)
    colour = colour_by("what", list(DIVERGENCE_NAMES.values()), (GROUPS[0], RUNS[0]), None)
    value = alt.Tooltip("divergence:Q", format=".4g")
    encoded = lines.encode(
        colour,
        x=round_axis("round:Q"),
        y=alt.Y("divergence:Q", title="gradient divergence"),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("round:Q"), value],
    )
    return to_spec(encoded, 240)

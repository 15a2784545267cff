"""What shifts changed in which round, and what the method made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.figures.events import lanes, shift_events
from coterie.report.figures.style import (
    GROUPS,
    MOST_ROWS,
    RUNS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
    tooltip,
)
from coterie.report.render import Section, Table, chart_section
from coterie.report.series import thinned
from coterie.report.view import RunView, displayed_round

# What a row of a run counts in a round with shifts, and its name and colour on the page.
CHANGED = "data changed"
COUNTS = {
    "changed": CHANGED,
    "migrations": "noticed: moved to another group",
    "same_group": "noticed: stayed",
    "missed": "missed",
}
COLOURS = dict(zip(COUNTS.values(), (RUNS[0], GROUPS[0], GROUPS[6], GROUPS[1]), strict=True))
LANE = 14  # pixels between the lanes of two kinds of shift
LANE_START = 18  # pixels above the chart
NOTE = (
    "How many clients had their data changed in each round, and how many of them the method "
    "noticed. Ticks above mark the shifts. Rounds count from 1 on this page, from 0 in a "
    "configuration."
)


def shift_section(run: RunView, number: int) -> list[Section]:
    """Shifts by round; none in a run in which no client's data changed."""
    spec = shift_chart(run)
    if spec is None:
        return []
    title = "What changed, and what was noticed"
    return [chart_section(title, NOTE, f"shift-{number}", spec, shift_table(run))]


def shift_chart(run: RunView) -> Spec | None:
    """Clients by round whose data changed, and which of them the method noticed or missed."""
    shifted = [row for row in run.rounds if "shift" in row]
    # Clients that join or leave are shown by the groups' chart.
    if not any(row.get(count) for row in shifted for count in COUNTS):
        return None
    bars = [bar for row in shifted for bar in _bars(row)]
    present = {bar["what"] for bar in bars}
    names = [name for name in COUNTS.values() if name in present]
    colour = colour_by("what", names, [COLOURS[name] for name in names], None)
    colour.legend = alt.Legend(symbolOpacity=1, columns=1)
    # Bars are rectangles: Vega's own bars of one round cannot have two widths.
    base = alt.Chart(pd.DataFrame(bars)).encode(
        colour, tooltip=tooltip("what:N", "round:Q", "clients:Q")
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
    ticks = lanes(shift_events(shifted), LANE, LANE_START)
    return to_spec(alt.layer(changed, noticed, *ticks), 260)


def _bars(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A wide bar of all clients whose data changed, and on it a stack of what became of them."""
    number = displayed_round(int(row["round"]))
    height = 0
    found = []
    for count, name in COUNTS.items():
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


def shift_table(run: RunView) -> Table:
    """A dozen of the rounds in which data changed."""
    changed = [row for row in run.rounds if row.get("changed") or row.get("migrations")]
    rows = []
    for i in thinned(range(len(changed)), MOST_ROWS):
        counts = [str(changed[i].get(key) or 0) for key in COUNTS]
        rows.append([str(displayed_round(changed[i]["round"])), *counts])
    return ["round", "data changed", "moved to another group", "stayed", "missed"], rows

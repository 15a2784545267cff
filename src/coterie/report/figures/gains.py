"""Who wins and who loses: each client under a baseline and under a method with groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.headline import Headline, with_unit
from coterie.measures.client_comparison import FEW_NOTE
from coterie.measures.gains import Gain, gain_of_runs
from coterie.report.comparison import paired_clients
from coterie.report.figures.style import (
    GROUPS,
    MOST_NAMED,
    Spec,
    colour_by_group,
    named_marks,
    to_spec,
    tooltip,
    with_sides,
)
from coterie.report.ranked_gains import (
    HALF,
    RankedGains,
    Row,
    decimals_of,
    gain_table,
    ranked_gains,
    value_columns,
)
from coterie.report.render import Chart, Section
from coterie.report.series import Series
from coterie.terminal import counted

MOST_SLANTED = 18  # names that fit next to each other on a narrow screen
MANY_CLIENTS = 200  # beyond which their marks are smaller, and intervals are in the table alone
# By how much marks are moved, so that clients with the same accuracies do not hide each other.
# Multiples of two such numbers, modulo 1, fill a square evenly, and are the same in every page.
JITTER_X = 0.618034
JITTER_Y = 0.754878
EDGE = 0.08  # of the axes, beyond their outermost marks
JITTER_POINTS = 2  # percentage points: the side of that square

NOTE = (
    "A client's gain is the difference of its two figures, on its own test samples after the last "
    "round. A client with few test samples moves in large steps."
)
SCATTER_TITLE = "Each client with both methods: {} the dashed line, it gained"
SHIFTED = " (marks are shifted by up to a point so that all are visible)"


def gain_sections(series: Sequence[Series], base: Series | None, most: int) -> list[Section]:
    """Who wins and who loses, for at most so many series."""
    if base is None:
        return []
    found: list[Section] = []
    for number, one in enumerate(series):
        if one is not base and one.grouped:
            gain = gain_of_runs(paired_clients(one, base), one.headline)
            if gain is not None:
                found.append(_gain_section(one, base, gain, number))
    return found[:most]


def _gain_section(one: Series, base: Series, gain: Gain, number: int) -> Section:
    ranked = ranked_gains(one, base)
    # The picture may stand alone.
    title = f"What each client gained by {one.name} over {base.name}"
    if ranked.seeds > 1:
        title += f": mean over {ranked.seeds} seeds, with its 95 % interval"
    bars: Chart = {
        "id": f"gain-{number}",
        "title": title,
        "spec": gain_chart(ranked),
        "table": gain_table(ranked),
    }
    gained = "above" if one.headline.better == "higher" else "below"
    shifted = SHIFTED if one.headline.unit == "%" else ""
    scatter: Chart = {
        "id": f"before-after-{number}",
        "title": SCATTER_TITLE.format(gained) + shifted,
        "spec": scatter_chart(ranked),
    }
    return {
        "title": f"Who wins, who loses: {one.name} against {base.name}",
        "note": _in_words(ranked, gain) + (FEW_NOTE if ranked.few else ""),
        "definitions": NOTE,
        "charts": [bars, scatter],
        "wide": True,
    }


def _in_words(ranked: RankedGains, gain: Gain) -> str:
    text = f"{gain.won:,} of {counted(gain.clients, 'client')} gained and {gain.lost:,} lost"
    if gain.same:
        text += f"; {gain.same:,} did not change"
    if ranked.seeds > 1:
        text += f", by their means over {ranked.seeds} seeds"
    # A mean gain can hide clients that lost much: the worst tenth is counted apart.
    tenth = ranked.rows[: max(1, len(ranked.rows) // 10)]
    worst = sum(row["gain"] for row in tenth) / len(tenth) / ranked.headline.scale
    step = f" {ranked.headline.step}".rstrip()
    return (
        f"{text}. The mean gain of the tenth that gained least is "
        f"{ranked.headline.short(worst, '+')}{step}. Over all clients, weighted by their test "
        f"samples, it is {gain.text}."
    )


def gain_chart(ranked: RankedGains) -> Spec:
    """What each client gained, from the greatest loss to the greatest gain."""
    rows = ranked.rows
    count = len(rows)
    axis = _name_axis(rows)
    across = alt.X(
        "left:Q",
        title=f"{counted(count, 'client')}, in order of their gain",
        scale=alt.Scale(domain=[-0.5, count - 0.5], nice=False),
        axis=axis,
    )
    data = alt.Chart(pd.DataFrame(rows))
    # Rectangles that touch: as bars, a thousand clients would be all gaps.
    bars = (
        data.transform_calculate(left="datum.rank - 0.5", right="datum.rank + 0.5", zero="0")
        .mark_rect()
        .encode(
            across,
            alt.Y("gain:Q", title=with_unit(f"gain over {ranked.theirs}", ranked.headline.step)),
            color=_colour(ranked),
            x2=alt.X2("right:Q"),
            y2=alt.Y2("zero:Q"),
            tooltip=_tooltip(ranked),
        )
    )
    zero = alt.Chart(pd.DataFrame([{"gain": 0}])).mark_rule(opacity=0.8).encode(y=alt.Y("gain:Q"))
    layers = [bars, zero]
    if ranked.has_intervals and count <= MANY_CLIENTS:
        whiskers = data.transform_filter("datum.half !== null").mark_rule(strokeWidth=1.5)
        # With the same axis: that of another layer would leave out names.
        middle = alt.X("rank:Q", axis=axis)
        ends = {"y2": alt.Y2("high:Q"), "tooltip": _tooltip(ranked)}
        layers.append(whiskers.encode(middle, alt.Y("low:Q"), **ends))
    return to_spec(alt.layer(*layers), 240)


def _colour(ranked: RankedGains) -> alt.Color:
    return colour_by_group(ranked.groups) if ranked.groups else alt.value(GROUPS[0])


def _name_axis(rows: Sequence[Row]) -> alt.Axis:
    """An axis with the names of the clients, if these are few."""
    if len(rows) > MOST_NAMED:
        return alt.Axis(labels=False, ticks=False, grid=False)
    # As JSON a name is a text of the expression, whatever is in it.
    names = json.dumps([row["client"] for row in rows])
    # Vega would leave out names whose boxes overlap, as those of slanted names do.
    angle = -45 if len(rows) <= MOST_SLANTED else -90
    return alt.Axis(
        values=[row["rank"] for row in rows],
        labelExpr=f"{names}[datum.value]",
        labelAngle=angle,
        labelAlign="right",
        labelBaseline="middle",
        labelOverlap=False,
        labelLimit=110,
        ticks=False,
        grid=False,
    )


def scatter_chart(ranked: RankedGains) -> Spec:
    """Each client's figures under both: above the line it won, or below it of errors. Marks are moved by up to a point,
    so that clients with the same accuracies are all visible."""
    headline = ranked.headline
    digits = decimals_of(headline)
    jitter = JITTER_POINTS if headline.unit == "%" else 0
    rows = []
    for row in ranked.rows:
        x = row["rank"] * JITTER_X % 1 - 0.5
        y = row["rank"] * JITTER_Y % 1 - 0.5
        moved_x = round(row["before"] + jitter * x, digits)
        moved_y = round(row["after"] + jitter * y, digits)
        rows.append({**row, "x": moved_x, "y": moved_y})
    # Both axes have the same ends, as the diagonal does.
    ends = _ends(headline, rows)
    rows = with_sides(rows, 300, ends)
    size = 70 if len(rows) <= MANY_CLIENTS else 34
    points = (
        alt.Chart(pd.DataFrame(rows))
        .mark_point(filled=True, size=size, opacity=0.75)
        .encode(
            _value_axis(alt.X, "x:Q", f"{headline.title} under {ranked.theirs}", headline, ends),
            _value_axis(alt.Y, "y:Q", f"{headline.title} under {ranked.ours}", headline, ends),
            color=_colour(ranked),
            tooltip=_tooltip(ranked),
        )
    )
    diagonal = alt.Chart(pd.DataFrame([{"x": end, "y": end} for end in ends])).mark_line(
        strokeDash=[4, 4], strokeWidth=1.2, opacity=0.6, color="#838d99"
    )
    layers = [diagonal.encode(x=alt.X("x:Q"), y=alt.Y("y:Q")), points]
    if len(rows) <= MOST_NAMED:
        layers += named_marks(points)
    return to_spec(alt.layer(*layers), 300)


def _ends(headline: Headline, rows: Sequence[Row]) -> tuple[float, float]:
    """The ends of both axes: 0 to 100 %, or those of other figures, with room for marks and names."""
    if headline.unit == "%":
        return -3.0, 103.0
    values = [row[name] for row in rows for name in ("before", "after")]
    room = EDGE * (max(values) - min(values))
    return min(values) - room, max(values) + room


def _value_axis(
    channel: Any, field: str, title: str, headline: Headline, ends: tuple[float, float]
) -> Any:
    axis = alt.Axis(tickCount=5)
    if headline.unit == "%":
        axis = alt.Axis(values=[0, 20, 40, 60, 80, 100])
    scale = alt.Scale(domain=list(ends), nice=False, zero=False)
    return channel(field, title=with_unit(title, headline.unit), scale=scale, axis=axis)


def _tooltip(ranked: RankedGains) -> list[Any]:
    digits = ranked.headline.format
    before, after, gain = value_columns(ranked.headline)
    columns = [
        alt.Tooltip("before:Q", format=digits, title=before),
        alt.Tooltip("after:Q", format=digits, title=after),
        alt.Tooltip("gain:Q", format=f"+{digits}", title=gain),
    ]
    if ranked.has_intervals:
        columns.append(alt.Tooltip("half:Q", format=digits, title=HALF))
    return tooltip("client:N", "group:N", *columns)

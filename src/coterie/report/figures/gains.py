"""Who wins and who loses: each client's accuracy under a baseline and under a method with
groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.headline import Headline, with_unit
from coterie.measures.gains import Gain as MeanGain
from coterie.report.comparison import (
    GainSummary,
    client_gains,
    gain_over,
    least_gain,
    paired_runs,
    summarise_gains,
)
from coterie.report.figures.style import (
    MOST_NAMED,
    Spec,
    colour_by_group,
    group_name,
    named_marks,
    to_spec,
    tooltip,
)
from coterie.report.render import Chart, Section, Table
from coterie.report.series import Series
from coterie.report.view import RunView
from coterie.terminal import counted

MANY_CLIENTS = 200  # beyond which their marks are smaller
# By how much marks are moved, so that clients with the same accuracies do not hide each other.
# Multiples of two such numbers, modulo 1, fill a square evenly, and are the same in every page.
JITTER_X = 0.618034
JITTER_Y = 0.754878
JITTER_POINTS = 2  # percentage points: the side of that square
MOST_CLIENTS = 100  # of the table; of more, those that lost most and those that won most

Gain = dict[str, Any]  # of a client, of which charts and table are made


NOTE = (
    "A client's gain is the difference of its two accuracies, on its own test samples after the "
    "last round. A client with few test samples moves in large steps."
)
SCATTER_TITLE = (
    "Each client under both: above the dashed line it gained (marks are shifted by up to a "
    "point so that all are visible)"
)


def gain_sections(series: Sequence[Series], base: Series | None, most: int) -> list[Section]:
    """Who wins and who loses, for at most so many series."""
    if base is None:
        return []
    found: list[Section] = []
    for number, one in enumerate(series):
        if one is not base and one.grouped:
            summary = summarise_gains(one, base)
            if summary is not None:
                found.append(_gain_section(one, base, summary, number))
    return found[:most]


def _gain_section(one: Series, base: Series, summary: GainSummary, number: int) -> Section:
    """The charts of the first seed for which the clients' accuracies are known."""
    # Means over seeds would hide that a client wins with one seed and loses with another.
    ours, theirs = next((a, b) for a, b in paired_runs(one, base) if client_gains(a, b) is not None)
    gains = ranked_gains(ours, theirs)
    note = _in_words(summary, gain_over(one, base), one.headline)
    if one.many_seeds:
        note += f" The charts show {ours.seed_name}."
    bars: Chart = {
        "id": f"gain-{number}",
        "title": "What each client gained",
        "spec": gain_chart(gains, ours, theirs),
        "table": gain_table(gains, one.headline),
    }
    scatter: Chart = {
        "id": f"before-after-{number}",
        "title": SCATTER_TITLE,
        "spec": scatter_chart(gains, ours, theirs),
    }
    return {
        "title": f"Who wins, who loses: {one.name} against {base.name}",
        "note": note,
        "definitions": NOTE,
        "charts": [bars, scatter],
        "wide": True,
    }


def _in_words(summary: GainSummary, whole: MeanGain | None, headline: Headline) -> str:
    clients = f"{summary.won:,} of {summary.all:,} clients won"
    others = f"{summary.lost:,} lost, {summary.same:,} did not change"
    worst = f"{headline.short(summary.worst_tenth, '+')} {headline.step}".rstrip()
    text = f"{clients}, {others}. The mean gain of the tenth that lost most is {worst}."
    if whole is None:
        return text
    return f"{text} Over all clients, weighted by their test samples, it is {whole.text}."


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
    """What each client gained, from the greatest loss to the greatest gain."""
    count = len(rows)
    across = alt.X(
        "left:Q",
        title=f"{counted(count, 'client')}, in order of their gain",
        scale=alt.Scale(domain=[-0.5, count - 0.5], nice=False),
        axis=_name_axis(rows),
    )
    # Rectangles that touch: as bars, a thousand clients would be all gaps.
    bars = (
        alt.Chart(pd.DataFrame(rows))
        .transform_calculate(left="datum.rank - 0.5", right="datum.rank + 0.5", zero="0")
        .mark_rect()
        .encode(
            across,
            alt.Y("gain:Q", title=with_unit(f"gain over {base.name}", run.headline.step)),
            colour_by_group(run.groups),
            x2=alt.X2("right:Q"),
            y2=alt.Y2("zero:Q"),
            tooltip=_tooltip(run.headline),
        )
    )
    zero = alt.Chart(pd.DataFrame([{"gain": 0}])).mark_rule(opacity=0.8).encode(y=alt.Y("gain:Q"))
    return to_spec(alt.layer(bars, zero), 240)


def _name_axis(rows: Sequence[Gain]) -> alt.Axis:
    """An axis with the names of the clients, if these are few."""
    if len(rows) > MOST_NAMED:
        return alt.Axis(labels=False, ticks=False, grid=False)
    # As JSON a name is a text of the expression, whatever is in it.
    names = json.dumps([row["client"] for row in rows])
    return alt.Axis(
        values=[row["rank"] for row in rows],
        labelExpr=f"{names}[datum.value]",
        labelAngle=-45,
        labelAlign="right",
        labelLimit=110,
        ticks=False,
        grid=False,
    )


def scatter_chart(gains: Sequence[Gain], run: RunView, base: RunView) -> Spec:
    """Each client's accuracy under both: above the line it won. Marks are moved by up to a point,
    so that clients with the same accuracies are all visible."""
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
    layers = [diagonal.encode(x=alt.X("x:Q"), y=alt.Y("y:Q")), points]
    if len(rows) <= MOST_NAMED:
        layers.append(named_marks(points))
    return to_spec(alt.layer(*layers), 300)


def _digits(headline: Headline) -> int:
    """Digits behind the point of a value in the page: of percents two are more than are shown."""
    return 2 if headline.unit == "%" else 6


def _value_axis(channel: Any, field: str, title: str, headline: Headline) -> Any:
    """An axis of 0 to 100 % with room for marks that were moved over its ends; of another figure
    one that holds all marks."""
    title = with_unit(title, headline.unit)
    if headline.unit != "%":
        return channel(field, title=title, scale=alt.Scale(zero=False))
    scale = alt.Scale(domain=[-3, 103], nice=False)
    return channel(field, title=title, scale=scale, axis=alt.Axis(values=[0, 20, 40, 60, 80, 100]))


def _tooltip(headline: Headline) -> list[Any]:
    digits = headline.format
    before, after, gain = _value_columns(headline)
    return tooltip(
        "client:N",
        "group:N",
        alt.Tooltip("before:Q", format=digits, title=before),
        alt.Tooltip("after:Q", format=digits, title=after),
        alt.Tooltip("gain:Q", format=f"+{digits}", title=gain),
    )


def _value_columns(headline: Headline) -> list[str]:
    units = {"before": headline.unit, "after": headline.unit, "gain": headline.step}
    return [with_unit(name, unit) for name, unit in units.items()]


def gain_table(rows: Sequence[Gain], headline: Headline) -> Table:
    """The clients by their gain, the greatest loss first; the middle of many is left out."""
    columns = ["client", "group", *_value_columns(headline)]
    cells = [_gain_cells(row, headline) for row in rows]
    if len(rows) > MOST_CLIENTS:
        # Those who lose and those who win most are what the table is read for.
        half = MOST_CLIENTS // 2
        cells[half:-half] = [[f"... {len(rows) - MOST_CLIENTS:,} more", "", "", "", ""]]
    return columns, cells


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

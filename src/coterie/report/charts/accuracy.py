"""Accuracy by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.headline import Headline
from coterie.report.charts.style import (
    GROUPS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
)
from coterie.report.series import Series
from coterie.report.view import RunView, displayed_round

HEIGHT = 300  # pixels
# Per cent. An axis that does not begin at 0 makes small differences look large, so it begins there
# unless all accuracies are above this one.
HIGH = 60


def accuracy_chart(series: Sequence[Series]) -> Spec:
    """Accuracy by round: a line per series, a band from its lowest to its highest seed, and a rule
    in the round in which the first newcomers joined."""
    many_seeds = any(one.many_seeds for one in series)
    rows = [row for one in series for row in _rows(one)]
    base = alt.Chart(pd.DataFrame(rows)).encode(round_axis("round:Q"), color=series_colour(series))
    headline = series[0].headline
    scale = value_scale([row[end] for row in rows for end in ("low", "high")], headline)
    lines = base.mark_line(strokeWidth=2.5, point=TOOLTIP_POINTS).encode(
        y=alt.Y("mean:Q", title=headline.axis, scale=scale), tooltip=_tooltip(many_seeds, headline)
    )
    # Layers are drawn in this order: lines must lie upon bands and rules.
    layers: list[Any] = []
    arrivals = [round for one in series for run in one.runs for round in _arrivals(run)]
    if arrivals:
        layers.append(_first_newcomers(min(arrivals)))
    if many_seeds:
        band = base.mark_area(opacity=0.16, line=False, tooltip=False)
        layers.append(band.encode(y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q")))
    return to_spec(alt.layer(*layers, lines), HEIGHT)


def _rows(series: Series) -> list[dict[str, Any]]:
    factor = series.headline.scale
    return [
        {
            "round": displayed_round(point.round),
            "run": series.name,
            "mean": factor * point.mean,
            "low": factor * point.low,
            "high": factor * point.high,
        }
        for point in series.curve()
    ]


def _tooltip(many_seeds: bool, headline: Headline) -> list[Any]:
    digits = headline.format
    if not many_seeds:
        return [
            alt.Tooltip("run:N"),
            alt.Tooltip("round:Q"),
            alt.Tooltip("mean:Q", format=digits, title=headline.axis),
        ]
    unit = f", {headline.unit}" if headline.unit else ""
    return [
        alt.Tooltip("run:N"),
        alt.Tooltip("round:Q"),
        alt.Tooltip("mean:Q", format=digits, title=f"mean{unit}"),
        alt.Tooltip("low:Q", format=digits, title=f"lowest seed{unit}"),
        alt.Tooltip("high:Q", format=digits, title=f"highest seed{unit}"),
    ]


def series_colour(series: Sequence[Series]) -> Any:
    """Colour by series; one alone has no legend."""
    if len(series) > 1:
        return colour_by("run", [one.name for one in series], RUNS, "run")
    return alt.value(GROUPS[0])


def value_scale(values: Sequence[float], headline: Headline) -> alt.Scale:
    """The axis of some values of a headline in its unit; of other figures than fractions it holds
    them and no more."""
    if headline.unit == "%":
        return accuracy_scale(values)
    return alt.Scale(zero=False)


def accuracy_scale(percents: Sequence[float]) -> alt.Scale:
    """The axis of some accuracies: from zero, unless they are all so high that half of the chart
    would be empty."""
    low = min(percents, default=0)
    begin = 0.0
    if low >= HIGH:
        begin = 10 * (low // 10) - 10
    return alt.Scale(domain=[begin, 100])


def _arrivals(run: RunView) -> list[int]:
    """The rounds in which the newcomers of a run with groups got theirs."""
    if run.joined is None or run.group_count < 2:
        return []
    return [int(round) for round in run.joined[run.newcomer_ids] if round >= 0]


def _first_newcomers(round: int) -> alt.LayerChart:
    frame = pd.DataFrame([{"round": displayed_round(round), "text": "first newcomers"}])
    base = alt.Chart(frame).encode(x=alt.X("round:Q"))
    rule = base.mark_rule(strokeDash=[4, 4], opacity=0.55)
    text = base.mark_text(align="left", dx=6, baseline="bottom", fontSize=11, opacity=0.85)
    return alt.layer(rule, text.encode(text=alt.Text("text:N"), y=alt.value(HEIGHT - 4)))

"""Accuracy by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.headline import ACCURACY, Headline, with_unit
from coterie.measures.client_table import reference_means
from coterie.report.figures.style import (
    GROUPS,
    MOST_ROWS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
    tooltip,
)
from coterie.report.render import Chart, Section, Table, chart_section
from coterie.report.series import CurvePoint, Series, thinned
from coterie.report.view import RunView, displayed_round

HEIGHT = 300  # pixels
# Per cent. An axis that does not begin at 0 makes small differences look large, so it begins there
# unless all accuracies are above this one.
HIGH = 60
ROOM_FOR_TEXT = 6  # per cent of an axis
WIDTH_OF_TEXT = 0.35  # of a chart, at its end
ACCURACY_NOTE = (
    "Accuracy is the share of test samples that are classified correctly, where each client uses "
    "the model that serves it. A round counts only the clients that have a group in that round."
)
OTHER_NOTE = (
    "{} is over all test samples, where each client uses the model that serves it. A round counts "
    "only the clients that have a group in that round."
)
SEEDS_NOTE = (
    " A line is the mean over the seeds. Its band reaches from the lowest to the highest seed."
)


def accuracy_section(series: Sequence[Series]) -> list[Section]:
    """Accuracy by round; none before the first evaluated round."""
    if not any(one.evaluated for one in series):
        return []
    headline = series[0].headline
    note = ACCURACY_NOTE if headline == ACCURACY else OTHER_NOTE.format(headline.capital)
    if any(one.many_seeds for one in series):
        note += SEEDS_NOTE
    title = f"{headline.capital} by round"
    pooled = accuracy_chart(series)
    if not any(one.curve(_means(one)) for one in series):
        return [chart_section(title, "", "accuracy", pooled, accuracy_table(series), note)]
    # The verdict is about clients, so their mean comes first.
    charts: list[Chart] = [
        {
            "id": "client-mean",
            "title": "mean over the clients, each on its own test samples",
            "spec": accuracy_chart(series, of_clients=True),
            "table": accuracy_table(series, of_clients=True),
        },
        {
            "id": "accuracy",
            "title": "over the test samples of all clients",
            "spec": pooled,
            "table": accuracy_table(series),
        },
    ]
    return [
        {"title": title, "note": "", "definitions": note, "charts": charts, "wide": True},
    ]


def _means(series: Series) -> list[list[float | None]]:
    """The mean over clients in each round of each run."""
    return [[row.get(series.headline.keys.mean) for row in run.rounds] for run in series.runs]


def _curve(series: Series, of_clients: bool) -> list[CurvePoint]:
    return series.curve(_means(series) if of_clients else None)


def accuracy_chart(series: Sequence[Series], of_clients: bool = False) -> Spec:
    """A line per series, a band from its lowest to its highest seed, and rules: in the round in which
    the first newcomers joined, and at the best prediction without a model. Over all test samples, or
    the mean over clients."""
    many_seeds = any(one.many_seeds for one in series)
    rows = [row for one in series for row in _rows(one, of_clients)]
    base = alt.Chart(pd.DataFrame(rows)).encode(round_axis("round:Q"), color=series_colour(series))
    headline = series[0].headline
    # The same axis over clients and over samples, so that one can be compared with the other.
    both = [row for one in series for way in (False, True) for row in _rows(one, way)]
    shown = [row[end] for row in both for end in ("low", "high")]
    references = [_reference(series[0], shown, way) for way in (False, True)]
    shown += [headline.scale * value for one in references for value in one.values()]
    scale = value_scale(shown, headline)
    lines = base.mark_line(strokeWidth=2.5, point=TOOLTIP_POINTS).encode(
        y=alt.Y("mean:Q", title=headline.axis, scale=scale), tooltip=_tooltip(many_seeds, headline)
    )
    # Layers are drawn in this order: lines must lie upon bands and rules.
    layers: list[Any] = []
    arrivals = [round for one in series for run in one.runs for round in _arrivals(run)]
    if arrivals:
        layers.append(_first_newcomers(min(arrivals)))
    for name, value in references[of_clients].items():
        line = headline.scale * value
        axis = scale.domain if isinstance(scale.domain, list) else [line, line]
        layers.append(_without_model(name, line, scale, _place_of_text(line, rows, axis)))
    if many_seeds:
        band = base.mark_area(opacity=0.16, line=False, tooltip=False)
        layers.append(band.encode(y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q")))
    return to_spec(alt.layer(*layers, lines), HEIGHT)


def _rows(series: Series, of_clients: bool) -> list[dict[str, Any]]:
    factor = series.headline.scale
    return [
        {
            "round": displayed_round(point.round),
            "run": series.name,
            "mean": factor * point.mean,
            "low": factor * point.low,
            "high": factor * point.high,
        }
        for point in _curve(series, of_clients)
    ]


def _tooltip(many_seeds: bool, headline: Headline) -> list[Any]:
    titles = {"mean": headline.axis}
    if many_seeds:
        names = {"mean": "mean", "low": "lowest seed", "high": "highest seed"}
        titles = {field: with_unit(name, headline.unit) for field, name in names.items()}
    values = [
        alt.Tooltip(f"{field}:Q", format=headline.format, title=title)
        for field, title in titles.items()
    ]
    return tooltip("run:N", "round:Q", *values)


def series_colour(series: Sequence[Series]) -> Any:
    """Colour by series; one alone has no legend."""
    if len(series) > 1:
        return colour_by("run", [one.name for one in series], RUNS, "run")
    return alt.value(GROUPS[0])


def value_scale(values: Sequence[float], headline: Headline) -> alt.Scale:
    """The axis of some values of a headline in its unit. That of accuracies begins at zero, unless
    half of the chart would be empty; that of other figures holds their values and no more."""
    if headline.unit != "%":
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return alt.Scale(zero=False)
        return alt.Scale(zero=False, nice=True, domain=[min(finite), max(finite)])
    low = min(values, default=0)
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


def _reference(series: Series, shown: Sequence[float], of_clients: bool) -> dict[str, float]:
    """The best prediction without a model, as name and value, where it is better than a value shown;
    all runs of a page have the same data."""
    headline = series.headline
    known = series.without_model
    if of_clients:
        known = reference_means(series.client_tables, headline) if series.client_tables else {}
    if not known:
        return {}
    best = headline.best(known.values())
    if not any(headline.gain(headline.scale * best, over=value) > 0 for value in shown):
        return {}
    return {next(name for name, value in known.items() if value == best): best}


def _without_model(name: str, value: float, scale: alt.Scale, bottom: float) -> alt.LayerChart:
    """A rule, and its text at the end of the chart, which stands on ``bottom``."""
    frame = pd.DataFrame([{"value": value, "bottom": bottom, "text": f"{name}, no model"}])
    base = alt.Chart(frame)
    rule = base.mark_rule(strokeDash=[2, 3], opacity=0.7)
    text = base.mark_text(align="right", baseline="bottom", dy=-2, fontSize=11).encode(
        text=alt.Text("text:N"), x=alt.value("width"), y=alt.Y("bottom:Q", scale=scale)
    )
    return alt.layer(rule.encode(y=alt.Y("value:Q", scale=scale)), text)


def _place_of_text(value: float, rows: Sequence[Mapping[str, Any]], axis: Sequence[float]) -> float:
    """The lower edge of a text near a value that no curve crosses at the end of the chart."""
    step = (axis[1] - axis[0]) / 100
    height = ROOM_FOR_TEXT * step
    rounds = sorted({row["round"] for row in rows})
    begin = rounds[-1] - WIDTH_OF_TEXT * (rounds[-1] - rounds[0])
    # With the round before, from which a line leads to the text.
    first = max(round for round in rounds if round <= begin)
    curves = [(row["low"], row["high"]) for row in rows if row["round"] >= first]
    for away in range(100):
        for bottom in (value - height - away * step, value + away * step):
            inside = axis[0] <= bottom and bottom + height <= axis[1]
            if inside and all(high < bottom or low > bottom + height for low, high in curves):
                return bottom
    return value


def accuracy_table(series: Sequence[Series], of_clients: bool = False) -> Table:
    """A dozen rounds; with several seeds, the lowest and highest next to the mean."""
    curves = [{point.round: point for point in _curve(one, of_clients)} for one in series]
    rounds = thinned(sorted({round for curve in curves for round in curve}), MOST_ROWS)
    rows = []
    for round in rounds:
        cells = [_value(curve.get(round), one) for curve, one in zip(curves, series, strict=True)]
        rows.append([str(displayed_round(round)), *cells])
    return ["round", *(one.name for one in series)], rows


def _value(point: CurvePoint | None, series: Series) -> str:
    if point is None:
        return "-"
    headline = series.headline
    if not series.many_seeds:
        return headline.text(point.mean)
    low = headline.short(point.low)
    high = headline.short(point.high)
    return f"{headline.text(point.mean)} ({low} to {high})"

"""The charts of a scoreboard's page: ranks, and scores against bytes, against time, and over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import altair as alt
import pandas as pd

from coterie.headline import Headline
from coterie.report.figures.style import RUNS, Spec, colour_by, round_axis, to_spec
from coterie.report.render import Chart, Section
from coterie.studies.scoreboard.figures import Ranking, SuiteFigures
from coterie.studies.scoreboard.running import DEFAULTS
from coterie.studies.scoreboard.suite import BASELINE, ORACLE, Federation

ROW = 18  # pixels for a method
RANK_TITLE = "mean rank, 1 is best"


def rank_chart(ranking: Ranking) -> Spec:
    """Mean ranks as points, each in a bar as wide as the critical difference where there is one."""
    names = list(ranking.ranks)
    half = (ranking.critical or 0.0) / 2
    rows = [
        {"method": name, "rank": rank, "from": rank - half, "to": rank + half}
        for name, rank in ranking.ranks.items()
    ]
    base = alt.Chart(pd.DataFrame(rows)).encode(alt.Y("method:N", sort=names, title=None))
    bars = base.mark_rule(opacity=0.35, strokeWidth=4)
    points = base.mark_point(filled=True, size=70, opacity=1)
    layers = [points.encode(alt.X("rank:Q", title=RANK_TITLE))]
    if half:
        layers.insert(0, bars.encode(alt.X("from:Q", title=RANK_TITLE), x2="to:Q"))
    return to_spec(alt.layer(*layers), ROW * len(names))


def curve_chart(
    curves: Mapping[str, Sequence[tuple[float, float]]], axis: alt.X, headline: Headline
) -> Spec:
    """Score against what was spent, the field ``spent`` of the axis; one line a method."""
    rows = [
        {"method": method, "spent": spent, "value": headline.scale * value}
        for method, points in curves.items()
        for spent, value in points
    ]
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(strokeWidth=1.5)
    return to_spec(
        lines.encode(
            axis,
            alt.Y("value:Q", title=headline.axis, scale=alt.Scale(zero=False)),
            colour_by("method", list(curves), RUNS, None),
        ),
        300,
    )


# --- curves ---------------------------------------------------------------------------------------

Spent = Literal["bytes", "seconds", "rounds"]

# With FedAvg and the oracle as many as there are colours.
BEST = 6
DRAWN = f"FedAvg, the oracle and the {BEST} methods that are best there at equal work"

NOTES: Mapping[Spent, str] = {
    "bytes": "The score against all bytes until then.",
    "seconds": "The score against the seconds until then, without evaluation, on the machine where it "
    "was run.",
    "rounds": "The score after each round where data drift, with the oracle known_groups, which "
    "knows who changes to what and when.",
}


def curve_sections(figures: SuiteFigures) -> list[Section]:
    """A section for each of what was spent."""
    seed = figures.suite.seeds[0]
    found: list[Section] = []
    kinds: tuple[Spent, ...] = ("bytes", "seconds", "rounds")
    for spent in kinds:
        charts = [
            chart
            for federation in figures.suite.federations
            if spent != "rounds" or federation.score == "course"
            for chart in _chart(figures, federation, spent)
        ]
        if charts:
            note = f"{NOTES[spent]} With defaults and seed {seed}; {DRAWN}."
            title = f"Score against {spent}"
            found.append({"title": title, "note": note, "charts": charts, "wide": True})
    return found


def _drawn(figures: SuiteFigures, federation: Federation) -> list[str]:
    """The methods with a curve. More would share colours."""
    scores = {
        method: figures.gain(federation, method, DEFAULTS, "equal_work")
        for method in figures.methods
        if method not in (BASELINE, ORACLE)
    }
    known = {method: score for method, score in scores.items() if score is not None}
    best = sorted(known, key=lambda method: known[method], reverse=True)[:BEST]
    return [method for method in (BASELINE, ORACLE, *best) if method in figures.methods]


def _chart(figures: SuiteFigures, federation: Federation, spent: Spent) -> Iterator[Chart]:
    """The chart of a federation; none where no method has a curve."""
    curves = {}
    for method in _drawn(figures, federation):
        entry = figures.entry(federation, method, DEFAULTS) or {"runs": ()}
        for run in entry["runs"]:
            points = _points(run, spent)
            if run["seed"] == figures.suite.seeds[0] and points:
                curves[method] = points
    if curves:
        spec = curve_chart(curves, _axis(spent), figures.headline(federation))
        yield {"id": f"{spent}-{federation.name}", "title": federation.title, "spec": spec}


def _points(run: Mapping[str, Any], spent: Spent) -> list[tuple[float, float]]:
    """The points of a run; what spends nothing has no place on a logarithmic axis."""
    course = run["course"]
    if spent == "rounds":
        return [(at + 1, value) for at, _, _, value in course]
    if spent == "seconds":
        times = run["seconds"]["course"]
        return [(time, value) for time, (_, _, _, value) in zip(times, course, strict=True)]
    return [(moved / 1e6, value) for _, _, moved, value in course if moved > 0]


def _axis(spent: Spent) -> alt.X:
    if spent == "rounds":
        return round_axis("spent:Q")
    title = "MB down and up" if spent == "bytes" else "seconds"
    return alt.X("spent:Q", title=f"{title} (logarithmic)", scale=alt.Scale(type="log"))

"""The charts of a scoreboard's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from coterie.headline import Headline
from coterie.report.charts.style import RUNS, Spec, colour_by, to_spec
from coterie.studies.scoreboard.ranks import Ranking

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

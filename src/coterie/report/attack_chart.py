"""The chart of a sweep over shares of attackers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from coterie.report.charts.style import PERCENT, RUNS, Spec, colour_by, to_spec
from coterie.report.files import draw
from coterie.sweep.attackers import AttackPoint, attack_points
from coterie.sweep.comparison import SweepTable


def attack_chart(points: Sequence[AttackPoint], title: str, scale: float = PERCENT) -> Spec:
    """A curve for each algorithm and attack; bars are a standard deviation over the seeds.

    Args:
        scale: by which values are multiplied, as 100 for percent.
    """
    rows = [
        {
            "curve": point.curve,
            "attackers": round(PERCENT * point.share, 6),
            "value": scale * point.mean,
            "low": scale * (point.mean - point.sd),
            "high": scale * (point.mean + point.sd),
        }
        for point in points
    ]
    curves = list(dict.fromkeys(point.curve for point in points))
    base = alt.Chart(pd.DataFrame(rows)).encode(
        alt.X("attackers:Q", title="attackers, % of the clients"),
        colour_by("curve", curves, RUNS, None),
    )
    height = alt.Y("value:Q", title=title)
    lines = base.mark_line(point=True).encode(height)
    spread = base.mark_rule(opacity=0.5).encode(alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
    return to_spec(alt.layer(lines, spread), 300)


def write_attack_chart(table: SweepTable, folder: Path) -> Path:
    """Draw the honest clients' figure against the share of attackers; returns the file."""
    headline = table.headline
    scale = 1.0
    if headline.unit == "%":
        scale = PERCENT
    title = f"{headline.name} of honest clients"
    if headline.unit:
        title += f", {headline.unit}"
    path = folder / "attack.svg"
    path.write_bytes(draw(attack_chart(attack_points(table), title, scale), "svg"))
    return path

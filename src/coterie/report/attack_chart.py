"""The chart of a sweep over shares of attackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import pandas as pd

from coterie.headline import with_unit
from coterie.report.figures.style import PERCENT, RUNS, Spec, colour_by, to_spec
from coterie.report.files import draw
from coterie.sweep.comparison import SweepTable
from coterie.sweep.grid import ATTACKERS


@dataclass(frozen=True, slots=True)
class AttackPoint:
    """A point of a curve.

    Args:
        curve: the algorithm, and the other values of the grid.
    """

    curve: str
    share: float
    mean: float
    sd: float


def attack_points(table: SweepTable) -> list[AttackPoint]:
    """The rows of a table by their share of attackers; rows without a figure are left out.

    Example:
        >>> from coterie.sweep.comparison import Row
        >>> row = Row("ifca", ("alie", "0.1"), 1, 1, 0.8, None, None, 0, None, None, None)
        >>> keys = ("attack.kind", "attack.share")
        >>> attack_points(SweepTable(keys, (0,), "ifca", None, "max", (row,)))
        [AttackPoint(curve='ifca, alie', share=0.1, mean=0.8, sd=0.0)]
    """
    found = []
    for row in table.rows:
        values: Mapping[str, str] = dict(zip(table.keys, row.values, strict=True))
        others = [value for key, value in values.items() if key != ATTACKERS]
        if row.mean is None:
            continue
        curve = ", ".join([row.algorithm, *others])
        found.append(AttackPoint(curve, float(values[ATTACKERS]), row.mean, row.sd or 0.0))
    return found


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
    title = with_unit(f"{headline.name} of honest clients", headline.unit)
    path = folder / "attack.svg"
    chart = attack_chart(attack_points(table), title, headline.scale)
    path.write_bytes(draw(chart, "svg"))
    return path

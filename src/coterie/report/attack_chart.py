"""The chart of a sweep over shares of attackers."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import pandas as pd

from coterie.headline import with_unit
from coterie.report.figures.style import PERCENT, RUNS, Spec, colour_by, to_spec
from coterie.report.files import draw
from coterie.sweep.comparison import SweepTable
from coterie.sweep.grid import ATTACKERS


def attack_chart(table: SweepTable) -> Spec:
    """The honest clients' figure against the share of attackers: a curve for each algorithm and attack,
    with bars of a standard deviation over the seeds; rows without a figure are left out."""
    scale = table.headline.scale
    rows = []
    for row in table.rows:
        values = dict(zip(table.keys, row.values, strict=True))
        share = values.pop(ATTACKERS)
        if row.mean is not None:
            sd = row.sd or 0.0
            rows.append(
                {
                    "curve": ", ".join([row.algorithm, *values.values()]),
                    "attackers": round(PERCENT * float(share), 6),
                    "value": scale * row.mean,
                    "low": scale * (row.mean - sd),
                    "high": scale * (row.mean + sd),
                }
            )
    title = with_unit(f"{table.headline.name} of honest clients", table.headline.unit)
    curves = list(dict.fromkeys(str(row["curve"]) for row in rows))
    base = alt.Chart(pd.DataFrame(rows)).encode(
        alt.X("attackers:Q", title="attackers, % of the clients"),
        colour_by("curve", curves, RUNS, None),
    )
    height = alt.Y("value:Q", title=title)
    lines = base.mark_line(point=True).encode(height)
    spread = base.mark_rule(opacity=0.5).encode(alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
    return to_spec(alt.layer(lines, spread), 300)


def write_attack_chart(table: SweepTable, folder: Path) -> Path:
    """Draw the chart of a sweep; returns the file."""
    path = folder / "attack.svg"
    path.write_bytes(draw(attack_chart(table), "svg"))
    return path

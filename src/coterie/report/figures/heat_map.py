"""Distances between clients as a matrix of colours."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import FloatArray, IntArray
from coterie.report.figures.style import Spec, colour_by_group, group_name, to_spec, tooltip

MOST_CELLS = 100  # of a side: more would be smaller than a pixel, and 10,000 cells are slow enough
# A cell is a little larger than 1, so that no line of the background shows between two cells.
CELL = 1.05


def heat_map(
    proximity: FloatArray,
    order: IntArray,
    groups: IntArray,
    names: Sequence[str],
    height: int = 460,
    small: bool = False,
) -> Spec:
    """The distances ``[n, n]`` between clients in a given order, with a strip of their groups. With
    more than 100 clients a cell is the mean over a block of neighbours. A ``small`` map is one of
    many."""
    # Blocks differ by at most one client, so no client is left out.
    blocks = np.array_split(np.arange(len(order)), min(len(order), MOST_CELLS))
    near = proximity[np.ix_(order, order)]
    cells = [
        {"a": i, "b": j, "distance": _mean(near[np.ix_(a, b)])}
        for i, a in enumerate(blocks)
        for j, b in enumerate(blocks)
    ]
    ordered = groups[order]
    sides = pd.DataFrame(
        {
            "at": i,
            "who": _name_range([names[order[row]] for row in rows]),
            "group": group_name(_commonest(ordered[rows])),
        }
        for i, rows in enumerate(blocks)
    )
    colour = colour_by_group(ordered)
    if small:
        colour.legend = None
    layers = alt.layer(_cells(pd.DataFrame(cells), sides, small), _strips(sides, colour))
    # Distances and groups are two colour scales; Vega would make one of them.
    return to_spec(layers.resolve_scale(color="independent"), height)


def _cells(cells: pd.DataFrame, sides: pd.DataFrame, small: bool) -> alt.Chart:
    wide = len(sides)
    # The strips stand below 0 on both axes.
    domain = [-0.06 * wide, wide]
    across = alt.X("a0:Q", axis=None, scale=alt.Scale(domain=domain, nice=False))
    down = alt.Y("b0:Q", axis=None, scale=alt.Scale(domain=domain, nice=False, reverse=True))
    legend = alt.Legend(orient="bottom", gradientLength=180)
    if small:
        legend = alt.Legend(orient="bottom", gradientLength=110, tickCount=2, format=".2g")
    scale = alt.Scale(scheme="viridis", zero=True)
    distance = alt.Color("distance:Q", title="distance", scale=scale, legend=legend)
    # The names are looked up in the browser: written into every cell they would be most of a page.
    names = alt.LookupData(sides, "at", ["who"])
    base = alt.Chart(cells).transform_lookup(lookup="a", from_=names, as_=["one"])
    base = base.transform_lookup(lookup="b", from_=names, as_=["other"])
    placed = base.transform_calculate(
        a0="datum.a", a1=f"datum.a + {CELL}", b0="datum.b", b1=f"datum.b + {CELL}"
    )
    return placed.mark_rect().encode(
        across,
        down,
        distance,
        x2="a1:Q",
        y2="b1:Q",
        tooltip=tooltip("one:N", "other:N", alt.Tooltip("distance:Q", format=".4g")),
    )


def _strips(sides: pd.DataFrame, colour: alt.Color) -> alt.LayerChart:
    low = str(-0.05 * len(sides))
    high = str(-0.015 * len(sides))
    placed = alt.Chart(sides).transform_calculate(
        start="datum.at", stop="datum.at + 1", low=low, high=high
    )
    strip = placed.mark_rect().encode(colour, tooltip=tooltip("who:N", "group:N"))
    top = strip.encode(
        x=alt.X("start:Q"), x2=alt.X2("stop:Q"), y=alt.Y("low:Q"), y2=alt.Y2("high:Q")
    )
    left = strip.encode(
        y=alt.Y("start:Q"), y2=alt.Y2("stop:Q"), x=alt.X("low:Q"), x2=alt.X2("high:Q")
    )
    return alt.layer(top, left)


def _mean(block: FloatArray) -> float | None:
    known = block[np.isfinite(block)]
    if not len(known):
        return None
    # Six digits show the same colour, and keep the page small.
    return float(f"{known.mean():.6g}")


def _commonest(groups: IntArray) -> int:
    # `bincount` takes no negative numbers, and -1 stands for no group.
    return int(np.bincount(groups + 1).argmax()) - 1


def _name_range(names: Sequence[str]) -> str:
    if len(names) == 1:
        return str(names[0])
    return f"{names[0]} to {names[-1]}"

"""What all charts share: colours, and the form in which a specification is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt

Spec = dict[str, Any]
GROUPS = ("#2f74c0", "#d97700", "#1f9e7a", "#c2509b", "#8a63d2", "#a68c00", "#2f97b8", "#a8562f")
RUNS = ("#838d99", "#8a63d2", "#d0527a", "#2f97b8", "#a68c00", "#1f9e7a", "#d97700", "#2f74c0")
LABELS = (
    "#4e79a7",
    "#f28e2b",
    "#e15759",
    "#76b7b2",
    "#59a14f",
    "#edc948",
    "#b07aa1",
    "#ff9da7",
    "#9c755f",
    "#bab0ac",
)
NO_GROUP_COLOUR = "#647080"
SEVERAL_COLOUR = "#8d97a3"
LEGENDS = ("color", "shape", "strokeDash")
# Pixels: of a legend's symbol and the gap after it, of a letter, of the axis at the left, and of a
# colour bar with the gap after it.
LEGEND_SYMBOL = 28
LETTER = 7
LEGEND_LEFT = 70
GRADIENT = 220
# in place of a group's number
NONE = -1
SEVERAL = -2


def colour(field: str, domain: list[str], palette: tuple[str, ...], title: str | None) -> alt.Color:
    """Colour by a field with known values, which keep their order and colours."""
    colours = [palette[i % len(palette)] for i in range(len(domain))]
    scale = alt.Scale(domain=domain, range=colours)
    return alt.Color(
        f"{field}:N", title=title, sort=domain, scale=scale, legend=alt.Legend(symbolOpacity=1)
    )


def group_name(number: int) -> str:
    """What a group is called.

    Example:
        >>> [group_name(g) for g in (0, -1, -2)]
        ['group 0', 'no group', 'several']
    """
    return {NONE: "no group", SEVERAL: "several"}.get(number, f"group {number}")


def group_colour(numbers: Iterable[int]) -> alt.Color:
    """Colour by group: that of a number is the same in every chart."""
    known = sorted({int(g) for g in numbers}, key=lambda g: (g < 0, g))
    other = {NONE: NO_GROUP_COLOUR, SEVERAL: SEVERAL_COLOUR}
    palette = tuple(other.get(g) or GROUPS[g % len(GROUPS)] for g in known)
    return colour("group", [group_name(g) for g in known], palette, "group")


def by_round(field: str) -> alt.X:
    """The axis of rounds, which are whole numbers."""
    whole = "datum.value % 1 ? '' : format(datum.value, 'd')"
    axis = alt.Axis(tickMinStep=1, grid=False, ticks=False, labelExpr=whole)
    # Rounds are shown from 1: an axis that was made to begin at 0 would show a round that is none.
    scale = alt.Scale(zero=False, nice=False)
    return alt.X(field, title="round", axis=axis, scale=scale)


def finished(chart: Any, height: int) -> Spec:
    """A chart as a specification without a theme, as wide as what it is put into."""
    with alt.data_transformers.enable("default", max_rows=None):
        spec: Spec = chart.properties(width="container", height=height).to_dict()
    spec["usermeta"] = {"legends": legend_widths(spec), "gradients": _gradients(spec)}
    spec["background"] = "transparent"
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec.pop("config", None)
    return spec


def legend_widths(spec: Any) -> list[int]:
    """About the width in pixels of a column of each legend of a specification, by its longest entry.

    Vega does not wrap a legend that is too wide. Who draws a chart counts the columns that fit.

    Example:
        >>> legend_widths({"color": {"title": "group", "scale": {"domain": ["group 0", "group 10"]}}})
        [84]
    """
    found: dict[str, int] = {}
    _collect_legends(spec, found)
    return list(found.values())


def _collect_legends(node: Any, found: dict[str, int]) -> None:
    """Add the legends of a part of a specification; layers share those with the same values."""
    if isinstance(node, list):
        for part in node:
            _collect_legends(part, found)
    if not isinstance(node, dict):
        return
    for channel, part in node.items():
        if channel in LEGENDS and isinstance(part, dict) and part.get("legend", 0) is not None:
            values = part.get("scale", {}).get("domain") or part.get("sort") or []
            if values:
                longest = max(len(str(value)) for value in values)
                found[str(values)] = LEGEND_SYMBOL + LETTER * longest
        elif channel != "datasets":
            _collect_legends(part, found)


def _gradients(spec: Spec) -> int:
    """How many colour bars stand beside the legends."""
    return str(spec).count("'gradientLength'")


def legend_columns(spec: Spec, width: int) -> int:
    """How many columns of its legends fit beside each other into a chart, at least one.

    Example:
        >>> legend_columns({"usermeta": {"legends": [84]}}, 640)
        6
    """
    drawn = spec["usermeta"]
    room = width - LEGEND_LEFT - GRADIENT * drawn.get("gradients", 0)
    return max(1, room // max(1, sum(drawn["legends"])))


def packed(spec: Spec) -> Spec:
    """A specification whose data stand in columns, without the names of the fields in every row;
    the page unpacks them.

    Example:
        >>> packed({"datasets": {"d": [{"a": 1, "b": 2}, {"a": 3}]}})
        {'datasets': {'d': {'fields': ['a', 'b'], 'rows': [[1, 2], [3, None]]}}}
    """
    if "datasets" not in spec:
        return spec
    return {**spec, "datasets": {name: _columns(rows) for name, rows in spec["datasets"].items()}}


def _columns(rows: Any) -> Any:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return rows
    fields = list(dict.fromkeys(key for row in rows for key in row))
    return {"fields": fields, "rows": [[row.get(key) for key in fields] for row in rows]}

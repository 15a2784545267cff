"""What all figures share: colours, the axis of rounds, and the form of a finished specification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from coterie.core.groups import NO_GROUP
from coterie.report.tree import SEVERAL_GROUPS

Spec = dict[str, Any]
PERCENT = 100.0

# Colours for light and dark paper alike. With more than eight groups they come again.
GROUPS = ("#2f74c0", "#d97700", "#1f9e7a", "#c2509b", "#8a63d2", "#a68c00", "#2f97b8", "#a8562f")
# Grey comes first: the first run of a comparison is mostly the baseline.
RUNS = ("#838d99", "#8a63d2", "#d0527a", "#2f97b8", "#a68c00", "#1f9e7a", "#d97700", "#2f74c0")
# Labels have colours apart from those of groups, so that a bar is not taken for a group.
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
OTHER_COLOURS = {NO_GROUP: "#647080", SEVERAL_GROUPS: "#8d97a3"}
OTHER_NAMES = {NO_GROUP: "no group", SEVERAL_GROUPS: "several"}

MOST_ROWS = 12  # of the table of a chart
MOST_NAMED = 30  # clients whose names stand in a chart
# Names next to marks, in pixels of a chart on a narrow screen.
SIDES = {"right": (1, 0), "left": (-1, 0), "above": (0, 1), "below": (0, -1)}
NARROW = 300
AXIS_SHARE = 0.85  # of a chart's height; the rest is for the axis of x
MARK = 6
NAME_ACROSS = 8
NAME_UP = 13
NAME_WIDTH = 90
ROOM = 24  # right of the last mark
MOST_COLUMNS = 12

# Lines carry invisible points: without them a tooltip would answer only at the line itself.
TOOLTIP_POINTS = {"size": 60, "opacity": 0, "tooltip": True}

LEGEND_CHANNELS = ("color", "shape", "strokeDash")
# Widths in pixels, of which the columns of a legend are counted.
LEGEND_SYMBOL = 28  # with the gaps around it
LETTER = 7
LEGEND_LEFT = 70  # the axis at its left
COLOUR_BAR = 220  # with the gap after it


def tooltip(*fields: str | alt.Tooltip) -> list[alt.Tooltip]:
    """What is shown of a mark that is pointed at."""
    return [one if isinstance(one, alt.Tooltip) else alt.Tooltip(one) for one in fields]


def colour_by(
    field: str, values: Sequence[str], palette: Sequence[str], title: str | None
) -> alt.Color:
    """Colour by a field with known values, which keep their order and their colours."""
    colours = [palette[i % len(palette)] for i in range(len(values))]
    scale = alt.Scale(domain=list(values), range=colours)
    legend = alt.Legend(symbolOpacity=1)
    return alt.Color(f"{field}:N", title=title, sort=list(values), scale=scale, legend=legend)


def group_name(number: int) -> str:
    """The name of a group.

    Example:
        >>> [group_name(number) for number in (0, -1, -2)]
        ['group 0', 'no group', 'several']
    """
    return OTHER_NAMES.get(number, f"group {number}")


def named_marks(marks: Any) -> list[Any]:
    """The names of the clients next to their marks, where `with_sides` found room."""
    layers = []
    for side, (across, up) in SIDES.items():
        align = {1: "left", 0: "center", -1: "right"}[across]
        dy = -up * NAME_UP
        text = marks.transform_filter(f"datum.side === '{side}'").mark_text(
            align=align, dx=across * NAME_ACROSS, dy=dy, fontSize=11, limit=NAME_WIDTH
        )
        named = text.encode(text=alt.Text("client:N"), tooltip=alt.value(None))
        # In the colour of the page's text: some groups' colours are too weak for letters.
        named.encoding.color = alt.Undefined
        layers.append(named)
    return layers


def with_sides(
    rows: Sequence[Mapping[str, Any]], height: int, ends: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """Marks with the ``side`` on which the name of each covers no other mark and no other name, empty
    where there is none: its tooltip has the name.

    Args:
        rows: with ``x``, ``y`` and ``client``.
        height: of the chart in pixels.
        ends: of both axes; ``None``: those of the marks.
    """
    if len(rows) > MOST_NAMED:
        return [dict(row) for row in rows]
    points = np.array([[row["x"], row["y"]] for row in rows], np.float64).reshape(-1, 2)
    low, high = (points.min(axis=0), points.max(axis=0)) if ends is None else ends
    span = np.where(np.equal(high, low), 1, np.subtract(high, low))
    places = (points - low) / span * [NARROW, AXIS_SHARE * height]
    taken = [_box(place, MARK, MARK) for place in places]
    found = []
    for at, row in enumerate(rows):
        half = min(NAME_WIDTH, LETTER * len(row["client"])) / 2
        others = taken[:at] + taken[at + 1 :]
        chosen = ""
        for side, (across, up) in SIDES.items():
            middle = places[at] + [across * (NAME_ACROSS + half), up * NAME_UP]
            box = _box(middle, half, MARK)
            if box[2] <= NARROW + ROOM and not any(_overlap(box, other) for other in others):
                chosen = side
                taken.append(box)
                break
        found.append({**row, "side": chosen})
    return found


def _box(middle: Any, across: float, up: float) -> tuple[float, float, float, float]:
    x, y = map(float, middle)
    return x - across, y - up, x + across, y + up


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    apart_x = one[2] < other[0] or other[2] < one[0]
    apart_y = one[3] < other[1] or other[3] < one[1]
    return not (apart_x or apart_y)


def colour_by_group(numbers: Iterable[int]) -> alt.Color:
    """Colour by group: a number has the same colour in every chart."""
    known = sorted({int(number) for number in numbers}, key=lambda number: (number < 0, number))
    palette = [OTHER_COLOURS.get(number) or GROUPS[number % len(GROUPS)] for number in known]
    return colour_by("group", [group_name(number) for number in known], palette, "group")


def round_axis(field: str) -> alt.X:
    """The axis of rounds, which are whole numbers."""
    whole = "datum.value % 1 ? '' : format(datum.value, 'd')"
    axis = alt.Axis(tickMinStep=1, grid=False, ticks=False, labelExpr=whole, labelFlush=False)
    # Rounds are shown from 1: an axis that was made to begin at 0 would show a round that is none.
    scale = alt.Scale(zero=False, nice=False)
    return alt.X(field, title="round", axis=axis, scale=scale)


def to_spec(chart: Any, height: int) -> Spec:
    """A chart as a specification without a theme, as wide as what it is put into."""
    # Altair refuses more than 5,000 rows; a page of many runs has more, and they are thinned.
    with alt.data_transformers.enable("default", max_rows=None):
        spec: Spec = chart.properties(width="container", height=height).to_dict()
    spec["usermeta"] = {
        "legends": legend_widths(spec),
        "gradients": str(spec).count("'gradientLength'"),
    }
    spec["background"] = "transparent"
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec.pop("config", None)
    return spec


def legend_widths(spec: Any) -> list[int]:
    """About the width in pixels of a column of each legend of a specification, by its longest
    entry.

    Vega does not wrap a legend that is too wide, so the columns that fit are counted where a chart
    is drawn: in `legend_columns` for a file, in ``draw.js`` for a page.
    """
    found: dict[str, int] = {}
    _collect_legends(spec, found)
    return list(found.values())


def _collect_legends(node: Any, found: dict[str, int]) -> None:
    if isinstance(node, list):
        for part in node:
            _collect_legends(part, found)
    if not isinstance(node, dict):
        return
    for channel, part in node.items():
        if channel in LEGEND_CHANNELS and isinstance(part, dict):
            values = part.get("scale", {}).get("domain") or part.get("sort") or []
            if values and part.get("legend", "default") is not None:
                longest = max(len(str(value)) for value in values)
                # Layers with the same values share one legend, hence the key.
                found[str(values)] = LEGEND_SYMBOL + LETTER * longest
        elif channel != "datasets":
            _collect_legends(part, found)


def legend_columns(spec: Spec, width: int) -> int:
    """How many columns of its legends fit side by side into a chart, at least one."""
    drawn = spec["usermeta"]
    room = width - LEGEND_LEFT - COLOUR_BAR * int(drawn["gradients"])
    return int(max(1, room // max(1, sum(drawn["legends"]))))

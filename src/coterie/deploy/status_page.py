"""The live page of a federation: read-only, without scripts, in the report's own look."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from coterie.deploy.status import FederationStatus
from coterie.deploy.status_tables import status_tables
from coterie.report.charts.style import GROUPS
from coterie.report.render import page_style

REFRESH = 5  # seconds after which a browser asks again
WIDTH = 900
HEIGHT = 240
SAME = "#6b7682"  # of the curve of the same clients, which is no group's
LINE_HEIGHT = 15
_LEFT = 56  # of the axis, in the chart's own units
_BOTTOM = 28


@dataclass(frozen=True, slots=True)
class StatusCurve:
    """A line of the chart.

    Args:
        points: ``x,y`` pairs as SVG has them.
        label: the height of its name, beside the last point.
    """

    name: str
    colour: str
    points: str
    last: tuple[float, float]
    label: float


@dataclass(frozen=True, slots=True)
class StatusChart:
    """The headline metric over rounds.

    Args:
        curves: one for each group, and one for the same clients where some were away.
    """

    title: str
    curves: Sequence[StatusCurve]
    top: str
    bottom: str
    first: int
    end: int


def status_page(status: FederationStatus, refresh: int = REFRESH) -> str:
    """The page as HTML.

    Names of clients, groups and reasons come from elsewhere: all are escaped, and the page's content
    security policy allows no script at all.

    Args:
        refresh: seconds after which a browser asks again; 0: never.
    """
    style = page_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page: str = (
        _environment()
        .get_template("status.html.j2")
        .render(
            status=status,
            tables=status_tables(status),
            chart=headline_chart(status),
            style=style,
            style_hash=digest,
            refresh=refresh,
            width=WIDTH,
            height=HEIGHT,
            left=_LEFT,
            bottom=_BOTTOM,
        )
    )
    return page


@cache
def _environment() -> Any:
    return Environment(
        loader=PackageLoader("coterie.deploy", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def headline_chart(status: FederationStatus) -> StatusChart | None:
    """The headline metric by group over rounds; ``None`` before two rounds were scored."""
    keys = status.headline.keys
    rows = [row for row in status.scored if row.get(keys.groups)]
    if len(rows) < 2:
        return None
    groups = max(len(row[keys.groups]) for row in rows)
    found: list[list[tuple[int, float]]] = [[] for _ in range(groups)]
    for row in rows:
        for group, value in enumerate(row[keys.groups]):
            # A group without clients has no value.
            if value is not None:
                found[group].append((int(row["round"]) + 1, float(value)))
    names = [f"group {group}" for group in range(groups)]
    colours = [GROUPS[group % len(GROUPS)] for group in range(groups)]
    # A group's curve rises when a client that is served badly leaves, and this one does not.
    same = status.same
    if same.away and same.values:
        found.append([(round + 1, value) for round, value in same.values.items()])
        names.append("same clients")
        colours.append(SAME)
    values = [value for curve in found for _, value in curve]
    if not values:
        return None
    low = min(values)
    high = max(values)
    first = int(rows[0]["round"]) + 1
    end = int(rows[-1]["round"]) + 1
    curves: list[StatusCurve] = []
    for name, colour, curve in zip(names, colours, found, strict=True):
        if not curve:
            continue
        points = [_place(x, y, (first, end), (low, high)) for x, y in curve]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        curves.append(StatusCurve(name, colour, text, points[-1], 0.0))
    title = f"{status.headline.title} by group"
    text_of = status.headline.text
    curves = _spread_labels(curves)
    return StatusChart(title, curves, text_of(high), text_of(low), first, end)


def _place(
    x: float, y: float, rounds: tuple[int, int], values: tuple[float, float]
) -> tuple[float, float]:
    across = (x - rounds[0]) / max(1, rounds[1] - rounds[0])
    # One value alone stands in the middle.
    up = 0.5 if values[1] == values[0] else (y - values[0]) / (values[1] - values[0])
    inner = HEIGHT - _BOTTOM - 16
    return _LEFT + across * (WIDTH - _LEFT - 90), 8 + (1 - up) * inner


def _spread_labels(curves: Sequence[StatusCurve]) -> list[StatusCurve]:
    """The curves with their names so far apart that each can be read."""
    spread = []
    height = 0.0
    for curve in sorted(curves, key=lambda one: one.last[1]):
        height = max(curve.last[1] + 4, height + LINE_HEIGHT)
        spread.append(replace(curve, label=height))
    return sorted(spread, key=lambda one: one.name)

"""The curves of a federation's page: the headline by group, and by client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.flower.server.scores import COLUMN
from coterie.flower.watch.status import FederationStatus
from coterie.headline import Headline
from coterie.report.figures.style import GROUPS

SAME = "#6b7682"  # of the curve of the same clients, which is no group's
MOST_CLIENTS = 12  # with a curve each
GROUP_NOTE = (
    "Over the clients that were scored in each round. If some were missing, another curve is "
    "over those that were scored in all rounds."
)
CLIENT_NOTE = (
    "Each client on its own test samples. A client that was missing has no point in that round."
)


@dataclass(frozen=True, slots=True)
class StatusCurve:
    """A line of the chart: ``round,value`` pairs, values negative since SVG draws downwards."""

    name: str
    colour: str
    points: Sequence[str]

    @classmethod
    def of(cls, name: str, colour: str, values: Mapping[int, float]) -> StatusCurve:
        """The line of values by the number of their round."""
        return cls(name, colour, [f"{round + 1},{-value:.6g}" for round, value in values.items()])


@dataclass(frozen=True, slots=True)
class StatusChart:
    """The headline metric over rounds, in a ``box`` of left, top, width and height."""

    title: str
    note: str
    curves: Sequence[StatusCurve]
    box: str
    top: str
    bottom: str
    first: int
    end: int


def status_charts(status: FederationStatus) -> list[StatusChart]:
    """What there is to draw, from top to bottom."""
    charts = (headline_chart(status), client_chart(status))
    return [chart for chart in charts if chart is not None]


def headline_chart(status: FederationStatus) -> StatusChart | None:
    """The headline metric by group over rounds, and of the same clients where some were away;
    ``None`` before two rounds were scored."""
    headline = status.state.headline
    rows = [row for row in status.state.scored if row.get(headline.keys.groups)]
    groups: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for row in rows:
        for group, value in enumerate(row[headline.keys.groups]):
            # A group without clients has no value.
            if value is not None:
                groups[group][int(row["round"])] = float(value)
    lines = {
        f"group {group}": (GROUPS[group % len(GROUPS)], groups[group]) for group in sorted(groups)
    }
    # A group's curve rises when a client that is served badly leaves, and this one does not.
    same = status.same
    if same.away and same.values:
        lines["same clients"] = (SAME, dict(same.values))
    rounds = [int(row["round"]) for row in rows]
    return _chart(f"{headline.capital} by group", GROUP_NOTE, lines, rounds, headline)


def client_chart(status: FederationStatus) -> StatusChart | None:
    """The headline metric of each client over rounds; ``None`` before two rounds were scored, for
    many clients, and where single ones may not be shown."""
    if not status.shows_clients:
        return None
    rows = [row for row in status.state.scored if row.get(COLUMN)]
    clients: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        for name, (value, _) in row[COLUMN].items():
            if value is not None:
                clients[str(name)][int(row["round"])] = float(value)
    if len(clients) > MOST_CLIENTS:
        return None
    lines = {
        name: (GROUPS[i % len(GROUPS)], clients[name]) for i, name in enumerate(sorted(clients))
    }
    headline = status.state.headline
    rounds = [int(row["round"]) for row in rows]
    return _chart(f"{headline.capital} by client", CLIENT_NOTE, lines, rounds, headline)


def _chart(
    title: str,
    note: str,
    lines: Mapping[str, tuple[str, Mapping[int, float]]],
    rounds: Sequence[int],
    headline: Headline,
) -> StatusChart | None:
    """A chart of lines by name, each with its colour; ``None`` where there is nothing to see."""
    values = [value for _, points in lines.values() for value in points.values()]
    if len(rounds) < 2 or not values:
        return None
    low = min(values)
    high = max(values)
    first = rounds[0] + 1
    end = rounds[-1] + 1
    # A box without a height would show nothing.
    box = f"{first} {-high:.6g} {max(1, end - first)} {(high - low) or 1.0:.6g}"
    curves = [StatusCurve.of(name, colour, points) for name, (colour, points) in lines.items()]
    return StatusChart(
        title, note, curves, box, headline.text(high), headline.text(low), first, end
    )

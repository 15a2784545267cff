"""Who is in which group, from round to round."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP
from coterie.report.figures.clients import client_table
from coterie.report.figures.events import all_events, lanes
from coterie.report.figures.style import (
    MOST_COLUMNS,
    MOST_NAMED,
    MOST_ROWS,
    Spec,
    colour_by_group,
    group_name,
    round_axis,
    to_spec,
    tooltip,
)
from coterie.report.render import Section, Table, chart_section
from coterie.report.series import thinned
from coterie.report.view import RunView, Stay, displayed_round, stays_of
from coterie.terminal import counted

MOST_LINES = 150  # clients that have a line each; of more, the sizes of the groups are shown
MOST_STAYS = 6000  # of all of them
MOST_AREAS = 250  # rounds of a chart of sizes
LANE = 16  # pixels between two lanes of ticks
LANE_START = 12  # pixels above the chart
LAST = 10**6  # the place of the clients without a group: after all groups
NAMED = 17  # pixels of a line with a name
NOTE = (
    "The group of each client after each round. Ticks above mark rounds in which clients joined, "
    "moved to another group, or had their data changed."
)


def member_section(run: RunView, number: int) -> list[Section]:
    """Group membership by round, where it was kept."""
    spec = member_chart(run)
    if spec is None:
        return []
    note = NOTE + _members_at_end(run)
    title = "Who is in which group"
    return [chart_section(title, note, f"members-{number}", spec, member_table(run))]


def _members_at_end(run: RunView) -> str:
    """The clients of each group by name; nothing for many clients, or where they have none."""
    numbered = all(str(name) == str(i) for i, name in enumerate(run.names))
    if numbered or run.clients > MOST_NAMED:
        return ""
    _, rows = client_table(run)
    groups = "; ".join(f"{group}: {names}" for group, _, names in rows)
    return f" At the end: {groups}."


def member_chart(run: RunView) -> Spec | None:
    """Group membership by round: a line per client, or the sizes of the groups where the clients
    are many; ``None`` where it was not kept."""
    rows = [row for row in run.rounds if "sizes" in row]
    if not rows:
        return None
    stays = stays_of(run)
    # Of many clients a line would be thinner than a pixel, and a page of their stays large.
    ticks = lanes(all_events(rows), LANE, LANE_START)
    if stays is not None and run.clients <= MOST_LINES and len(stays) <= MOST_STAYS:
        height = max(120, min(520, (NAMED if _are_named(run) else 5) * run.clients))
        return to_spec(alt.layer(_lines(run, stays), *ticks), height)
    return to_spec(alt.layer(_sizes(run, rows), *ticks), 260)


def _lines(run: RunView, stays: Sequence[Stay]) -> alt.Chart:
    """A line for each client, of as many rectangles as it was in groups."""
    # By group, so that clients that ended together are one block of a colour.
    place = _places(run, stays)
    rows = [
        {
            "client": str(run.names[stay.client]),
            "group": group_name(stay.group),
            "from": displayed_round(stay.start),
            "to": displayed_round(stay.stop - 1),
            "left": displayed_round(stay.start) - 0.5,
            "right": displayed_round(stay.stop) - 0.5,
            "low": place[stay.client],
            "high": place[stay.client] + 0.9,  # a gap below each client's line
        }
        for stay in stays
    ]
    scale = alt.Scale(domain=[0, run.clients], nice=False, reverse=True)
    axis = alt.Axis(labels=False, ticks=False)
    if _are_named(run):
        axis = _names_of_lines([str(run.names[client]) for client in np.argsort(place)])
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_rect()
        .encode(
            _all_rounds(run, "left:Q"),
            alt.Y("low:Q", title=counted(run.clients, "client"), scale=scale, axis=axis),
            colour_by_group(stay.group for stay in stays),
            x2=alt.X2("right:Q"),
            y2=alt.Y2("high:Q"),
            tooltip=tooltip(
                "client:N",
                "group:N",
                alt.Tooltip("from:Q", title="from round"),
                alt.Tooltip("to:Q", title="to round"),
            ),
        )
    )


def _are_named(run: RunView) -> bool:
    return run.clients <= MOST_NAMED


def _names_of_lines(names: Sequence[str]) -> alt.Axis:
    """An axis with the name of each client next to the middle of its line."""
    # ASCII alone: a name is data, whatever it has in it.
    text = f"{json.dumps(list(names))}[floor(datum.value)]"
    middles = [at + 0.45 for at in range(len(names))]
    return alt.Axis(
        values=middles, labelExpr=text, labelLimit=120, labelOverlap=False, ticks=False, grid=False
    )


def _all_rounds(run: RunView, field: str) -> alt.X:
    """The axis from the first to the last round, each with half a round at its sides."""
    first = displayed_round(int(run.rounds[0]["round"]))
    last = displayed_round(int(run.rounds[-1]["round"]))
    across = round_axis(field)
    across.scale = alt.Scale(domain=[first - 0.5, last + 0.5], nice=False)
    return across


def _places(run: RunView, stays: Sequence[Stay]) -> IntArray:
    """The line of each client: by its last group, and in that by the round of its first one."""
    first = np.full(run.clients, len(run.rounds) + 1)
    for stay in stays:
        first[stay.client] = min(first[stay.client], stay.start)
    last = np.where(run.groups < 0, np.iinfo(np.int64).max, run.groups)
    number = np.arange(run.clients)
    place = np.empty(run.clients, np.int64)
    # `lexsort` takes the most important key last; the number settles what is left.
    place[np.lexsort((number, first, last))] = number
    return place


def _sizes(run: RunView, rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    kept = set(thinned([int(row["round"]) for row in rows], MOST_AREAS))
    areas = [
        {
            "round": displayed_round(int(row["round"])),
            "group": group_name(group),
            "clients": int(size),
            "order": group if group >= 0 else LAST,
        }
        for row in rows
        if int(row["round"]) in kept
        for group, size in [*enumerate(row["sizes"]), (NO_GROUP, run.clients - sum(row["sizes"]))]
    ]
    most = max(len(row["sizes"]) for row in rows)
    return (
        alt.Chart(pd.DataFrame(areas))
        .mark_area(interpolate="step-after", line=False, opacity=0.9)
        .encode(
            _all_rounds(run, "round:Q"),
            alt.Y("clients:Q", stack="zero", scale=alt.Scale(domain=[0, run.clients], nice=False)),
            colour_by_group([*range(most), NO_GROUP]),
            order=alt.Order("order:Q"),
            tooltip=tooltip("group:N", "round:Q", "clients:Q"),
        )
    )


def member_table(run: RunView) -> Table:
    """Sizes of the groups in a dozen rounds, and what happened until the next one."""
    rows = [row for row in run.rounds if "sizes" in row]
    kept = thinned(range(len(rows)), MOST_ROWS)
    groups = min(MOST_COLUMNS, max(len(row["sizes"]) for row in rows))
    cells = []
    for before, i in zip([-1, *kept], kept, strict=False):
        sizes = rows[i]["sizes"]
        # Groups come and go with CFL and FedClust; a table has the same columns throughout.
        shown = [*sizes, *[0] * groups][:groups]
        ungrouped = run.clients - sum(sizes)
        number = str(displayed_round(rows[i]["round"]))
        clients: Counter[str] = Counter()
        for event in all_events(rows[before + 1 : i + 1]):
            clients[event.name] += event.clients or 0
        events = ", ".join(f"{count} {name}" for name, count in clients.items()) or "-"
        cells.append([number, *map(str, shown), str(ungrouped), events])
    names = [group_name(group) for group in range(groups)]
    return ["round", *names, group_name(NO_GROUP), "since the row above"], cells

"""What happened in which round, as ticks in lanes above a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.figures.style import tooltip
from coterie.report.view import displayed_round

LETTERS = 16  # of the name of a lane, which stands left of the chart
# What a row counts, and its name on the page.
COUNTS = {"newcomers": "newcomers", "migrations": "migrations", "drifted": "drifts noticed"}
# Clients that a shift keeps back until later: that is the start of a run, no event in it.
AWAITED = "awaited"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to clients in a round, such as ``newcomers`` or ``swap_all``."""

    round: int
    kind: str
    clients: int | None

    @property
    def name(self) -> str:
        """The kind in words."""
        return self.kind.replace("_", " ")


def shift_events(rows: Sequence[Mapping[str, Any]]) -> list[Event]:
    """The shifts of the data.

    Example:
        >>> shift_events([{"round": 1, "shift": [{"shift": "swap_all", "pairs": [[0, 1]]}]}])
        [Event(round=1, kind='swap_all', clients=2)]
    """
    return [
        Event(int(row["round"]), str(event["shift"]), _clients(event))
        for row in rows
        for event in row.get("shift", ())
        if event["shift"] != AWAITED
    ]


def _clients(event: Mapping[str, Any]) -> int | None:
    if "pairs" in event:
        return 2 * len(event["pairs"])
    if "clients" in event:
        return len(event["clients"])
    return None


def all_events(rows: Sequence[Mapping[str, Any]]) -> list[Event]:
    """Newcomers, migrations, noticed drifts and shifts, by round."""
    found = []
    for row in rows:
        found += [
            Event(int(row["round"]), name, int(row[count]))
            for count, name in COUNTS.items()
            if row.get(count)
        ]
        found += shift_events([row])
    return found


def lanes(events: Sequence[Event], height: int, start: int) -> list[Any]:
    """Above a chart a lane for each kind of event, with a tick in each round that had one;
    ``height`` and ``start`` in pixels."""
    # Each kind has a layer of its own, since a lane has no place on the chart's axis: it is so many
    # pixels above.
    layers: list[Any] = []
    kinds = list(dict.fromkeys(event.kind for event in events))
    for lane, kind in enumerate(kinds):
        y = alt.value(-start - height * lane)
        of_kind = [event for event in events if event.kind == kind]
        rows = [
            {
                "round": displayed_round(event.round),
                "event": event.name,
                "clients": event.clients,
            }
            for event in of_kind
        ]
        ticks = alt.Chart(pd.DataFrame(rows)).mark_tick(
            orient="vertical", thickness=2, height=11, opacity=0.85
        )
        layers.append(
            ticks.encode(
                x=alt.X("round:Q"), y=y, tooltip=tooltip("event:N", "round:Q", "clients:Q")
            )
        )
        name = alt.Chart(pd.DataFrame([{"event": of_kind[0].name[:LETTERS]}])).mark_text(
            align="right", baseline="middle", fontSize=11
        )
        layers.append(name.encode(x=alt.value(-8), y=y, text=alt.Text("event:N")))
    return layers

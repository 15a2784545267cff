"""The chart of who is in which group, from round to round, with newcomers, migrations and shifts
marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import IntArray
from coterie.report.colours import NONE, Spec, by_round, finished, group_colour, group_name
from coterie.report.courses import met
from coterie.report.series import thinned
from coterie.report.view import RunView, displayed

ONE_BY_ONE = 150  # clients of whom each has a line of its own
STAYS = 6000  # of all of them
LETTERS = 16  # of a lane's name
LANE = 16  # pixels between two lanes of marks
MARKS = {"newcomers": "newcomers", "migrations": "migrations", "drifted": "drifts noticed"}


def member_chart(run: RunView) -> Spec | None:
    """Group membership by round: a line per client, or for many the groups' sizes; ``None`` where
    it was not kept."""
    rows = [row for row in run.rounds if "sizes" in row]
    if not rows:
        return None
    held = stays(run)
    lanes = _lanes(rows)
    if held is not None and run.clients <= ONE_BY_ONE and len(held) <= STAYS:
        chart = _one_by_one(run, held)
        height = max(120, min(520, 5 * run.clients))
    else:
        chart = _sizes(run, rows)
        height = 260
    return finished(alt.layer(chart, *lanes), height)


def stays(run: RunView) -> list[dict[str, int]] | None:
    """Each time that a client spent in a group: client, group, the rounds ``[start, stop)``.

    ``None`` for a run that did not keep the moves.

    Example:
        >>> rows = [{"round": 0, "moves": [[0, 1]]}, {"round": 1, "moves": []}, {"round": 2, "moves": [[0, 0]]}]
        >>> for stay in stays(RunView("a", rows, np.array([0]), "x")):
        ...     print(stay)
        {'client': 0, 'group': 1, 'start': 0, 'stop': 2}
        {'client': 0, 'group': 0, 'start': 2, 'stop': 3}
    """
    if any("moves" not in row for row in run.rounds):
        return None
    since: dict[int, tuple[int, int]] = {}
    found = []
    for row in run.rounds:
        for client, group in row["moves"]:
            if client in since:
                found.append(_stay(client, *since[client], int(row["round"])))
            since[int(client)] = (int(group), int(row["round"]))
    end = int(run.rounds[-1]["round"]) + 1 if run.rounds else 0
    found += [_stay(client, *at, end) for client, at in since.items()]
    return [stay for stay in found if stay["group"] >= 0]


def _stay(client: int, group: int, start: int, stop: int) -> dict[str, int]:
    return {"client": client, "group": group, "start": start, "stop": stop}


def _one_by_one(run: RunView, held: Sequence[Mapping[str, int]]) -> alt.Chart:
    place = _places(run, held)
    rows = [
        {
            "client": str(run.names[stay["client"]]),
            "group": group_name(stay["group"]),
            "from": displayed(stay["start"]),
            "to": displayed(stay["stop"] - 1),
            "left": displayed(stay["start"]) - 0.5,
            "right": displayed(stay["stop"]) - 0.5,
            "low": place[stay["client"]],
            "high": place[stay["client"]] + 0.9,
        }
        for stay in held
    ]
    scale = alt.Scale(domain=[0, run.clients], nice=False, reverse=True)
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_rect()
        .encode(
            _across(run, "left:Q"),
            alt.Y(
                "low:Q",
                title=f"{run.clients} clients",
                scale=scale,
                axis=alt.Axis(labels=False, ticks=False),
            ),
            group_colour(stay["group"] for stay in held),
            x2="right:Q",
            y2="high:Q",
            tooltip=[
                "client:N",
                "group:N",
                alt.Tooltip("from:Q", title="from round"),
                alt.Tooltip("to:Q", title="to round"),
            ],
        )
    )


def _across(run: RunView, field: str) -> alt.X:
    across = by_round(field)
    first = displayed(int(run.rounds[0]["round"]))
    last = displayed(int(run.rounds[-1]["round"]))
    ends = [first - 0.5, last + 0.5]
    across.scale = alt.Scale(domain=ends, nice=False)
    return across


def _places(run: RunView, held: Sequence[Mapping[str, int]]) -> IntArray:
    """Clients in order of their last group, and in it of the round in which they first had one."""
    first = np.full(run.clients, len(run.rounds) + 1)
    for stay in held:
        first[stay["client"]] = min(first[stay["client"]], stay["start"])
    last = np.where(run.groups < 0, np.iinfo(np.int64).max, run.groups)
    place = np.empty(run.clients, np.int64)
    place[np.lexsort((np.arange(run.clients), first, last))] = np.arange(run.clients)
    return place


def _sizes(run: RunView, rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    kept = set(thinned([int(row["round"]) for row in rows], 250))
    counted = [
        {
            "round": displayed(int(row["round"])),
            "group": group_name(g),
            "clients": int(n),
            "order": g if g >= 0 else 10**6,
        }
        for row in rows
        if int(row["round"]) in kept
        for g, n in [*enumerate(row["sizes"]), (NONE, run.clients - sum(row["sizes"]))]
    ]
    groups = {g for row in rows for g in range(len(row["sizes"]))} | {NONE}
    return (
        alt.Chart(pd.DataFrame(counted))
        .mark_area(interpolate="step-after", line=False, opacity=0.9)
        .encode(
            _across(run, "round:Q"),
            alt.Y("clients:Q", stack="zero", scale=alt.Scale(domain=[0, run.clients], nice=False)),
            group_colour(groups),
            order="order:Q",
            tooltip=["group:N", alt.Tooltip("round:Q"), "clients:Q"],
        )
    )


def marks(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What happened in which round, and to how many clients.

    Example:
        >>> event = {"shift": "swap_all", "pairs": [[0, 1]]}
        >>> marks([{"round": 0, "newcomers": 2, "migrations": 0}, {"round": 1, "shift": [event]}])
        [{'round': 0, 'what': 'newcomers', 'clients': 2}, {'round': 1, 'what': 'swap all', 'clients': 2}]
    """
    found = []
    for row in rows:
        happened = [(said, int(row[name])) for name, said in MARKS.items() if row.get(name)]
        events = [event for event in row.get("shift", ()) if event["shift"] != "awaited"]
        happened += [(str(event["shift"]).replace("_", " "), met(event) or 0) for event in events]
        found += [
            {"round": int(row["round"]), "what": what, "clients": clients}
            for what, clients in happened
        ]
    return found


def _lanes(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Above the chart a lane for each kind of event, a tick in each round in which there was
    one."""
    events = [{**event, "round": displayed(event["round"])} for event in marks(rows)]
    layers: list[Any] = []
    for lane, what in enumerate(dict.fromkeys(event["what"] for event in events)):
        at = alt.value(-12 - LANE * lane)
        here = alt.Chart(pd.DataFrame([e for e in events if e["what"] == what])).encode(y=at)
        ticks = here.mark_tick(orient="vertical", thickness=2, height=11, opacity=0.85)
        layers.append(ticks.encode(x="round:Q", tooltip=["what:N", "round:Q", "clients:Q"]))
        name = alt.Chart(pd.DataFrame([{"what": what[:LETTERS]}])).encode(y=at, x=alt.value(-8))
        layers.append(
            name.mark_text(align="right", baseline="middle", fontSize=11).encode(text="what:N")
        )
    return layers

"""Charts of what happens from round to round beside the accuracy: shifts, agreement with the truth,
divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from coterie.report.colours import GROUPS, RUNS, Spec, by_round, colour, finished
from coterie.report.view import RunView, displayed

COUNTS = {
    "changed": "data changed",
    "migrations": "noticed: moved to another group",
    "same_group": "noticed: stayed",
    "missed": "missed",
}
LANE = 14  # pixels between the schedules of two kinds of shift


def shift_chart(run: RunView) -> Spec | None:
    """Clients by round: whose data changed, and of whom the method noticed or missed it; ticks say
    when a shift came.

    Returns:
        ``None`` for a run without shifts.
    """
    shifted = [row for row in run.rounds if "shift" in row]
    if not shifted:
        return None
    rows = [bar for row in shifted for bar in _bars(row)]
    told = [name for name in COUNTS if any(row["what"] == COUNTS[name] for row in rows)]
    shades = dict(zip(COUNTS, (RUNS[0], GROUPS[0], GROUPS[6], GROUPS[1]), strict=True))
    what = colour(
        "what", [COUNTS[name] for name in told], tuple(shades[name] for name in told), None
    )
    what.legend = alt.Legend(symbolOpacity=1, columns=1)
    base = alt.Chart(pd.DataFrame(rows)).encode(what, tooltip=["what:N", "round:Q", "clients:Q"])
    across = by_round("left:Q")
    across.scale = alt.Scale(
        domain=[displayed(shifted[0]["round"]) - 0.7, displayed(shifted[-1]["round"]) + 0.7],
        nice=False,
    )
    counts = base.mark_rect().encode(
        across, alt.Y("low:Q", title="clients"), x2="right:Q", y2="high:Q"
    )
    changed, others = (
        counts.transform_filter(f"datum.what {sign} '{COUNTS['changed']}'") for sign in ("==", "!=")
    )
    return finished(alt.layer(changed.mark_rect(opacity=0.35), others, *_schedule(shifted)), 260)


def _bars(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A wide bar of all whose data changed, and on it a stack of what became of it; none of what is
    zero."""
    at = displayed(int(row["round"]))
    high = 0
    found = []
    for name, shown in COUNTS.items():
        clients = int(row.get(name) or 0)
        low = 0 if name == "changed" else high
        half = 0.48 if name == "changed" else 0.3
        high = low + clients if name != "changed" else 0
        edges = {"left": at - half, "right": at + half, "low": low, "high": low + clients}
        found.append({"round": at, "clients": clients, "what": shown, **edges})
    return [bar for bar in found if bar["clients"]] or found[:1]


def _schedule(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Above the chart a lane for each kind of shift, a tick in each round in which it came."""
    events = [
        {"round": displayed(row["round"]), "shift": str(event["shift"]), "clients": met(event)}
        for row in rows
        for event in row["shift"]
        if event["shift"] != "awaited"  # those who arrive later
    ]
    kinds = list(dict.fromkeys(event["shift"] for event in events))
    lanes: list[Any] = []
    for lane, kind in enumerate(kinds):
        at = alt.value(-18 - LANE * lane)
        here = alt.Chart(pd.DataFrame([e for e in events if e["shift"] == kind])).encode(y=at)
        ticks = here.mark_tick(orient="vertical", thickness=2, height=10, opacity=0.8)
        lanes.append(ticks.encode(x="round:Q", tooltip=["shift:N", "round:Q", "clients:Q"]))
        name = alt.Chart(pd.DataFrame([{"shift": kind.replace("_", " ")}])).encode(
            y=at, x=alt.value(-8)
        )
        lanes.append(
            name.mark_text(align="right", baseline="middle", fontSize=11).encode(text="shift:N")
        )
    return lanes


def met(event: Mapping[str, Any]) -> int | None:
    """How many clients an event met, where it says so."""
    if "pairs" in event:
        return 2 * len(event["pairs"])
    if "clients" in event:
        return len(event["clients"])
    return None


def agreement_chart(runs: Sequence[RunView]) -> Spec | None:
    """How well groups agree with the planted ones, by round; ``None`` where nothing was planted."""
    grouped = [run for run in runs if run.count > 1] or runs
    names = {"ari": "adjusted Rand index", "nmi": "mutual information"}
    rows = [
        {
            "round": displayed(row["round"]),
            "agreement": row["agreement"][name],
            "what": shown,
            "run": run.name,
        }
        for run in grouped
        for row in run.rounds
        if row.get("agreement")
        for name, shown in names.items()
    ]
    told = list(dict.fromkeys(row["run"] for row in rows))
    if not rows:
        return None
    low = min(0.0, *(row["agreement"] for row in rows))
    lines = _lines(rows, "agreement", "agreement, 1 = the same groups", [low, 1])
    lines = lines.encode(
        tooltip=["run:N", "what:N", "round:Q", alt.Tooltip("agreement:Q", format=".3f")]
    )
    strokes = alt.Legend(symbolType="stroke", symbolSize=400, symbolOpacity=1)
    dash = alt.StrokeDash("what:N", title=None, sort=list(names.values()), legend=strokes)
    if len(told) > 1:
        shades = tuple(RUNS[at % len(RUNS)] for at, run in enumerate(runs) if run.name in told)
        base = lines.encode(colour("run", told, shades, "run"))
        # The marks that answer the mouse are a layer of their own: as points of the dashed lines
        # they would make the strokes of the legend invisible.
        dashed = base.mark_line(strokeWidth=2.2).encode(dash)
        points = base.mark_point(size=60, opacity=0, tooltip=True).encode(detail="what:N")
        return finished(alt.layer(dashed, points), 220)
    return finished(lines.encode(colour("what", list(names.values()), GROUPS, None)), 220)


def divergence_chart(run: RunView) -> Spec | None:
    """Gradient divergence within groups by round, with the run's and as if all were one; ``None``
    if unmeasured."""
    names = {"divergence": "with these groups", "divergence_one": "as one group"}
    rows = [
        {"round": displayed(row["round"]), "divergence": row["theory"][name], "what": shown}
        for row in run.rounds
        if row.get("theory")
        for name, shown in names.items()
        if row["theory"].get(name) is not None
    ]
    if not rows:
        return None
    lines = _lines(rows, "divergence", "gradient divergence")
    shades = colour("what", list(names.values()), (GROUPS[0], RUNS[0]), None)
    return finished(
        lines.encode(
            shades, tooltip=["what:N", "round:Q", alt.Tooltip("divergence:Q", format=".4g")]
        ),
        240,
    )


def _lines(
    rows: Sequence[Mapping[str, Any]], field: str, title: str, domain: Sequence[float] | None = None
) -> Any:
    scale = alt.Undefined if domain is None else alt.Scale(domain=list(domain))
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_line(strokeWidth=2.2, point={"size": 60, "opacity": 0, "tooltip": True})
        .encode(
            x=by_round("round:Q"),
            y=alt.Y(f"{field}:Q", title=title, scale=scale),
        )
    )

"""What is measured of groups from round to round: their agreement with the planted ones, and the
divergence of gradients in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.headline import decimals_for
from coterie.report.figures.style import (
    GROUPS,
    MOST_ROWS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
    tooltip,
)
from coterie.report.render import Section, Table, chart_section
from coterie.report.series import Series, thinned
from coterie.report.view import RunView, displayed_round
from coterie.terminal import number_text

AGREEMENT_NAMES = {"ari": "adjusted Rand index", "nmi": "mutual information"}
AGREEMENT_NOTE = (
    "How well the groups agree with the planted ones after each round, as adjusted Rand index. 1 is "
    "the same grouping, and a random one has about 0. The table also shows the mutual information."
)
# Widths of lines, in pixels.
NARROWEST = 2.2
WIDEST = 10.0
DIVERGENCE_NAMES = {"divergence": "with these groups", "divergence_one": "as one group"}
DIVERGENCE_NOTE = (
    "The mean distance of a client's gradient from that of its group (FedGroup, definition 2). A "
    "smaller distance means that the group's model suits its clients better."
)


def agreement_section(series: Sequence[Series]) -> list[Section]:
    """Agreement with the planted groups, where some were planted."""
    runs = [one.first for one in series]
    spec = agreement_chart(runs)
    if spec is None:
        return []
    title = "Agreement with the planted groups"
    table = _table(runs, "agreement", AGREEMENT_NAMES, ".2f")
    return [chart_section(title, "", "agreement", spec, table, AGREEMENT_NOTE)]


def divergence_section(run: RunView, number: int) -> list[Section]:
    """Divergence of the gradients, if it was measured."""
    spec = divergence_chart(run)
    if spec is None:
        return []
    title = "How far apart gradients are"
    known = [
        row["theory"].get(name) or 0.0
        for row in run.rounds
        if row.get("theory")
        for name in DIVERGENCE_NAMES
    ]
    decimals = decimals_for(max(known) or 1.0)
    table = _table([run], "theory", DIVERGENCE_NAMES, f".{decimals}f")
    name = f"theory-{number}"
    return [chart_section(title, _bounds(run), name, spec, table, DIVERGENCE_NOTE)]


def agreement_chart(runs: Sequence[RunView]) -> Spec | None:
    """How well groups agree with the planted ones, by round; ``None`` where nothing was planted."""
    # Of several runs those without groups are left out: their agreement is 0 throughout.
    grouped = [run for run in runs if run.group_count > 1] or runs
    rows = _agreements(grouped)
    if not rows:
        return None
    # The adjusted Rand index of groups that are worse than chance is negative.
    low = min(0.0, *(row["agreement"] for row in rows))
    # A little more than 1: a line there would lie on the frame.
    up = alt.Y(
        "agreement:Q", title="adjusted Rand index", scale=alt.Scale(domain=[low, 1.04], nice=False)
    )
    shown = list(dict.fromkeys(row["run"] for row in rows))
    # A run has the colour that it has in the chart of accuracies, where all runs are.
    palette = [RUNS[i % len(RUNS)] for i, run in enumerate(runs) if run.name in shown]
    colour = colour_by("run", shown, palette, "run") if len(runs) > 1 else alt.value(GROUPS[0])
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(point=TOOLTIP_POINTS)
    encoded = lines.encode(
        color=colour,
        x=round_axis("round:Q"),
        y=up,
        strokeWidth=_narrower(len(grouped)),
        tooltip=tooltip(
            "run:N",
            "round:Q",
            alt.Tooltip("agreement:Q", title="adjusted Rand index", format=".3f"),
            alt.Tooltip("information:Q", title="mutual information", format=".3f"),
        ),
    )
    return to_spec(encoded, 220)


def _agreements(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    return [
        {
            "round": displayed_round(row["round"]),
            "agreement": row["agreement"]["ari"],
            "information": row["agreement"]["nmi"],
            "run": run.name,
            # Not its name: scales of the same values share one legend.
            "line": str(number),
        }
        for number, run in enumerate(runs)
        for row in run.rounds
        if row.get("agreement")
    ]


def _narrower(lines: int) -> alt.StrokeWidth:
    """Each line narrower than the one before, which it would hide where both have the same values:
    often all of them agree fully."""
    widest = min(WIDEST, NARROWEST + 4.0 * (lines - 1))
    widths = np.linspace(widest, NARROWEST, lines).tolist()
    scale = alt.Scale(domain=[str(i) for i in range(lines)], range=widths)
    return alt.StrokeWidth("line:O", scale=scale, legend=None)


def divergence_chart(run: RunView) -> Spec | None:
    """Divergence of the clients' gradients by round, with the run's groups and as if all were one
    group; ``None`` if it was not measured."""
    rows = [
        {
            "round": displayed_round(row["round"]),
            "divergence": row["theory"][measure],
            "what": name,
        }
        for row in run.rounds
        if row.get("theory")
        for measure, name in DIVERGENCE_NAMES.items()
        if row["theory"].get(measure) is not None
    ]
    if not rows:
        return None
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(strokeWidth=2.2, point=TOOLTIP_POINTS)
    colour = colour_by("what", list(DIVERGENCE_NAMES.values()), (GROUPS[0], RUNS[0]), None)
    encoded = lines.encode(
        colour,
        x=round_axis("round:Q"),
        y=alt.Y("divergence:Q", title="gradient divergence"),
        tooltip=tooltip("what:N", "round:Q", alt.Tooltip("divergence:Q", format=".4g")),
    )
    return to_spec(encoded, 240)


def _bounds(run: RunView) -> str:
    # Theory may be measured in some rounds only.
    last = next(row["theory"] for row in reversed(run.rounds) if row.get("theory"))
    if last.get("bound") is None or last.get("bound_one") is None:
        return ""
    grouped = f"{last['bound']:.4g} with these groups"
    alone = f"{last['bound_one']:.4g} as one group"
    return f"The bound on the loss after the last round is {grouped}, {alone}."


def _table(runs: Sequence[RunView], measure: str, names: Mapping[str, str], digits: str) -> Table:
    """A measure in a dozen rounds of each run."""
    rows = []
    for run in runs:
        known = [row for row in run.rounds if row.get(measure)]
        for i in thinned(range(len(known)), MOST_ROWS):
            values = [number_text(known[i][measure].get(name), digits) for name in names]
            rows.append([run.name, str(displayed_round(known[i]["round"])), *values])
    return ["run", "round", *names.values()], rows

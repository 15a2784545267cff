"""The clients of a run: the map of who is alike, the label mix of their groups, and where newcomers
were placed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import NO_GROUP
from coterie.report.figures.style import (
    LABELS,
    MOST_COLUMNS,
    MOST_NAMED,
    PERCENT,
    Spec,
    colour_by,
    colour_by_group,
    group_name,
    named_marks,
    to_spec,
    tooltip,
    with_sides,
)
from coterie.report.render import Section, Table, chart_section
from coterie.report.view import NewcomerPlacement, RunView, displayed_round, newcomer_placements
from coterie.terminal import counted, first_few

MANY_CLIENTS = 200  # beyond which their marks are smaller
BAR = 44  # pixels of a group's bar, with the gap after it
MOST_NAMES = 12  # of the clients of a group
MOST_NEWCOMERS = 100  # that are listed; the rest is in the run's files
MIX_NOTE = (
    "The labels of the training samples in each group at the end. If the mixes are similar, the "
    "groups differ in something other than labels."
)


# --- the map --------------------------------------------------------------------------------------


def map_section(run: RunView, number: int) -> list[Section]:
    """Who is alike; none where the clients' places are not known."""
    if run.embedding is None:
        return []
    note = f"Each mark is a client, placed by {run.placed_by}. Nearby clients are similar."
    note += " Colour is the group."
    if run.planted is not None:
        note += " Shape is the planted population."
    if len(run.newcomer_ids):
        note += " Hollow marks are newcomers."
    return [chart_section("Who is alike", note, f"map-{number}", map_chart(run), client_table(run))]


def map_chart(run: RunView) -> Spec:
    """The clients by their embedding: colour is the group, shape the planted population, and a
    hollow mark a newcomer."""
    assert run.embedding is not None
    points = rotated_to_axes(run.embedding)
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    rows = with_sides([_mark(run, int(i), points[i]) for i in known], 380)
    scale = alt.Scale(zero=False, padding=16)
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("x:Q", title="first axis", scale=scale, axis=alt.Axis(tickCount=5)),
        y=alt.Y("y:Q", title="second axis", scale=scale, axis=alt.Axis(tickCount=5)),
        color=colour_by_group(run.groups),
        tooltip=tooltip("client:N", "group:N", "population:N", "came:N"),
    )
    if run.planted is not None:
        letters = sorted({row["population"] for row in rows})
        shape = alt.Shape("population:N", title="planted population", sort=letters)
        base = base.encode(shape=shape)
    # Colour shows the group, so the fill is free to show newcomers.
    size = 85 if run.clients <= MANY_CLIENTS else 40
    filled = base.mark_point(filled=True, size=size, opacity=0.88)
    names = named_marks(filled) if len(rows) <= MOST_NAMED else []
    if not any(row["late"] for row in rows):
        return to_spec(alt.layer(filled, *names), 380)
    hollow = base.mark_point(filled=False, size=1.5 * size, strokeWidth=2.6, opacity=1)
    layers = alt.layer(
        filled.transform_filter("!datum.late"), hollow.transform_filter("datum.late"), *names
    )
    return to_spec(layers, 380)


def _mark(run: RunView, i: int, point: FloatArray) -> dict[str, Any]:
    newcomer = bool(run.newcomers is not None and run.newcomers[i])
    return {
        # Five digits draw the same picture, and keep the page small.
        "x": round(float(point[0]), 5),
        "y": round(float(point[1]), 5),
        "client": str(run.names[i]),
        "group": group_name(int(run.groups[i])),
        "population": "" if run.planted is None else population_letter(int(run.planted[i])),
        "late": newcomer,
        "came": "newcomer" if newcomer else "from the start",
    }


def population_letter(number: int) -> str:
    """The name of a planted population: a letter, so that it is not taken for a group.

    Example:
        >>> population_letter(2)
        'C'
    """
    return chr(ord("A") + number % 26)


def rotated_to_axes(embedding: FloatArray) -> FloatArray:
    """An embedding ``[N, m]`` along its two axes of greatest spread, ``[N, 2]``."""
    points = np.asarray(embedding, np.float64)
    known = np.isfinite(points).all(axis=1)
    if known.any():
        points = points - points[known].mean(axis=0)
    _, _, axes = np.linalg.svd(points[known], full_matrices=False)
    axes = axes[:2]
    # The sign of a singular vector is arbitrary: with the largest entry positive, the same run
    # gives the same picture on every machine.
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    flat = points @ (axes * signs[:, None]).T
    flat = np.where(np.abs(flat) < 1e-12, 0.0, flat)
    return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))


def client_table(run: RunView) -> Table:
    """The clients of each group, the first of them by name."""
    rows = []
    for group in np.unique(run.groups):
        members = np.flatnonzero(run.groups == group)
        names = first_few([str(run.names[i]) for i in members.tolist()], MOST_NAMES)
        rows.append([group_name(int(group)), f"{len(members):,}", names])
    return ["group", "clients", "names"], rows


# --- the label mix --------------------------------------------------------------------------------


def mix_section(run: RunView, number: int) -> list[Section]:
    """The label mix of the groups, where labels were read."""
    if run.histograms is None:
        return []
    name = f"mix-{number}"
    return [
        chart_section("Label mix of the groups", MIX_NOTE, name, mix_chart(run), mix_table(run))
    ]


def mix_chart(run: RunView) -> Spec:
    """One bar a group, its clients' training labels in shares of 100 %."""
    labels = _label_names(run)
    counts = _label_counts(run)
    rows = [
        {"group": group, "label": labels[c], "samples": int(of_group[c]), "order": c}
        for group, of_group in counts.items()
        for c in np.flatnonzero(of_group).tolist()
    ]
    # Shares, not samples: groups differ in size, and their mixes are compared.
    share = alt.X(
        "samples:Q",
        stack="normalize",
        title="share of the training samples",
        axis=alt.Axis(tickCount=5, labelExpr="format(100 * datum.value, 'd') + ' %'"),
    )
    bars = alt.Chart(pd.DataFrame(rows)).mark_bar(height={"band": 0.75})
    chart = bars.encode(
        share,
        y=alt.Y("group:N", title=None, sort=list(counts)),
        color=colour_by("label", labels, LABELS, "label"),
        order=alt.Order("order:Q"),
        tooltip=tooltip("group:N", "label:N", "samples:Q"),
    )
    return to_spec(chart, BAR * max(2, run.group_count) + 20)


def mix_table(run: RunView) -> Table:
    """The labels that most samples of each group carry."""
    names = _label_names(run)
    rows = []
    for group, counts in _label_counts(run).items():
        total = int(counts.sum())
        largest = np.argsort(-counts, kind="stable")[:MOST_COLUMNS]
        shares = [f"{names[c]} {PERCENT * counts[c] / total:.0f} %" for c in largest if counts[c]]
        rows.append([group, f"{total:,}", ", ".join(shares)])
    return ["group", "samples", "largest labels"], rows


def _label_names(run: RunView) -> list[str]:
    """The names of the classes; their numbers where they have none."""
    assert run.histograms is not None
    return [str(name) for name in run.labels] or [str(c) for c in range(run.histograms.shape[1])]


def _label_counts(run: RunView) -> Mapping[str, IntArray]:
    """The training labels of each group."""
    assert run.histograms is not None
    return {
        group_name(int(group)): run.histograms[run.groups == group].sum(axis=0)
        for group in np.unique(run.groups)
    }


# --- newcomers ------------------------------------------------------------------------------------


def newcomer_section(run: RunView) -> list[Section]:
    """Where newcomers were placed; none in a run without them."""
    placements = newcomer_placements(run)
    if not placements:
        return []
    columns = ["client", "joined in round", "population", "placed in", "with its population"]
    known = [placed.right for placed in placements if placed.right is not None]
    note = f"{counted(len(placements), 'client')} joined late."
    if known:
        right = f"{sum(known)} of {len(known)}"
        note = f"{right} were placed with the clients of their own population."
    if len(placements) > MOST_NEWCOMERS:
        note += f" The first {MOST_NEWCOMERS} are listed."
    return [
        {
            "title": "Where newcomers were placed",
            "note": note,
            "columns": columns,
            "rows": [_newcomer_row(placed) for placed in placements[:MOST_NEWCOMERS]],
        }
    ]


def _newcomer_row(placed: NewcomerPlacement) -> list[Any]:
    joined = "-"
    if placed.round is not None:
        joined = str(displayed_round(placed.round))
    population = "-"
    if placed.population is not None:
        population = population_letter(placed.population)
    group = group_name(NO_GROUP if placed.group is None else placed.group)
    verdict: Any = "-"
    if placed.right is not None:
        verdict = ("yes", "good") if placed.right else ("no", "bad")
    return [placed.client, joined, population, (group, "figure"), verdict]

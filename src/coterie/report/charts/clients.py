"""The clients of a run: the map of who is alike, and the label mix of their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import FloatArray
from coterie.report.charts.style import (
    LABELS,
    Spec,
    colour_by,
    colour_by_group,
    group_name,
    to_spec,
)
from coterie.report.view import RunView

MANY_CLIENTS = 200  # beyond which their marks are smaller
BAR = 44  # pixels of a group's bar, with the gap after it


def map_chart(run: RunView) -> Spec:
    """The clients by their embedding: colour is the group, shape the planted population, and a
    hollow mark a newcomer."""
    assert run.embedding is not None
    points = rotated_to_axes(run.embedding)
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    rows = [_mark(run, int(i), points[i]) for i in known]
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=_axis("x:Q", "first axis of spread"),
        y=_axis("y:Q", "second axis"),
        color=colour_by_group(run.groups),
        tooltip=[
            alt.Tooltip("client:N"),
            alt.Tooltip("group:N"),
            alt.Tooltip("population:N"),
            alt.Tooltip("came:N"),
        ],
    )
    if run.planted is not None:
        letters = sorted({row["population"] for row in rows})
        shape = alt.Shape("population:N", title="planted population", sort=letters)
        base = base.encode(shape=shape)
    # Colour shows the group, so the fill is free to show newcomers.
    size = 85 if run.clients <= MANY_CLIENTS else 40
    filled = base.mark_point(filled=True, size=size, opacity=0.88)
    if not any(row["late"] for row in rows):
        return to_spec(filled, 380)
    hollow = base.mark_point(filled=False, size=1.5 * size, strokeWidth=2.6, opacity=1)
    layers = alt.layer(
        filled.transform_filter("!datum.late"), hollow.transform_filter("datum.late")
    )
    return to_spec(layers, 380)


def _axis(field: str, title: str) -> Any:
    kind = alt.X if field.startswith("x") else alt.Y
    return kind(field, title=title, scale=alt.Scale(zero=False, padding=16))


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
    """Turn an embedding ``[N, m]`` so that its two axes of greatest spread come first, ``[N, 2]``;
    distances are kept.

    Example:
        >>> rotated_to_axes(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
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


def mix_chart(run: RunView) -> Spec:
    """The label mix of each group: one bar a group, its clients' training labels in shares of
    100 %."""
    assert run.histograms is not None
    labels = label_names(run)
    groups = [int(group) for group in np.unique(run.groups)]
    rows = [row for group in groups for row in _label_counts(run, group, labels)]
    # Shares, not samples: groups differ in size, and their mixes are compared.
    share = alt.X(
        "samples:Q",
        stack="normalize",
        title="share of the training samples",
        axis=alt.Axis(format="%"),
    )
    bars = alt.Chart(pd.DataFrame(rows)).mark_bar(height={"band": 0.75})
    chart = bars.encode(
        share,
        y=alt.Y("group:N", title=None, sort=[group_name(group) for group in groups]),
        color=colour_by("label", labels, LABELS, "label"),
        order=alt.Order("order:Q"),
        tooltip=[alt.Tooltip("group:N"), alt.Tooltip("label:N"), alt.Tooltip("samples:Q")],
    )
    return to_spec(chart, BAR * max(2, run.group_count) + 20)


def label_names(run: RunView) -> list[str]:
    """The names of the classes; their numbers where they have none."""
    assert run.histograms is not None
    return [str(name) for name in run.labels] or [str(c) for c in range(run.histograms.shape[1])]


def _label_counts(run: RunView, group: int, labels: Sequence[str]) -> list[Mapping[str, Any]]:
    assert run.histograms is not None
    counts = run.histograms[run.groups == group].sum(axis=0)
    return [
        {"group": group_name(group), "label": labels[c], "samples": int(counts[c]), "order": c}
        for c in range(len(counts))
        if counts[c]
    ]

"""The page's charts, as Altair specifications without a theme: the page adds light or dark when it
draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import FloatArray
from coterie.report.colours import (
    GROUPS,
    LABELS,
    RUNS,
    Spec,
    by_round,
    colour,
    finished,
    group_colour,
    group_name,
)
from coterie.report.series import Series, series_of
from coterie.report.view import RunView, displayed

POINTS = 100.0


def accuracy_chart(runs: Sequence[RunView]) -> Spec:
    """Accuracy by round: a line per series, a band from its least to its greatest seed, a rule
    where newcomers came."""
    series = series_of(runs)
    rows = [
        {
            "round": displayed(int(at["round"])),
            "run": one.name,
            **{name: POINTS * at[name] for name in ("mean", "low", "high")},
        }
        for one in series
        for at in one.curve()
    ]
    many = any(len(one.runs) > 1 for one in series)
    name = "mean" if many else "accuracy"
    colours = _run_colour(series)
    tooltip: list[Any] = [
        "run:N",
        "round:Q",
        alt.Tooltip("mean:Q", format=".1f", title=f"{name}, %"),
    ]
    ends = [alt.Tooltip(f"{end}:Q", format=".1f", title=f"{said} seed, %") for end, said in ENDS]
    base = alt.Chart(pd.DataFrame(rows)).encode(by_round("round:Q"), color=colours)
    across = alt.Scale(
        domain=_room([POINTS * at[end] for one in series for at in one.curve() for end, _ in ENDS])
    )
    lines = base.mark_line(
        strokeWidth=2.5, point={"size": 60, "opacity": 0, "tooltip": True}
    ).encode(
        y=alt.Y("mean:Q", title="accuracy, %", scale=across),
        tooltip=tooltip + (ends if many else []),
    )
    band = base.mark_area(opacity=0.16, line=False, tooltip=False).encode(
        y=alt.Y("low:Q", scale=across), y2="high:Q"
    )
    arrivals = sorted({r for run in runs for r in _arrivals(run)})
    layers = [*([_rule(arrivals[0])] if arrivals else []), *([band] if many else []), lines]
    return finished(alt.layer(*layers), 300)


ENDS = (("low", "lowest"), ("high", "highest"))


def _run_colour(series: Sequence[Series]) -> Any:
    names = [one.name for one in series]
    if len(series) > 1:
        return colour("run", names, RUNS, "run")
    return alt.value(GROUPS[0])


def _room(values: Sequence[float]) -> list[float]:
    """From zero, unless all values lie so high that half of the chart would be empty."""
    low = min(values, default=0)
    return [10 * (low // 10) - 10 if low >= 60 else 0, 100]


def _arrivals(run: RunView) -> list[int]:
    if run.joined is None or run.count < 2:
        return []
    return [int(r) for r in run.joined[run.late] if r >= 0]


def _rule(round: int) -> alt.LayerChart:
    frame = pd.DataFrame([{"round": displayed(round), "text": "first newcomers"}])
    base = alt.Chart(frame).encode(x="round:Q")
    text = base.mark_text(align="left", dx=6, baseline="bottom", fontSize=11, opacity=0.85).encode(
        text="text:N", y=alt.value(296)
    )
    return alt.layer(base.mark_rule(strokeDash=[4, 4], opacity=0.55), text)


def map_chart(run: RunView) -> Spec:
    """The clients by their embedding: colour is the group, shape the planted population, hollow a
    newcomer."""
    assert run.embedding is not None
    flat = plane(run.embedding)
    rows = [_dot(run, i, flat[i]) for i in range(run.clients) if np.isfinite(flat[i]).all()]
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("x:Q", title="first axis of spread", scale=alt.Scale(zero=False, padding=16)),
        y=alt.Y("y:Q", title="second axis", scale=alt.Scale(zero=False, padding=16)),
        color=group_colour(run.groups),
        tooltip=["client:N", "group:N", "population:N", "came:N"],
    )
    if run.planted is not None:
        letters = sorted({row["population"] for row in rows})
        base = base.encode(
            shape=alt.Shape("population:N", title="planted population", sort=letters)
        )
    size = 85 if run.clients <= 200 else 40
    early = base.mark_point(filled=True, size=size, opacity=0.88)
    if not any(row["late"] for row in rows):
        return finished(early, 380)
    late = base.transform_filter("datum.late").mark_point(
        filled=False, size=1.5 * size, strokeWidth=2.6, opacity=1
    )
    return finished(alt.layer(early.transform_filter("!datum.late"), late), 380)


def _dot(run: RunView, i: int, at: FloatArray) -> dict[str, Any]:
    late = bool(run.newcomers is not None and run.newcomers[i])
    return {
        "x": round(float(at[0]), 5),
        "y": round(float(at[1]), 5),
        "client": str(run.names[i]),
        "group": group_name(int(run.groups[i])),
        "population": "" if run.planted is None else chr(ord("A") + int(run.planted[i]) % 26),
        "late": late,
        "came": "newcomer" if late else "from the start",
    }


def plane(embedding: FloatArray) -> FloatArray:
    """Turn an embedding ``[N, m]`` so that its two axes of greatest spread come first, ``[N, 2]``;
    distances are kept.

    Example:
        >>> plane(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
    points = np.asarray(embedding, np.float64)
    known = np.isfinite(points).all(axis=1)
    centred = points - points[known].mean(axis=0) if known.any() else points
    _, _, axes = np.linalg.svd(centred[known], full_matrices=False)
    axes = axes[:2]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    flat = centred @ (axes * signs[:, None]).T
    flat = np.where(np.abs(flat) < 1e-12, 0.0, flat)
    return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))


def mix_chart(run: RunView) -> Spec:
    """The label mix of each group: one bar a group, its clients' training labels in shares of 100
    %."""
    assert run.histograms is not None
    classes = run.histograms.shape[1]
    labels = [str(name) for name in run.labels] or [str(c) for c in range(classes)]
    rows = [
        {"group": group, "label": labels[c], "samples": int(total[c]), "order": c}
        for group, total in _totals(run)
        for c in range(classes)
        if total[c]
    ]
    chart = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar(height={"band": 0.75})
        .encode(
            y=alt.Y("group:N", title=None, sort=_names(run)),
            x=alt.X(
                "samples:Q",
                stack="normalize",
                title="share of the training samples",
                axis=alt.Axis(format="%"),
            ),
            color=colour("label", labels, LABELS, "label"),
            order=alt.Order("order:Q"),
            tooltip=["group:N", "label:N", "samples:Q"],
        )
    )
    return finished(chart, 44 * max(2, run.count) + 20)


def _totals(run: RunView) -> list[tuple[str, np.ndarray]]:
    assert run.histograms is not None
    return [
        (group_name(int(g)), run.histograms[run.groups == g].sum(axis=0))
        for g in np.unique(run.groups)
    ]


def _names(run: RunView) -> list[str]:
    return [group_name(int(g)) for g in np.unique(run.groups)]

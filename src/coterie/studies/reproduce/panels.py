"""The panels of a paper's figures: curves by round, bars, maps of two options, scatters, distances.

What they show is what the lines of a table, and the runs behind them, say. Each kind of panel is a
record that draws itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import altair as alt
import numpy as np
import pandas as pd

from coterie.report.figures.heat_map import heat_map
from coterie.report.figures.style import (
    GROUPS,
    LABELS,
    RUNS,
    TOOLTIP_POINTS,
    Spec,
    colour_by,
    round_axis,
    to_spec,
)
from coterie.report.series import CurvePoint, Series
from coterie.report.view import RunView, displayed_round
from coterie.runs.folder.store import RunFolder
from coterie.studies.reproduce.outcome import DistanceMap, Outcome
from coterie.studies.reproduce.papers import Line, PaperTable, Unit

HEIGHT = 260  # pixels
OURS = "ours"
PRINTED = "paper"


@dataclass(frozen=True)
class PanelSeries:
    """A curve of a panel: by round, mean, least and greatest over the seeds."""

    label: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class CurvePanel:
    """Curves by round."""

    title: str
    axis: str
    series: tuple[PanelSeries, ...]
    note: ClassVar[str] = (
        "Each curve is the mean over the seeds, in a band from the lowest to the highest."
    )

    def spec(self) -> Spec:
        """The chart."""
        rows: list[dict[str, Any]] = [
            {
                "round": displayed_round(point.round),
                "method": series.label,
                "mean": point.mean,
                "low": point.low,
                "high": point.high,
            }
            for series in self.series
            for point in series.points
        ]
        names = [series.label for series in self.series]
        # No two methods of a panel look alike, as far as there are enough colours.
        palette = RUNS if len(names) <= len(RUNS) else LABELS
        scale = alt.Scale(zero=False)
        base = alt.Chart(pd.DataFrame(rows)).encode(
            round_axis("round:Q"), color=colour_by("method", names, palette, "method")
        )
        value = alt.Tooltip("mean:Q", format=".4g", title=self.axis)
        lines = base.mark_line(strokeWidth=2.2, point=TOOLTIP_POINTS).encode(
            y=alt.Y("mean:Q", title=self.axis, scale=scale), tooltip=["method:N", "round:Q", value]
        )
        # The band of the seeds lies under the lines.
        band = base.mark_area(opacity=0.16, line=False, tooltip=False)
        bands = band.encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
        return to_spec(alt.layer(bands, lines), HEIGHT)


@dataclass(frozen=True)
class Bar:
    """A line's value next to the printed one."""

    label: str
    ours: float
    printed: float | None


@dataclass(frozen=True)
class BarPanel:
    """Bars of lines that have the same axis."""

    title: str
    axis: str
    bars: tuple[Bar, ...]
    note: ClassVar[str] = "Each bar is the mean over the seeds."

    def spec(self) -> Spec:
        """The chart."""
        rows = []
        for bar in self.bars:
            rows.append({"line": bar.label, "whose": OURS, "value": bar.ours})
            if bar.printed is not None:
                rows.append({"line": bar.label, "whose": PRINTED, "value": bar.printed})
        # A legend that names the paper would promise bars where it prints no value.
        whose = [OURS, PRINTED] if any(row["whose"] == PRINTED for row in rows) else [OURS]
        order = [bar.label for bar in self.bars]
        chart = alt.Chart(pd.DataFrame(rows)).mark_bar()
        encoded = chart.encode(
            colour_by("whose", whose, (GROUPS[0], RUNS[0]), None),
            x=alt.X("line:N", title=None, sort=order, axis=alt.Axis(labelAngle=-30)),
            xOffset=alt.XOffset("whose:N", sort=whose),
            y=alt.Y("value:Q", title=self.axis),
            tooltip=["line:N", "whose:N", alt.Tooltip("value:Q", format=".4g")],
        )
        return to_spec(encoded, HEIGHT)


@dataclass(frozen=True)
class GridPanel:
    """Values of a row's lines over two options of the algorithm, the one across first."""

    title: str
    axes: tuple[str, str]
    cells: tuple[tuple[float, float, float], ...]
    note: ClassVar[str] = "Each cell is the mean over the seeds; darker means larger."

    def spec(self) -> Spec:
        """The chart."""
        across, up = self.axes
        frame = pd.DataFrame(self.cells, columns=[across, up, "value"])
        base = alt.Chart(frame).encode(
            x=alt.X(f"{across}:O", title=across), y=alt.Y(f"{up}:O", title=up, sort="descending")
        )
        # Low values are good in a map of losses: they are light.
        cells = base.mark_rect().encode(
            color=alt.Color("value:Q", scale=alt.Scale(scheme="blues"), legend=None),
            tooltip=[f"{across}:O", f"{up}:O", alt.Tooltip("value:Q", format=".4g")],
        )
        middle = (frame["value"].min() + frame["value"].max()) / 2
        dark = alt.condition(f"datum.value > {middle}", alt.value("white"), alt.value("#222"))
        texts = base.mark_text(fontSize=12).encode(alt.Text("value:Q", format=".3f"), color=dark)
        return to_spec(alt.layer(cells, texts), HEIGHT)


@dataclass(frozen=True)
class ScatterPanel:
    """Two values of many pairs of clients, the one across first."""

    title: str
    axes: tuple[str, str]
    points: tuple[tuple[float, float], ...]
    note: ClassVar[str] = "Each point is a pair of clients."

    def spec(self) -> Spec:
        """The chart."""
        across, up = self.axes
        frame = pd.DataFrame(self.points, columns=["across", "up"])
        # Faint points, so that their density shows where many lie on each other.
        points = alt.Chart(frame).mark_circle(size=14, opacity=0.35, color=GROUPS[0])
        encoded = points.encode(
            x=alt.X("across:Q", title=across),
            y=alt.Y("up:Q", title=up),
            tooltip=[
                alt.Tooltip("across:Q", format=".3f", title=across),
                alt.Tooltip("up:Q", format=".3f", title=up),
            ],
        )
        return to_spec(encoded, HEIGHT)


@dataclass(frozen=True)
class DistancePanel:
    """Distances of clients from each other, as a matrix."""

    title: str
    shown: DistanceMap
    note: ClassVar[str] = (
        "Each cell is the distance of two clients' weights. The strips at the top and at the left "
        "are the groups of clients with the same labels."
    )

    def spec(self) -> Spec:
        """The chart."""
        groups = np.array(self.shown.groups)
        # Clients of a group stand side by side, so that a layer that tells them apart shows blocks.
        order = np.argsort(groups, kind="stable")
        distance = np.array(self.shown.distance)
        return heat_map(distance, order, groups, self.shown.names, HEIGHT, small=True)


Panel = CurvePanel | BarPanel | GridPanel | ScatterPanel | DistancePanel


# --- what the lines and their runs say ------------------------------------------------------------

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """What is drawn of every round."""

    title: str
    value: Callable[[Row], float | None]


def _accuracy(row: Row) -> float | None:
    if row.get("accuracy") is None:
        return None
    return 100 * float(row["accuracy"])


def _cpd(row: Row) -> float | None:
    """Median class probability distance; one group alone has no distance to another."""
    distances = row.get("cpd") or {}
    return distances.get("label")


CURVES: Mapping[str, Curve] = {
    "accuracy": Curve("accuracy, %", _accuracy),
    "loss": Curve("training loss, nats", lambda row: row.get("loss")),
    "test_loss": Curve("test loss, nats", lambda row: row.get("test_loss")),
    "discrepancy": Curve("discrepancy", lambda row: row.get("discrepancy")),
    "cpd": Curve("class probability distance, median", _cpd),
}


AXES: Mapping[Unit, str] = {
    "percent": "accuracy, points",
    "share": "share, %",
    "count": "count",
    "number": "value",
    "ratio": "ratio to the other method",
}


def panels_of(table: PaperTable, outcomes: Sequence[Outcome]) -> list[Panel]:
    """The panels of a table, of the lines that have results."""
    drawings = table.drawings
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        row = outcome.line.name.split("/")[0]
        rows.setdefault(row, []).append(outcome)
    groups = {"": list(outcomes)} if drawings.together else rows
    found: list[Panel] = []
    for row, members in groups.items():
        runs = _runs_by_method(members)
        found += [
            panel
            for name in drawings.curves
            if (panel := _curve_panel(row, CURVES[name], runs)) is not None
        ]
    if drawings.bars:
        for row, members in groups.items():
            found += _bar_panels(row, members)
    for row, members in rows.items():
        if drawings.grid is not None:
            found += _grid_panels(row, drawings.grid, members)
        if drawings.scatter is not None:
            axes = drawings.scatter
            found += [ScatterPanel(row, axes, one.points) for one in members if one.points]
        if drawings.distances:
            found += [DistancePanel(row, one.distances) for one in members if one.distances]
    return found


def _axis(line: Line) -> str:
    return line.axis or AXES[line.unit]


def _title(row: str, axis: str) -> str:
    """Of a panel; that of all rows is named by what it shows alone."""
    if not row:
        return axis
    return f"{row}: {axis}"


# The runs of a method, one for each seed.
RunsByMethod = dict[str, list[Path]]


def _runs_by_method(outcomes: Iterable[Outcome]) -> RunsByMethod:
    """All runs of some lines, those compared against included, by short names of their methods."""
    found: RunsByMethod = {}
    for outcome in outcomes:
        names = (outcome.line.method, outcome.line.against_method)
        for runs in outcome.folders:
            # Several lines may read figures off the same run; it is drawn once.
            for name, run in zip(names, runs, strict=False):
                known = found.setdefault(name, [])
                if run not in known:
                    known.append(run)
    return dict(zip(short_names(list(found)), found.values(), strict=True))


def short_names(names: Sequence[str]) -> list[str]:
    """Names without the words that all of them share, unless nothing is left of one.

    Example:
        >>> short_names(["fedgsp log a1-b10", "fedgsp log a2-b5"])
        ['a1-b10', 'a2-b5']
        >>> short_names(["flexcfl", "flexcfl eta_g=5"])
        ['flexcfl', 'flexcfl eta_g=5']
    """
    if len(names) < 2:
        return list(names)
    words = [name.split() for name in names]
    shared = set.intersection(*map(set, words))
    shorter = [" ".join(word for word in one if word not in shared) for one in words]
    if not all(shorter):
        return list(names)
    return shorter


def _curve_panel(row: str, curve: Curve, runs: RunsByMethod) -> CurvePanel | None:
    """The panel of a value; ``None`` if no run has it."""
    series = [PanelSeries(label, _points(label, curve, paths)) for label, paths in runs.items()]
    shown = tuple(one for one in series if one.points)
    if not shown:
        return None
    return CurvePanel(_title(row, curve.title), curve.title, shown)


def _points(label: str, curve: Curve, paths: Iterable[Path]) -> tuple[CurvePoint, ...]:
    # The series needs rounds alone, so the views need no clients.
    views = [RunView(label, RunFolder(path).rows(), np.zeros(1, np.int64), ("",)) for path in paths]
    values = [[curve.value(row) for row in view.rounds] for view in views]
    return tuple(Series(label, tuple(views)).curve(values))


def _bar_panels(row: str, outcomes: Iterable[Outcome]) -> list[BarPanel]:
    by_axis: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.mean is not None:
            by_axis.setdefault(_axis(outcome.line), []).append(outcome)
    return [
        BarPanel(_title(row, axis), axis, tuple(_bars(members)))
        for axis, members in by_axis.items()
    ]


def _bars(outcomes: Sequence[Outcome]) -> Iterable[Bar]:
    labels = _bar_labels([outcome.line.name for outcome in outcomes])
    for label, outcome in zip(labels, outcomes, strict=True):
        assert outcome.mean is not None, "only lines with a value are drawn"
        yield Bar(label, outcome.mean, outcome.line.printed)


def _bar_labels(names: Sequence[str]) -> list[str]:
    """The columns of lines of one row, the rows of lines of as many rows, or else whole names."""
    rows = [name.split("/")[0] for name in names]
    if len(set(rows)) == 1:
        return [name.split("/")[1] for name in names]
    if len(set(rows)) == len(rows):
        return rows
    return list(names)


def _grid_panels(row: str, axes: tuple[str, str], outcomes: Iterable[Outcome]) -> list[GridPanel]:
    across, up = axes
    cells = []
    axis = ""
    for outcome in outcomes:
        if outcome.mean is not None and outcome.line.tables is not None:
            options = outcome.line.tables["algorithm"]
            cells.append((float(options[across]), float(options[up]), outcome.mean))
            axis = _axis(outcome.line)
    if not cells:
        return []
    return [GridPanel(_title(row, axis), axes, tuple(cells))]

"""The panels of a paper's figures: curves by round, bars, maps of two options, scatters, distances."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.report.series import CurvePoint
from coterie.studies.reproduce.outcome import DistanceMap


@dataclass(frozen=True)
class PanelSeries:
    """A curve of a panel.

    Args:
        points: by round: mean, least and greatest over the seeds.
    """

    label: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class CurvePanel:
    """Curves by round."""

    title: str
    axis: str
    series: tuple[PanelSeries, ...]


@dataclass(frozen=True)
class Bar:
    """A line's value beside the printed one."""

    label: str
    ours: float
    printed: float | None


@dataclass(frozen=True)
class BarPanel:
    """Bars of lines that have the same axis."""

    title: str
    axis: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class GridPanel:
    """Values of a row's lines over two options of the algorithm, the one across first."""

    title: str
    axes: tuple[str, str]
    cells: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class ScatterPanel:
    """Two values of many pairs of clients, the one across first."""

    title: str
    axes: tuple[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DistancePanel:
    """Distances of clients from each other, as a matrix."""

    title: str
    shown: DistanceMap


Panel = CurvePanel | BarPanel | GridPanel | ScatterPanel | DistancePanel

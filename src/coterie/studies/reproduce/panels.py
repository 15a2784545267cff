"""The panels of a paper's figures: curves by round, bars, maps of two options, scatters, distances."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.report.series import CurvePoint
from coterie.studies.reproduce.outcome import DistanceMap


@dataclass(frozen=True)
class PanelSeries:
    """A curve of a panel.

    Args:
        label: the method, as the legend names it.
        points: by round: mean, least and greatest over the seeds.
    """

    label: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class CurvePanel:
    """Curves by round.

    Args:
        title: of the panel.
        axis: what is drawn, with its unit.
        series: one for each method.
    """

    title: str
    axis: str
    series: tuple[PanelSeries, ...]


@dataclass(frozen=True)
class Bar:
    """A line's value beside the printed one.

    Args:
        label: of the line.
        ours: mean over the seeds.
        printed: ``None`` if the paper prints none.
    """

    label: str
    ours: float
    printed: float | None


@dataclass(frozen=True)
class BarPanel:
    """Bars of lines that have the same axis.

    Args:
        title: of the panel.
        axis: what is drawn, with its unit.
        bars: one for each line.
    """

    title: str
    axis: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class GridPanel:
    """Values of a row's lines over two options of the algorithm.

    Args:
        title: of the panel.
        axes: names of the options, the one across first.
        cells: ``(across, up, value)``.
    """

    title: str
    axes: tuple[str, str]
    cells: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class ScatterPanel:
    """Two values of many pairs of clients.

    Args:
        title: of the panel.
        axes: names of the values, the one across first.
        points: ``(across, up)``.
    """

    title: str
    axes: tuple[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DistancePanel:
    """Distances of clients from each other, as a matrix.

    Args:
        title: of the panel.
        shown: distances, groups and names of the clients.
    """

    title: str
    shown: DistanceMap


Panel = CurvePanel | BarPanel | GridPanel | ScatterPanel | DistancePanel

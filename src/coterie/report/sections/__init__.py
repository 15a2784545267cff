"""What the page of some runs shows, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.comparison import baseline_of
from coterie.report.section import Chart, Section
from coterie.report.sections.details import details
from coterie.report.sections.gains import gain_sections
from coterie.report.sections.overview import (
    accuracy_section,
    agreement_section,
    configuration_section,
    cost_section,
)
from coterie.report.sections.runs_table import runs_section
from coterie.report.sections.scores import scores_section
from coterie.report.series import best_first, series_of
from coterie.report.view import RunView

MOST_DETAILED = 6  # series with groups that are shown in detail, the best ones


def sections(runs: Sequence[RunView]) -> list[Section]:
    """The sections of the page of some runs; runs that differ only in their seeds are shown as
    one."""
    series = series_of(runs)
    base = baseline_of(series)
    found = [
        *accuracy_section(series),
        runs_section(series, base),
        *scores_section(series),
        *gain_sections(series, base, MOST_DETAILED),
        *cost_section(series),
        *agreement_section(series),
    ]
    # Series without groups have sections, too: their shifts, and the divergence of their gradients.
    grouped = [one for one in series if one.grouped]
    # A page of a large sweep would otherwise have hundreds of charts.
    left_out = {one.name for one in best_first(grouped)[MOST_DETAILED:]}
    for number, one in enumerate(series):
        if one.name not in left_out:
            found += [{**section, "part": one.name} for section in details(one, number)]
    return [*found, *configuration_section(series)]


def charts_of(runs: Sequence[RunView]) -> list[Chart]:
    """The charts of the page of some runs, from top to bottom."""
    return [chart for section in sections(runs) for chart in section.get("charts", ())]

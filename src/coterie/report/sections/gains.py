"""Each series with groups against the baseline, client by client."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.headline import Headline
from coterie.report.chart_tables import gain_table
from coterie.report.charts.gains import gain_chart, ranked_gains, scatter_chart
from coterie.report.comparison import GainSummary, client_gains, paired_runs, summarise_gains
from coterie.report.section import Chart, Section
from coterie.report.series import Series

GAIN_NOTE = (
    " A client's gain is the difference of its two accuracies, on its own test samples after the "
    "last round. A client with few test samples moves in large steps."
)
SCATTER_TITLE = (
    "Each client under both: above the dashed line it won (marks are moved by up to a point, so "
    "that all are seen)"
)


def gain_sections(series: Sequence[Series], base: Series | None, most: int) -> list[Section]:
    """Who wins and who loses, for at most so many series."""
    if base is None:
        return []
    found: list[Section] = []
    for number, one in enumerate(series):
        if one is not base and one.grouped:
            summary = summarise_gains(one, base)
            if summary is not None:
                found.append(_gain_section(one, base, summary, number))
    return found[:most]


def _gain_section(one: Series, base: Series, summary: GainSummary, number: int) -> Section:
    """The charts of the first seed for which the clients' accuracies are known."""
    # Means over seeds would hide that a client wins with one seed and loses with another.
    ours, theirs = next((a, b) for a, b in paired_runs(one, base) if client_gains(a, b) is not None)
    gains = ranked_gains(ours, theirs)
    note = _in_words(summary, one.headline) + GAIN_NOTE
    if one.many_seeds:
        note += f" The charts show seed {ours.seed}."
    bars: Chart = {
        "id": f"gain-{number}",
        "title": "What each client gained",
        "spec": gain_chart(gains, ours, theirs),
        "table": gain_table(gains, one.headline),
    }
    scatter: Chart = {
        "id": f"before-after-{number}",
        "title": SCATTER_TITLE,
        "spec": scatter_chart(gains, ours, theirs),
    }
    return {
        "title": f"Who wins, who loses: {one.name} against {base.name}",
        "note": note,
        "charts": [bars, scatter],
        "wide": True,
    }


def _in_words(summary: GainSummary, headline: Headline) -> str:
    clients = f"{summary.won:,} of {summary.all:,} clients won"
    others = f"{summary.lost:,} lost, {summary.same:,} stayed as they were"
    mean = f"The mean gain is {headline.short(summary.mean, '+')} {headline.step}".rstrip()
    worst = f"{headline.short(summary.worst_tenth, '+')} {headline.step}".rstrip()
    return f"{clients}, {others}. {mean}, that of the tenth that lost most {worst}."

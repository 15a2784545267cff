"""What each client gained by a method in place of another, as charts and a table show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.headline import Headline, with_unit
from coterie.measures.client_comparison import MARK, group_labels
from coterie.measures.client_table import DIGITS
from coterie.measures.gains import ClientGains, client_gains, pairs_of_same_clients
from coterie.report.comparison import paired_clients
from coterie.report.figures.style import group_name
from coterie.report.render import Table
from coterie.report.series import Series
from coterie.terminal import number_text

HALF = "± 95 %"
MOST_CLIENTS = 100  # of the table; of more, those that lost most and those that won most

Row = dict[str, Any]  # of a client, of which charts and table are made


@dataclass(frozen=True, slots=True)
class RankedGains:
    """What each client gained by a series in place of another, the greatest loss first.

    Args:
        rows: a row for each client that is known under both, in the unit of the headline.
        groups: the numbers of the groups by which it is coloured; none of several seeds, whose groups
            have nothing to do with each other.
        seeds: over how many the figures are means.
    """

    rows: list[Row]
    groups: list[int]
    seeds: int
    ours: str
    theirs: str
    headline: Headline

    @property
    def few(self) -> bool:
        """Whether the figures of any client rest on few samples."""
        return any(row["few"] for row in self.rows)

    @property
    def has_intervals(self) -> bool:
        """Whether gains have intervals."""
        return any(row["half"] is not None for row in self.rows)


def ranked_gains(series: Series, base: Series) -> RankedGains:
    """What each client gained, means over the seeds that have the same clients."""
    pairs = pairs_of_same_clients(paired_clients(series, base))
    ours = [one for one, _ in pairs]
    found = client_gains(pairs, series.headline)
    headline = series.headline.with_decimals_for([*found.ours, *found.theirs], DIGITS)
    gains = found.ours - found.theirs
    if headline.better == "lower":
        gains = -gains
    known = np.flatnonzero(np.isfinite(gains))
    # A stable order: clients with the same gain stay in the order of their numbers.
    order = known[np.argsort(gains[known], kind="stable")]
    groups = group_labels(ours) or [""] * len(gains)
    colours: list[int] = []
    if len(pairs) == 1:
        member = ours[0].member
        groups = [group_name(int(group)) for group in member]
        colours = sorted({int(group) for group in member[known]})
    marks = np.where(found.few, MARK, "")
    low, high = _ends(gains, found, headline)

    def shown(value: float) -> float | None:
        if not np.isfinite(value):
            return None
        return round(headline.scale * float(value), decimals_of(headline))

    rows = [
        {
            "rank": rank,
            "client": f"{ours[0].names[i]}{marks[i]}",
            "group": groups[i],
            "before": shown(found.theirs[i]),
            "after": shown(found.ours[i]),
            "gain": shown(gains[i]),
            "half": shown(found.half[i]),
            "low": shown(low[i]),
            "high": shown(high[i]),
            "few": bool(found.few[i]),
        }
        for rank, i in enumerate(order)
    ]
    return RankedGains(rows, colours, len(pairs), series.name, base.name, headline)


def _ends(
    gains: FloatArray, found: ClientGains, headline: Headline
) -> tuple[FloatArray, FloatArray]:
    """The ends of the interval of each client's gain."""
    low = gains - found.half
    high = gains + found.half
    if headline.unit == "%":
        # No interval reaches beyond what a client can lose or gain.
        low = np.maximum(low, -found.theirs)
        high = np.minimum(high, 1 - found.theirs)
    return low, high


def decimals_of(headline: Headline) -> int:
    """Digits behind the point of a value in the page: of percents two are more than are shown."""
    if headline.unit == "%":
        return 2
    return 6


def value_columns(headline: Headline) -> list[str]:
    units = {"before": headline.unit, "after": headline.unit, "gain": headline.step}
    return [with_unit(name, unit) for name, unit in units.items()]


def gain_table(ranked: RankedGains) -> Table:
    """The clients by their gain, the greatest loss first; the middle of many is left out."""
    group = "group" if ranked.seeds == 1 else "groups"
    columns = ["client", group, *value_columns(ranked.headline)]
    if ranked.has_intervals:
        columns.append(HALF)
    cells = [_gain_cells(row, ranked)[: len(columns)] for row in ranked.rows]
    if len(cells) > MOST_CLIENTS:
        # Those who lose and those who win most are what the table is read for.
        half = MOST_CLIENTS // 2
        left_out = f"... {len(cells) - MOST_CLIENTS:,} more"
        cells[half:-half] = [[left_out, *[""] * (len(columns) - 1)]]
    return columns, cells


def _gain_cells(row: Row, ranked: RankedGains) -> list[Any]:
    digits = ranked.headline.format
    # A gain that may be chance has no colour.
    certain = not row["few"] and abs(row["gain"]) > (row["half"] or 0.0)
    css_class = "figure"
    if certain:
        css_class = "good" if row["gain"] > 0 else "bad"
    # These are in the unit already, as the charts have them.
    before = format(row["before"], digits)
    after = format(row["after"], digits)
    gained = format(row["gain"], f"+{digits}")
    half = number_text(row["half"], digits)
    return [row["client"], row["group"], before, after, (gained, css_class), half]

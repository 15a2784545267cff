"""The table of single clients: what each method reaches on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.measures.client_comparison import (
    client_rows,
    client_texts,
    mean_rows,
    row_columns,
    row_note,
)
from coterie.report.render import Section
from coterie.report.series import Series

NBSP = "\u00a0"
MOST_CLIENTS = 100  # of the table; of all others the first ones are shown


def clients_section(series: Sequence[Series]) -> list[Section]:
    """A row for each client; none where no run has figures of single clients."""
    if not series:
        return []
    headline = series[0].headline
    tables = {one.name: one.client_tables for one in series}
    rows = client_rows(tables, headline)
    if not rows:
        return []
    note = row_note(rows, headline, max(len(one.runs) for one in series))
    if len(rows) > MOST_CLIENTS:
        note += f" The first {MOST_CLIENTS} of {len(rows):,} clients; clients.csv of a run has all."
    heads = row_columns(rows)
    shown = [*rows[:MOST_CLIENTS], *mean_rows(tables, rows, headline)]
    cells = [_cells(texts) for texts in client_texts(shown, headline)]
    order = _figures_first(len(heads), len(rows[0].figures), len(rows[0].groups))
    return [
        {
            "title": "Each client",
            "note": note,
            "columns": [heads[at] for at in order],
            "rows": [[row[at] for at in order] for row in cells],
        }
    ]


def _figures_first(columns: int, figures: int, groups: int) -> list[int]:
    """The order of the columns on a page: figures after the name, where a narrow screen shows them."""
    first = columns - groups - figures
    after = first + figures
    return [0, *range(first, after), *range(1, first), *range(after, columns)]


def _cells(texts: Sequence[str]) -> list[Any]:
    name, *figures = texts
    # A line may end before an interval, and nowhere else.
    return [name, *map(_unbroken, figures)]


def _unbroken(figure: str) -> str:
    value, bracket, interval = figure.partition(" (")
    return (value + bracket.replace(" ", "\n") + interval).replace(" ", NBSP).replace("\n", " ")

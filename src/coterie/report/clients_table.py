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
    cells = client_texts([*rows[:MOST_CLIENTS], *mean_rows(tables, rows, headline)], headline)
    return [
        {
            "title": "Each client",
            "note": note,
            "columns": row_columns(rows),
            "rows": [_cells(texts) for texts in cells],
        }
    ]


def _cells(texts: Sequence[str]) -> list[Any]:
    name, *figures = texts
    # A line may end before an interval, and nowhere else.
    return [name, *map(_unbroken, figures)]


def _unbroken(figure: str) -> str:
    value, bracket, interval = figure.partition(" (")
    return (value + bracket.replace(" ", "\n") + interval).replace(" ", NBSP).replace("\n", " ")

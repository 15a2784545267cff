"""The table of single clients of a sweep: as text, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.files import csv_text, markdown_lines
from coterie.headline import Headline, with_unit
from coterie.measures.client_comparison import (
    client_rows,
    client_texts,
    group_labels,
    mean_columns,
    mean_rows,
    row_columns,
    row_note,
    with_few_digits,
)
from coterie.measures.client_table import of_same_clients
from coterie.measures.gains import ClientGains, client_gains
from coterie.sweep.comparison import SweepTable
from coterie.terminal import column_widths, printable

MOST_CLIENTS = 100  # of a table as text


@dataclass(frozen=True, slots=True)
class ClientsText:
    """The table of clients by one metric."""

    columns: list[str]
    rows: list[list[str]]
    note: str
    headline: Headline

    @property
    def width(self) -> int:
        """Letters of its longest line, with heads over several lines."""
        return sum(2 + width for width in column_widths(self.columns, self.rows))


def clients_text(
    table: SweepTable, headline: Headline, intervals: bool = True
) -> ClientsText | None:
    """The table of clients by a metric; ``None`` where nothing is known of single clients."""
    rows = client_rows(table.clients, headline)
    if not rows:
        return None
    shown = [*rows[:MOST_CLIENTS], *mean_rows(table.clients, rows, headline)]
    cells = client_texts(shown, headline, intervals)
    texts = [[printable(cell) for cell in row] for row in cells]
    note = row_note(table.clients, rows, headline, intervals)
    return ClientsText(row_columns(rows), texts, note, with_few_digits(rows, headline))


def clients_markdown(table: SweepTable) -> str:
    """For each metric a table of the clients and one of what they gain over the baseline."""
    parts = []
    for headline in (table.headline, *table.metrics):
        found = clients_text(table, headline)
        if found is not None:
            lines = _lines(found.columns, found.rows)
            parts += [f"## {headline.capital}", "", *lines, "", found.note, ""]
            parts += _differences(table, found.headline)
    return "\n".join(parts)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return markdown_lines(columns, rows, "l".ljust(len(columns), "r"))


def _differences(table: SweepTable, headline: Headline) -> list[str]:
    """The differences of each client from the baseline, paired by seed."""
    tables = table.clients
    base = tables.get(table.baseline)
    if base is None or len(tables) < 2:
        return []
    others = {
        name: client_gains(list(zip(of, base, strict=True)), headline)
        for name, of in tables.items()
        if of is not base and len(of) == len(base)
    }
    rows = []
    for client, name in enumerate(base[0].names[:MOST_CLIENTS]):
        cells = [_difference(found, client, headline) for found in others.values()]
        rows.append([printable(name), *cells])
    step = with_unit("client", headline.step)
    words = f"Differences from {printable(table.baseline)}, paired by seed"
    if any(np.isfinite(found.half).any() for found in others.values()):
        words += ", with 95 % intervals"
    words += ":"
    return [words, "", *_lines([step, *map(printable, others)], rows), ""]


def _difference(found: ClientGains, client: int, headline: Headline) -> str:
    difference = found.ours[client] - found.theirs[client]
    if not np.isfinite(difference):
        return "-"
    text = headline.short(difference, "+")
    if not np.isfinite(found.half[client]):
        return text
    return f"{text} ± {headline.short(found.half[client])}"


def clients_csv(table: SweepTable) -> str:
    """A line for each method and client: every column of the runs' ``clients.csv``, means over the
    seeds, with a letter for its group under each seed."""
    columns: dict[str, None] = {}
    lines = []
    for name, of_seeds in table.clients.items():
        tables = of_same_clients(of_seeds)
        means = mean_columns(tables)
        columns |= dict.fromkeys(means)
        lines.append((name, tables, means))
    rows = []
    for name, tables, means in lines:
        groups = group_labels(tables) or [""] * len(tables[0].names)
        for client, of in enumerate(tables[0].names):
            cells = [_cell(means.get(column), client) for column in columns]
            rows.append([name, of, len(tables), groups[client], *cells])
    return csv_text(["method", "client", "runs", "groups", *columns], rows, end="\n")


def _cell(values: FloatArray | None, client: int) -> float | None:
    # Empty, not NaN, where nothing is known.
    if values is None or not np.isfinite(values[client]):
        return None
    return float(values[client])

"""The second table of a sweep: how its methods serve single clients, in every way of scoring."""

from __future__ import annotations

from coterie.files import csv_text
from coterie.runs.scores import NOTE, OF_CLIENTS, ClientScores, protocol_notes
from coterie.sweep.comparison import SweepTable
from coterie.sweep.table import markdown_table
from coterie.terminal import printable


def score_columns(table: SweepTable) -> list[str]:
    """The names of the columns."""
    return ["algorithm", *table.keys, "scored", table.headline.title, *OF_CLIENTS]


def score_rows(table: SweepTable) -> list[list[str]]:
    """The rows as text: one for each row of the sweep and way of scoring."""
    return [
        [printable(row.algorithm), *(printable(value) for value in row.values), *one.texts]
        for row in table.rows
        for one in row.scores
    ]


def score_notes(table: SweepTable) -> list[str]:
    """What the scores are of, and what the columns mean."""
    scores = [one for row in table.rows for one in row.scores]
    if not scores:
        return []
    title = table.headline.title
    capital = f"{title[0].upper()}{title[1:]}"
    return [*protocol_notes(scores), NOTE.format(capital)]


def scores_markdown(table: SweepTable) -> str:
    """The table as Markdown, below an empty line; nothing before a run is done."""
    rows = score_rows(table)
    if not rows:
        return ""
    texts = 2 + len(table.keys)
    return "\n" + markdown_table(score_columns(table), rows, texts, score_notes(table))


def scores_csv(table: SweepTable) -> str:
    """The rows as CSV, fractions as numbers, empty where nothing is known."""
    head = ["algorithm", *table.keys, "scored"]
    head += [table.headline.name, "mean", "worst_tenth", "spread", "jain"]
    rows = [
        [row.algorithm, *row.values, one.way.name, *_numbers(one)]
        for row in table.rows
        for one in row.scores
    ]
    return csv_text(head, rows, end="\n")


def _numbers(one: ClientScores) -> list[float | None]:
    return [one.value, one.mean, one.worst_tenth, one.spread, one.jain]

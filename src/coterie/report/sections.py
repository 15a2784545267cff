"""What the page of some runs shows, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tomli_w

from coterie.config.identity import differing
from coterie.experiment.live import absent_in
from coterie.measures.client_comparison import (
    client_rows,
    client_texts,
    mean_rows,
    row_columns,
    row_note,
)
from coterie.report.comparison import baseline_of
from coterie.report.figures.accuracy import accuracy_section
from coterie.report.figures.clients import map_section, mix_section, newcomer_section
from coterie.report.figures.costs import cost_section
from coterie.report.figures.gains import gain_sections
from coterie.report.figures.measured import agreement_section, divergence_section
from coterie.report.figures.members import member_section
from coterie.report.figures.shifts import shift_section
from coterie.report.figures.trees import tree_sections
from coterie.report.render import Chart, Section
from coterie.report.runs_table import runs_section, scores_section
from coterie.report.series import Series, best_first, series_of
from coterie.report.view import RunView
from coterie.terminal import first_few

TEXT_TITLE = "Columns that are read as text"
TEXT_NOTE = (
    "Each common value of such a column becomes a separate input, 1 or 0. A column with 0 inputs "
    "is "
    "left out. If a column should contain numbers, correct its values and run again."
)
MOST_DETAILED = 6  # series with groups that are shown in detail, the best ones
CONFIGURATION_NOTE = "Each configuration has every default filled in. The command coterie {command} accepts it unchanged."
OBJECTS_NOTE = (
    "Each configuration has every default filled in. Names in parentheses stand for Python objects "
    "that the run was given."
)
PRIVATE_NOTE = "Configurations with [privacy] are shown without seeds, and without what names clients or files."
MOST_KEYS = 12  # in which configurations differ, by name
MOST_CONFIGURATIONS = 20


def sections(runs: Sequence[RunView], tuning: Sequence[Section] = ()) -> list[Section]:
    """The sections of the page of some runs; runs that differ only in their seeds are shown as
    one. ``tuning``: how their settings were chosen."""
    series = series_of(runs)
    base = baseline_of(series)
    found = [
        *accuracy_section(series),
        runs_section(series, base),
        *tuning,
        *scores_section(series),
        *clients_section(series),
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
            found += [{**section, "part": one.name} for section in _details(one.first, number)]
    return [*found, *_text_columns(series), *_configurations(series)]


def charts_of(runs: Sequence[RunView]) -> list[Chart]:
    """The charts of the page of some runs, from top to bottom."""
    return [chart for section in sections(runs) for chart in section.get("charts", ())]


def _details(run: RunView, number: int) -> list[Section]:
    """The sections of the first run of a series; ``number`` makes the names of its charts differ
    from those of other series."""
    # One run stands for the series: groups of different seeds have nothing to do with each other.
    found = [*shift_section(run, number), *divergence_section(run, number)]
    # Of one group there is nothing to tell apart, and of a private run no single client is shown.
    if run.group_count < 2 or run.private:
        return found
    return [
        *member_section(run, number),
        *map_section(run, number),
        *mix_section(run, number),
        *found,
        *tree_sections(run, number),
        *newcomer_section(run),
    ]


def _text_columns(series: Sequence[Series]) -> list[Section]:
    """The columns that are read as text; runs of one page are mostly on one table."""
    named = {(one.name, one.why): one for view in series for one in view.first.text_columns}
    if not named:
        return []
    rows = [[one.name, str(one.inputs), one.why] for one in named.values()]
    columns = ["column", "inputs", "values"]
    return [{"title": TEXT_TITLE, "note": TEXT_NOTE, "columns": columns, "rows": rows}]


def _configurations(series: Sequence[Series]) -> list[Section]:
    """The configurations in full, what they differ in, and the versions of the software."""
    known = [one for one in series if one.first.tables]
    if not known:
        return []
    texts = [
        (f"{one.name} ({one.first.seed_name})", tomli_w.dumps(one.first.tables))
        for one in known[:MOST_CONFIGURATIONS]
    ]
    # Real clients have their own data, which nothing here could simulate.
    real = known[0].first.tables.get("data", {}).get("source") == "nodes"
    command = "deploy init" if real else "run"
    note = CONFIGURATION_NOTE.format(command=command)
    if any(one.first.private for one in known):
        note = PRIVATE_NOTE
    elif any(absent_in(one.first.tables) for one in known):
        note = OBJECTS_NOTE
    note += _differing_keys(known) + _software(known)
    return [{"title": "Configuration and versions", "note": note, "texts": texts}]


def _differing_keys(series: Sequence[Series]) -> str:
    first = series[0].first.tables
    keys: dict[str, None] = {}
    for one in series[1:]:
        # Against the first and not pair by pair: what changes anywhere differs from it somewhere.
        keys |= dict.fromkeys(differing(first, one.first.tables))
    # Seeds differ within a series; the introduction of the page names them.
    keys.pop("seed", None)
    if not keys:
        return ""
    return f" The configurations differ in {first_few([*keys], MOST_KEYS)}."


def _software(series: Sequence[Series]) -> str:
    versions: dict[str, None] = {}
    for one in series:
        for run in one.runs:
            versions[", ".join(f"{name} {number}" for name, number in run.versions.items())] = None
    known = [text for text in versions if text]
    if not known:
        return ""
    return f" Software: {'; '.join(known)}."


# --- single clients -------------------------------------------------------------------------------


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
    note = row_note(tables, rows, headline)
    if len(rows) > MOST_CLIENTS:
        note += f" The first {MOST_CLIENTS} of {len(rows):,} clients; clients.csv of a run has all."
    heads = row_columns(rows)
    shown = [*rows[:MOST_CLIENTS], *mean_rows(tables, rows, headline)]
    cells = [_cells(texts) for texts in client_texts(shown, headline)]
    # Figures stand after the name, where a narrow screen shows them.
    columns = len(heads)
    figures = len(rows[0].figures)
    first = columns - len(rows[0].groups) - figures
    after = first + figures
    order = [0, *range(first, after), *range(1, first), *range(after, columns)]
    return [
        {
            "title": "Each client",
            "note": note,
            "columns": [heads[at] for at in order],
            "rows": [[row[at] for at in order] for row in cells],
        }
    ]


def _cells(texts: Sequence[str]) -> list[Any]:
    name, *figures = texts
    # A line may end before an interval, and nowhere else.
    return [name, *map(_unbroken, figures)]


def _unbroken(figure: str) -> str:
    value, bracket, interval = figure.partition(" (")
    return (value + bracket.replace(" ", "\n") + interval).replace(" ", NBSP).replace("\n", " ")

"""The clients of several methods next to each other: a row for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.headline import Headline
from coterie.measures.client_table import (
    DIGITS,
    FEW,
    ScoredClients,
    clients_mean,
    mean_over_seeds,
    of_same_clients,
    reference_means,
)

CLIENTS_MEAN = "clients' mean"
MARK = "*"  # behind a value that rests on few samples
REDRAWN_NOTE = "Each seed has different clients, so the rows show only those of the first seed."
FEW_NOTE = f" {MARK}: fewer than {FEW} samples of a class; such a figure may be due to chance."
# Method -> the clients of its runs, one for each seed.
Figure = tuple[float, float, float]  # a value, and the ends of its interval
Tables = Mapping[str, Sequence[ScoredClients]]


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client under several methods: means over the seeds.

    Args:
        samples: its fewest and most test samples over the runs.
        positives: the same of its positive ones; ``None`` where the task has none.
        few: whether its figures rest on fewer than ten samples of a class in any run.
        references: the metric of predictions without a model.
        figures: method -> value, and the ends of its interval; NaN where there is none.
        groups: method with groups -> a number, or a letter for each seed, see `group_labels`.
        best: the method, or what predicts without a model, with the best value; empty where the
            figures rest on few, or none is known.
    """

    client: str
    samples: tuple[int, int]
    positives: tuple[int, int] | None
    few: bool
    references: Mapping[str, float]
    figures: Mapping[str, Figure]
    groups: Mapping[str, str]
    best: str


def client_rows(methods: Tables, headline: Headline) -> list[ClientRow]:
    """A row for each client of the first run, from all runs with the same clients; none where no run is
    known."""
    known = {name: tables for name, tables in methods.items() if tables}
    every = [table for tables in known.values() for table in tables]
    if not every:
        return []
    first = every[0]
    known = {name: of_same_clients([first, *tables])[1:] for name, tables in known.items()}
    known = {name: tables for name, tables in known.items() if tables}
    every = [table for tables in known.values() for table in tables]
    figures = {name: _figures(tables, headline) for name, tables in known.items()}
    letters = {name: group_labels(tables) for name, tables in known.items()}
    references = {
        name: mean_over_seeds(
            [
                table.references(headline)[name]
                for table in every
                if name in table.references(headline)
            ]
        )
        for name in first.references(headline)
    }
    samples = np.stack([table.samples for table in every])
    positives = [table.positives for table in every if table.positives is not None]
    few = np.any([table.few for table in every], axis=0)
    rows = []
    for client, name in enumerate(first.names):
        row = ClientRow(
            name,
            _range(samples[:, client]),
            _range(np.stack(positives)[:, client]) if positives else None,
            bool(few[client]),
            {of: float(values[client]) for of, values in references.items()},
            {method: _figure_of(of[:, client]) for method, of in figures.items()},
            {method: of[client] for method, of in letters.items() if of is not None},
            "",
        )
        rows.append(replace(row, best=_best(row, headline)))
    return rows


def mean_rows(methods: Tables, rows: Sequence[ClientRow], headline: Headline) -> list[ClientRow]:
    """A row with the clients' mean of each method, on which the verdict rests; none of a single client."""
    if len(rows) < 2:
        return []
    nothing = float("nan")
    figures = {}
    for name in rows[0].figures:
        values = np.stack([table.value(headline) for table in methods[name]])
        samples = np.stack([table.samples for table in methods[name]])
        figures[name] = (clients_mean(values, samples), nothing, nothing)
    every = [table for name in figures for table in methods[name]]
    positives = [int(table.positives.sum()) for table in every if table.positives is not None]
    row = ClientRow(
        CLIENTS_MEAN,
        _range(np.array([table.samples.sum() for table in every])),
        _range(np.array(positives)) if positives else None,
        False,
        dict.fromkeys(rows[0].references, nothing) | reference_means(every, headline),
        figures,
        dict.fromkeys(rows[0].groups, ""),
        "",
    )
    return [replace(row, best=_best(row, headline))]


def _figures(tables: Sequence[ScoredClients], headline: Headline) -> FloatArray:
    """Value and ends of the interval of each client, means over the seeds, ``[3, N]``. The test samples
    of the seeds overlap, so the mean is no more certain than one of them."""
    ends = [table.interval(headline) for table in tables]
    value = mean_over_seeds([table.value(headline) for table in tables])
    return np.stack(
        [
            value,
            mean_over_seeds([low for low, _ in ends]),
            mean_over_seeds([high for _, high in ends]),
        ]
    )


def _figure_of(values: FloatArray) -> Figure:
    value, low, high = values.tolist()
    return value, low, high


def _range(values: FloatArray | IntArray) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _best(row: ClientRow, headline: Headline) -> str:
    values = {name: each[0] for name, each in row.figures.items() if np.isfinite(each[0])}
    if row.few or len(values) < 2:
        return ""
    values |= {name: value for name, value in row.references.items() if np.isfinite(value)}
    best = headline.best(values.values())
    return next(name for name, value in values.items() if value == best)


def group_labels(tables: Sequence[ScoredClients]) -> list[str] | None:
    """The group of each client: its number, or of several seeds a letter for each. The first client's
    group is A, the next other one B. ``None`` for a method without groups.

    Example:
        >>> one = ScoredClients("xyz", np.array([1, 0, 1]), np.ones(3, int), {})
        >>> group_labels([one, replace(one, member=np.array([0, 0, -1]))])
        ['A A', 'B A', 'A -']
    """
    if all(len(np.unique(table.member[table.member >= 0])) < 2 for table in tables):
        return None
    if len(tables) == 1:
        return [str(group) if group >= 0 else "-" for group in tables[0].member.tolist()]
    columns = []
    for table in tables:
        names: dict[int, str] = {-1: "-"}
        for group in table.member.tolist():
            names.setdefault(group, _letter(len(names) - 1))
        columns.append([names[group] for group in table.member.tolist()])
    return [" ".join(letters) for letters in zip(*columns, strict=True)]


def _letter(number: int) -> str:
    """A to Z, then numbers."""
    if number < 26:
        return chr(ord("A") + number)
    return str(number + 1)


# --- as texts -------------------------------------------------------------------------------------


def row_columns(rows: Sequence[ClientRow]) -> list[str]:
    """The heads of the table of clients."""
    first = rows[0]
    names = ["client", "test samples"]
    if first.positives is not None:
        names.append("positive")
    names += first.references
    # Before the columns of methods, which may be wider than a page.
    if len(first.figures) > 1:
        names.append("best")
    return [*names, *first.figures, *(f"groups of {name}" for name in first.groups)]


def client_texts(
    rows: Sequence[ClientRow], headline: Headline, intervals: bool = True
) -> list[list[str]]:
    """The cells of the table of clients, in the unit of the headline."""
    headline = with_few_digits(rows, headline)
    if not intervals:
        rows = [replace(row, figures=_without_intervals(row.figures)) for row in rows]
    return [_texts(row, headline) for row in rows]


def _without_intervals(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    none = float("nan")
    return {name: (value, none, none) for name, (value, _, _) in figures.items()}


def with_few_digits(rows: Sequence[ClientRow], headline: Headline) -> Headline:
    """The headline with three digits of the largest figure."""
    values = [value for row in rows for value, _, _ in row.figures.values()]
    return headline.with_decimals_for(values, DIGITS)


def _texts(row: ClientRow, headline: Headline) -> list[str]:
    texts = [row.client, _range_text(row.samples)]
    if row.positives is not None:
        texts.append(_range_text(row.positives))
    for value in row.references.values():
        texts.append(headline.short(value) if np.isfinite(value) else "-")
    if len(row.figures) > 1:
        texts.append(row.best or "-")
    mark = MARK if row.few else ""
    texts += [_figure_text(each, headline, mark) for each in row.figures.values()]
    return [*texts, *row.groups.values()]


def _range_text(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _figure_text(figure: Figure, headline: Headline, mark: str) -> str:
    value, low, high = figure
    if not np.isfinite(value):
        return "-"
    if not (np.isfinite(low) and np.isfinite(high)):
        return headline.short(value) + mark
    return f"{headline.short(value)}{mark} ({headline.short(low)} to {headline.short(high)})"


def row_note(
    methods: Tables, rows: Sequence[ClientRow], headline: Headline, intervals: bool = True
) -> str:
    """What the table shows."""
    note = f"{headline.capital}"
    if headline.unit:
        note += f" in {headline.unit}"
    note += " of each client on its own test samples after the last round"
    ends = [end for row in rows for figure in row.figures.values() for end in figure[1:]]
    if not np.isfinite(ends).any():
        note += ". This metric has no interval."
    else:
        note += ", with its 95 % interval." if intervals else "."
    seeds = max(len(tables) for tables in methods.values())
    every = [table for tables in methods.values() for table in tables]
    if len(of_same_clients(every)) < len(every):
        note += " " + REDRAWN_NOTE
        if len(rows) > 1:
            note += f" The {CLIENTS_MEAN} is of all {seeds} seeds."
    elif seeds > 1:
        note += f" All figures are means over {seeds} seeds. Groups have a letter for each seed."
    if len(rows) > 1:
        note += f" The {CLIENTS_MEAN} is weighted by test samples."
    if any(row.few for row in rows):
        note += FEW_NOTE
    return note


def mean_columns(tables: Sequence[ScoredClients]) -> dict[str, Any]:
    """The columns of ``clients.csv``, means over the runs with the clients of the first, with shares of
    correct predictions in place of counts: ``[N]`` each."""
    tables = of_same_clients(tables)
    found: dict[str, Any] = {
        "test_samples": mean_over_seeds([table.samples.astype(float) for table in tables])
    }
    for name in tables[0].columns:
        values = [table.columns[name] for table in tables if name in table.columns]
        if name == "correct":
            name = "accuracy"
            values = [table.columns["correct"] / np.maximum(table.samples, 1) for table in tables]
        found[name] = mean_over_seeds(values)
    return found


def mean_table(tables: Sequence[ScoredClients]) -> ScoredClients:
    """The clients of several seeds as one table of means, with the groups of the first seed."""
    first = tables[0]
    columns = mean_columns(tables)
    samples = np.rint(columns.pop("test_samples")).astype(np.int64)
    return replace(first, samples=samples, columns=columns)

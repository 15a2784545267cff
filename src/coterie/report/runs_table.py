"""The tables over all runs: accuracies, groups and what they took, and how clients are served."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coterie.headline import ACCURACY, Headline
from coterie.measures.client_comparison import mean_table
from coterie.measures.client_table import ScoredClients, of_same_clients
from coterie.measures.seeds import overlap_of
from coterie.report.comparison import compared_over_all, final_difference, paired_runs
from coterie.report.figures.costs import bytes_moved
from coterie.report.render import Section
from coterie.report.series import Series
from coterie.report.view import RunView, group_agreement
from coterie.runs.scores import (
    NOTE,
    OF_CLIENTS,
    ClientScores,
    deviation_of_known,
    last_scores,
    mean_scores,
    protocol_notes,
)
from coterie.runs.summary import covered
from coterie.terminal import (
    ALONE,
    amount,
    client_name,
    duration,
    first_few,
    number_text,
    samples_text,
    sizes,
)

TABLE_NOTE = (
    "Final is the accuracy after the last evaluated round, and best is the highest accuracy of a run. "
    "A client counts for the group that it has at the end, even if it had other groups before."
)
OTHER_NOTE = (
    "Final is the {0} after the last evaluated round, and best is the value in the best round of a "
    "run; {1} is better. A client counts for the group that it has at the end, even if it had other groups before."
)
OTHER_DIFFERENCE_NOTE = (
    " The difference from {} compares the final figures over the same clients, before rounding."
)
SEEDS_NOTE = (
    " Accuracies are means over the seeds. The ± after the final one is the standard deviation. "
    "Bytes and time are means, too. Groups and agreement are those of the first seed."
)
DIFFERENCE_NOTE = (
    " The difference from {} is in percentage points of final accuracy over the same clients, "
    "before rounding."
)
INTERVAL_NOTE = " Its ± is half of the 95 % interval over the seeds."
UNGROUPED_NOTE = (
    " Some runs left clients without a group: final and best are over the clients that had one, "
    "and the difference is over all clients."
)
FEW_GROUPS = 4
RUN_HINTS = {
    "final": "after the last evaluated round",
    "final ± sd": "after the last evaluated round: mean and standard deviation over the seeds",
    "best": "in the best round of a run",
    "agreement": "adjusted Rand index with the planted groups; 1 is the same grouping",
    "bytes": "sent to and by all clients",
    "time": "of all rounds, without start-up",
}
SCORE_HINTS = {
    "scored": "which model is scored on which clients",
    "mean over clients": "each client counts the same, whatever its number of samples",
    "worst tenth": "mean of the tenth of the clients that are served worst",
    "spread": "standard deviation over clients",
    "Jain's index": "1 if all clients are served equally, 1/N if one client has everything",
}
MOST_UNFINISHED = 12  # runs that are named


def runs_section(series: Sequence[Series], base: Series | None) -> Section:
    """A row for each series, compared with the baseline where there is one."""
    # A series alone would be compared with itself.
    if len(series) < 2:
        base = None
    many_seeds = any(one.many_seeds for one in series)
    columns = ["run", "final"]
    interval = ""
    if many_seeds:
        columns = ["run", "seeds", "final ± sd"]
        interval = ", ± 95 %"
    if base is not None:
        columns.append(f"final against {base.name}{interval}")
    columns += ["best", "rounds", "clients per group", "agreement", "bytes", "time"]
    rows = [_row(one, many_seeds, base) for one in series]
    return {
        "title": "The runs",
        "note": (_without_model(series) + _unfinished(series)).strip(),
        "definitions": _definitions(series, many_seeds, base),
        "hints": RUN_HINTS,
        "columns": columns,
        "rows": rows,
    }


def _definitions(series: Sequence[Series], many_seeds: bool, base: Series | None) -> str:
    headline = series[0].headline if series else ACCURACY
    note = TABLE_NOTE
    if headline != ACCURACY:
        note = OTHER_NOTE.format(headline.title, headline.better)
    if many_seeds:
        note += SEEDS_NOTE
    if base is not None:
        words = DIFFERENCE_NOTE if headline.unit == "%" else OTHER_DIFFERENCE_NOTE
        note += words.format(base.name)
        if many_seeds:
            overlap = overlap_of(run.split for run in base.runs)
            note = f"{note}{INTERVAL_NOTE} {overlap.note}".rstrip()
        pairs = [pair for one in series for pair in paired_runs(one, base)]
        if any(compared_over_all(a, b) for a, b in pairs):
            note += UNGROUPED_NOTE
    return note


def _without_model(series: Sequence[Series]) -> str:
    """What predictions without a model reach, in the first run that says so."""
    for one in series:
        # Runs of one page have the same headline, and mostly the same data.
        known = one.without_model
        if known:
            said = [f"{one.headline.text(value)} {name}" for name, value in known.items()]
            return f" Without a model: {', '.join(said)}."
    return ""


def _unfinished(series: Sequence[Series]) -> str:
    found = []
    for one in series:
        for run in one.runs:
            planned = run.tables.get("train", {}).get("rounds")
            if planned is not None and len(run.rounds) < planned:
                rounds = f"{len(run.rounds)} of {planned} rounds"
                found.append(f"{one.name} ({run.seed_name}, {rounds})")
    if not found:
        return ""
    return f" The following runs are not complete: {first_few(found, MOST_UNFINISHED)}."


def _row(one: Series, many_seeds: bool, base: Series | None) -> list[Any]:
    run = one.first
    row: list[Any] = [one.name]
    if many_seeds:
        row.append(str(len(one.runs)))
    row.append((_final(one), "figure"))
    if base is not None:
        row.append((_against(one, base), "figure"))
    return [
        *row,
        (_best(one), "figure"),
        str(len(run.rounds)),
        _sizes(run),
        _agreement(run),
        (_bytes(one), "figure"),
        (_seconds(one), "figure"),
    ]


def _sizes(run: RunView) -> Any:
    if run.algorithm == ALONE:
        return "a model each"
    counts = [int(n) for n in np.bincount(run.groups[run.groups >= 0]) if n]
    # Those of a few groups stay in one line.
    if len(counts) <= FEW_GROUPS:
        return sizes(counts), "figure"
    return sizes(counts)


def _final(one: Series) -> str:
    known = [run.final_accuracy for run in one.runs if run.accuracies]
    if not known:
        return "-"
    mean = one.headline.text(one.final_accuracy)
    deviation = deviation_of_known(known)
    if deviation is None:
        return mean
    return f"{mean} ± {one.headline.short(deviation)}"


def _against(one: Series, base: Series) -> str:
    found = None
    if one is not base:
        found = final_difference(one, base)
    if found is None:
        return "-"
    points = one.headline.short(found.mean, "+")
    if found.half is None:
        return points
    return f"{points} ± {one.headline.short(found.half)}"


def _best(one: Series) -> str:
    """The best accuracy of a run, as ``accuracy.max`` of its summary, the mean over seeds."""
    found = []
    headline = one.headline
    for run in one.runs:
        # Early rounds score only the clients that have a group by then: not comparable.
        known = [row[headline.name] for row in covered(run.rounds, headline)] or run.accuracies
        if known:
            found.append(headline.best(known))
    return _mean(found, headline.text)


def _mean(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The mean of some values as text, ``-`` for none."""
    if not values:
        return "-"
    return text(statistics.fmean(values))


def _agreement(run: RunView) -> str:
    if run.group_count < 2:
        return "-"
    return number_text(group_agreement(run), ".2f")


def _bytes(one: Series) -> str:
    moved = [bytes_moved(run) for run in one.runs]
    return _mean([of_run[-1] for of_run in moved if of_run is not None], amount)


def _seconds(one: Series) -> str:
    by_run = [
        [row["seconds"]["total"] for row in run.rounds if "seconds" in row] for run in one.runs
    ]
    return _mean([sum(seconds) for seconds in by_run if seconds], duration)


# --- how clients are served ------------------------------------------------------------------------

SCORES_SEEDS_NOTE = "Figures are means over the seeds."


def scores_section(series: Sequence[Series]) -> list[Section]:
    """A row for each series and way of scoring; none before the first evaluated round."""
    found: list[ClientScores] = []
    rows = []
    for one in series:
        of_runs = [last_scores(run.rounds, run.tables, run.headline) for run in one.runs]
        for scores in mean_scores(of_runs):
            found.append(scores)
            way, *figures = scores.texts
            rows.append([one.name, way, *((figure, "figure") for figure in figures)])
    if not rows:
        return []
    headline = series[0].headline
    notes = [*protocol_notes(found), NOTE.format(headline.capital)]
    if any(one.many_seeds for one in series):
        notes.append(SCORES_SEEDS_NOTE)
    columns = ["run", "scored", headline.title, *OF_CLIENTS]
    return [
        {
            "title": "How evenly clients are served",
            "note": " ".join(line for one in series for line in _worst_client(one)),
            "definitions": " ".join(notes),
            "hints": SCORE_HINTS,
            "columns": columns,
            "rows": rows,
        }
    ]


def _worst_client(series: Series) -> list[str]:
    """Who is served worst, and what that rests on; nothing before the end."""
    if not series.client_tables:
        return []
    table = mean_table(series.client_tables)
    values = table.value(series.headline)
    worst = table.worst(series.headline)
    if worst is None or np.isfinite(values).sum() < 2:
        return []
    method = series.name
    seeds = len(of_same_clients(series.client_tables))
    if seeds < len(series.client_tables):
        method += " (first seed)"
    elif series.many_seeds:
        method += f" ({seeds} seeds)"
    text = f"{method} serves {client_name(table.names[worst])} worst: "
    text += _figure(table, worst, series.headline)
    gains = [series.headline.gain(value, over=0.0) for value in values]
    lowest = int(np.nanargmin(gains))
    if series.headline.text(values[lowest]) != series.headline.text(values[worst]):
        lower = "lower" if series.headline.better == "higher" else "higher"
        text += f". The figure of {client_name(table.names[lowest])} is {lower}, but less certain: "
        text += _figure(table, lowest, series.headline)
    return [f"{text}."]


def _figure(table: ScoredClients, client: int, headline: Headline) -> str:
    """The figure of a client, and what that rests on."""
    low, high = (float(end[client]) for end in table.interval(headline))
    value = headline.with_interval(float(table.value(headline)[client]), low, high)
    positives = None if table.positives is None else round(table.positives[client])
    return f"{value}, {samples_text(int(table.samples[client]), positives)}"

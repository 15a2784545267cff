"""The table of how clients are served: every way of scoring, and how even it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.report.section import Section
from coterie.report.series import Series
from coterie.runs.scores import (
    NOTE,
    OF_CLIENTS,
    ClientScores,
    last_scores,
    mean_scores,
    protocol_notes,
)

SEEDS_NOTE = "Figures are means over the seeds."


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
        notes.append(SEEDS_NOTE)
    notes += [line for one in series for line in _worst_client(one)]
    columns = ["run", "scored", headline.title, *OF_CLIENTS]
    return [
        {
            "title": "How evenly clients are served",
            "note": " ".join(notes),
            "columns": columns,
            "rows": rows,
        }
    ]


def _worst_client(series: Series) -> list[str]:
    """Who is served worst in the first run of a series; nothing before its end."""
    run = series.first
    scores = run.client_accuracy
    if scores is None or np.isfinite(scores).sum() < 2:
        return []
    find = np.nanargmin if run.headline.better == "higher" else np.nanargmax
    worst = int(find(scores))
    value = run.headline.text(float(scores[worst]))
    return [f"{series.name} (seed {run.seed}) serves {run.names[worst]} worst: {value}."]

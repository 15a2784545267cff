"""What a page says in words: its title, its headline, and the sentences under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.headline import ACCURACY
from coterie.report.comparison import verdict_on
from coterie.report.series import Series, best_first, series_of
from coterie.report.view import RunView
from coterie.terminal import counted, first_few

NAMED = 4  # series that a headline names
SENTENCES = 6  # settings that an introduction names
_WORSE = {"higher": "less", "lower": "more"}


def title_of(paths: Sequence[Path | str]) -> str:
    """The title of a page: the names of the folders.

    Example:
        >>> title_of(["runs/a", "runs/b"])
        'Coterie: a, b'
    """
    return "Coterie: " + ", ".join(Path(path).name or Path(path).absolute().name for path in paths)


def headline(runs: Sequence[RunView]) -> str:
    """The result in words: whether grouping is worth it, or what the best runs reached where these
    cannot say."""
    series = series_of(runs)
    evaluated = [one for one in series if one.evaluated]
    if not evaluated:
        return "No round has been run yet"
    found = verdict_on(series)
    if found is not None and found.gain is not None:
        return found.title.removesuffix(".")
    ranked = best_first(evaluated)
    best = ranked[0]
    metric = best.headline
    parts = [f"{best.name} reached {_value(best, best.final_accuracy)}"]
    parts += [f"{one.name} {metric.text(one.final_accuracy)}" for one in ranked[1:NAMED]]
    text = ", ".join(parts)
    if len(ranked) > NAMED:
        text += f", and {len(ranked) - NAMED} others {_WORSE[metric.better]}"
    return text


def _value(series: Series, value: float) -> str:
    """A value of the headline, with its name where that is not accuracy."""
    metric = series.headline
    if metric == ACCURACY:
        return metric.text(value)
    return f"{metric.title} {metric.text(value)}"


def verdict_sentence(runs: Sequence[RunView]) -> str:
    """What the verdict on grouping rests on, or what is missing for one; empty without groups."""
    found = verdict_on(series_of(runs))
    if found is None:
        return ""
    return found.detail or found.title


def intro_of(views: Sequence[RunView]) -> str:
    """What some runs were, as their configurations say; of many, the first ones."""
    runs: dict[tuple[str, str], list[RunView]] = {}
    for view in views:
        name = str(view.tables["algorithm"]["name"])
        runs.setdefault((_setting(view.tables), name), []).append(view)
    # Mostly several algorithms ran on the same: it is said once.
    algorithms: dict[str, list[str]] = {}
    for (setting, name), of_setting in runs.items():
        algorithms.setdefault(f"{setting}, {_seeds(of_setting)}", []).append(name)
    sentences = [f"{first_few(names)} on {what}" for what, names in algorithms.items()]
    text = "; ".join(sentences[:SENTENCES])
    if len(sentences) > SENTENCES:
        text += f"; {len(sentences) - SENTENCES} more"
    return text + "."


def _setting(tables: Mapping[str, Any]) -> str:
    """Data and model of a configuration."""
    data = tables["data"]
    if data["source"] == "saved":
        return f"data from Python, {tables['model']['name']}"
    source = f"{data['source']} ({data['partition']['kind']}{_word_vectors(data)})"
    return f"{source}, {tables['model']['name']}"


def _word_vectors(data: Mapping[str, Any]) -> str:
    """Where the word vectors of a text come from, which the papers' figures depend on."""
    if data["source"] != "sent140":
        return ""
    file = data.get("embeddings")
    if file:
        return f", word vectors from {Path(file).name}"
    return ", word vectors learned from other users' tweets"


def _seeds(runs: Sequence[RunView]) -> str:
    if any(run.private for run in runs):
        return f"{counted(len(runs), 'run')} with [privacy]"
    known = sorted({int(run.tables.get("seed", 0)) for run in runs})
    if len(known) == 1:
        return f"seed {known[0]}"
    consecutive = known == list(range(known[0], known[-1] + 1))
    if consecutive and len(known) > 2:
        return f"seeds {known[0]} to {known[-1]}"
    return f"seeds {', '.join(map(str, known))}"

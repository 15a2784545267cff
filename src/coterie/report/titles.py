"""What a page says in words: its title, its headline, and the sentences under it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.headline import ACCURACY, Headline
from coterie.report.comparison import (
    baseline_of,
    compared_over_all,
    final_difference,
    paired_accuracies,
    paired_runs,
    summarise_gains,
)
from coterie.report.series import Series, best_first, best_series, series_of
from coterie.report.view import RunView
from coterie.sweep.comparison import Difference
from coterie.terminal import counted

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
    """The result in words: the best series with groups against the best without, by final accuracy."""
    evaluated = [one for one in series_of(runs) if one.evaluated]
    if not evaluated:
        return "No round has been run yet"
    plain = best_series(one for one in evaluated if not one.grouped)
    grouped = best_series(one for one in evaluated if one.grouped)
    if plain is None or grouped is None:
        return _ranking(evaluated)
    return _against_plain(grouped, plain)


def _ranking(series: Sequence[Series]) -> str:
    """The best of some series of which all have groups, or none has."""
    ranked = best_first(series)
    best = ranked[0]
    metric = best.headline
    parts = [f"{best.name} reached {_value(best, best.final_accuracy)}"]
    parts += [f"{one.name} {metric.text(one.final_accuracy)}" for one in ranked[1:NAMED]]
    text = ", ".join(parts)
    if len(ranked) > NAMED:
        text += f", and {len(ranked) - NAMED} others {_WORSE[metric.better]}"
    return text


def _against_plain(grouped: Series, plain: Series) -> str:
    # Means over the pairs only: a run whose seed the other series lacks would shift them.
    accuracies = paired_accuracies(grouped, plain)
    found = final_difference(grouped, plain)
    lengths = [len(one.first.rounds) for one in (grouped, plain)]
    if found is None or lengths[0] != lengths[1]:
        both = _both(grouped, grouped.final_accuracy, plain, plain.final_accuracy)
        reason = f"after {lengths[0]} and {lengths[1]} rounds"
        if found is None:
            reason = "the clients or the seeds differ"
        return f"{both}: not comparable, {reason}"
    ours = statistics.fmean(a for a, _ in accuracies)
    theirs = statistics.fmean(b for _, b in accuracies)
    text = _both(grouped, ours, plain, theirs)
    if any(compared_over_all(a, b) for a, b in paired_runs(grouped, plain)):
        text += " over all clients, with a group or without"
    return f"{text}: {_verdict(found, grouped.headline)}"


def _both(grouped: Series, ours: float, plain: Series, theirs: float) -> str:
    compared = plain.headline.text(theirs)
    return f"{grouped.name} reached {_value(grouped, ours)}, {plain.name} {compared}"


def _value(series: Series, value: float) -> str:
    """A value of the headline, with its name where that is not accuracy."""
    metric = series.headline
    if metric == ACCURACY:
        return metric.text(value)
    return f"{metric.title} {metric.text(value)}"


def _verdict(found: Difference, metric: Headline) -> str:
    """What grouping did, in points: the figure that the table of the runs has, too."""
    # The difference is rounded, not taken of rounded accuracies, or the page would name two.
    shown = metric.short(abs(found.mean))
    if float(shown) == 0:
        return "grouping made no difference"
    points = f"{shown} {metric.step}".rstrip()
    if found.half is not None:
        points += f" (± {metric.short(found.half)}, {counted(found.pairs, 'seed')})"
        if abs(found.mean) <= found.half:
            return f"a difference of {points} that may be chance"
    if metric.gain(found.mean, over=0.0) > 0:
        return f"grouping gained {points}"
    return f"grouping lost {points}"


def gain_sentence(runs: Sequence[RunView]) -> str:
    """How many clients won and lost under the best series with groups; empty if unknown."""
    series = series_of(runs)
    base = baseline_of(series)
    best = best_series(one for one in series if one.grouped and one.first.accuracies)
    if base is None or best is None:
        return ""
    gains = summarise_gains(best, base)
    if gains is None:
        return ""
    clients = counted(gains.all, "client")
    seeds = len(paired_runs(best, base))
    if seeds > 1:
        clients += f" over {counted(seeds, 'seed')}"
    won = f"{gains.won:,} of {clients} won"
    return f"Under {best.name} {won} and {gains.lost:,} lost against {base.name}."


def intro_of(views: Sequence[RunView]) -> str:
    """What some runs were, as their configurations say; of many, the first ones."""
    runs: dict[str, list[RunView]] = {}
    for view in views:
        runs.setdefault(_setting(view.tables), []).append(view)
    sentences = [f"{setting}, {_seeds(of_setting)}" for setting, of_setting in runs.items()]
    text = "; ".join(sentences[:SENTENCES])
    if len(sentences) > SENTENCES:
        text += f"; {len(sentences) - SENTENCES} more"
    return text + "."


def _setting(tables: Mapping[str, Any]) -> str:
    """Algorithm, data and model of a configuration."""
    data = tables["data"]
    source = f"{data['source']} ({data['partition']['kind']}{_word_vectors(data)})"
    return f"{tables['algorithm']['name']} on {source}, {tables['model']['name']}"


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

"""What `coterie watch` shows of a run: progress, curve, groups, and what happened."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coterie.cli.follower import Follower
from coterie.headline import ACCURACY, Headline, other_scores
from coterie.terminal import counted, duration, fairness_text, printable

BLOCKS = " ▁▂▃▄▅▆▇█"
LEVELS = 8  # of a character
CURVE_WIDTH = 60
CURVE_HEIGHT = 8
MOST_GROUPS = 10
MOST_EVENTS = 6
MOST_REASONS = 3  # for which replies were refused, by name
RECENT = 20  # rounds, of which the time left is estimated
# A run that writes nothing for so long may have been stopped:
PATIENCE = 60.0  # seconds, and
PATIENCE_ROUNDS = 20  # usual rounds


def screen(run: Follower) -> RenderableType:
    """A run as it is now."""
    parts: list[RenderableType] = [Text(_title(run.config), style="bold"), Text(_progress(run))]
    silence = silence_line(run)
    if not run.rows:
        return Group(*parts, Text(silence or "waiting for the first round"))
    headline = run.headline
    values = [row[headline.name] for row in run.rows if row.get(headline.name) is not None]
    parts += [Text(), Text(_now(values, headline))]
    parts += [Text(line) for line in curve(values, headline=headline)]
    parts += _other_scores(run.rows, headline)
    parts += _groups(run.rows[-1], headline)
    parts += [Text(), Text(_totals(run.rows))]
    parts += [Text(line) for line in happened(run.rows)[-MOST_EVENTS:]]
    if silence:
        parts.append(Text(silence, style="yellow"))
    return Group(*parts)


def _title(config: Mapping[str, Any]) -> str:
    algorithm = config["algorithm"]["name"]
    source = config["data"]["source"]
    model = config["model"]["name"]
    return printable(f"{algorithm} on {source}, {model}, seed {config['seed']}")


def _progress(run: Follower) -> str:
    done = len(run.rows)
    text = f"round {done}/{run.rounds} {bar(done / run.rounds, 30)}"
    if run.done:
        return f"{text} done"
    usual = _usual_seconds(run.rows)
    if usual is None:
        return text
    return f"{text} {duration(usual * (run.rounds - done))} left"


def _now(values: Sequence[float], headline: Headline) -> str:
    if not values:
        return headline.title
    return f"{headline.title}, now {headline.text(values[-1])}"


def _usual_seconds(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of a usual round, of the last ones; ``None`` before the second round.

    The first round does not count: it has the cold start.
    """
    seconds = [row["seconds"]["total"] for row in rows[1:][-RECENT:] if row.get("seconds")]
    if seconds:
        # The median, since rounds in which clients do not answer take as long as the timeout.
        return statistics.median(seconds)
    return None


def silence_line(run: Follower) -> str:
    """A line if no round has come for long, else nothing.

    From outside, a run that was killed cannot be told from a slow one, so the line names both.
    """
    if run.done:
        return ""
    silence = run.silence
    usual = _usual_seconds(run.rows) or 0.0
    # A round with a cold start or many clients may take long by itself.
    if silence < max(PATIENCE, PATIENCE_ROUNDS * usual):
        return ""
    resume = f"if the run was stopped: coterie resume {run.folder.path}"
    return f"no round for {duration(silence)}; {resume}"


def bar(share: float, width: int) -> str:
    """A share as a bar.

    Example:
        >>> bar(0.5, 4), bar(1, 2)
        ('██  ', '██')
    """
    full = round(min(max(share, 0), 1) * width)
    return "█" * full + " " * (width - full)


def curve(
    values: Sequence[float],
    width: int = CURVE_WIDTH,
    height: int = CURVE_HEIGHT,
    headline: Headline = ACCURACY,
) -> list[str]:
    """Values of the headline over time as text, between the least and the greatest.

    Where there are more rounds than columns, a column is the mean of its rounds.

    Example:
        >>> for line in curve([0.0, 0.5, 1.0], height=2): print(line)
        100.0 % | ▁█
          0.0 % |▁██
    """
    if not values:
        return ["no round was evaluated yet"]
    columns = min(width, len(values))
    edges = [len(values) * i // columns for i in range(columns + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(edges)]
    # Not from 0 to 1: near the end of a run a curve would be a flat line.
    low = min(means)
    high = max(means)
    levels = [_level(mean, low, high, height) for mean in means]
    lines = []
    for row in reversed(range(height)):
        label = ""
        if row == height - 1:
            label = headline.text(high)
        elif row == 0:
            label = headline.text(low)
        characters = [BLOCKS[min(max(level - LEVELS * row, 0), LEVELS)] for level in levels]
        lines.append(f"{label:>7} |{''.join(characters)}")
    return lines


def _level(value: float, low: float, high: float, height: int) -> int:
    """How high a column is, in eighths of a line; at least one, so that every round is seen."""
    if high == low:
        return LEVELS * height // 2
    return 1 + round((value - low) / (high - low) * (LEVELS * height - 1))


def _other_scores(rows: Sequence[Mapping[str, Any]], headline: Headline) -> list[RenderableType]:
    """The other ways of scoring, of the last round that has them, and how even clients are served."""
    lines = []
    for row in reversed(rows):
        others = other_scores(row, headline)
        if others:
            lines.append(f"{others} (round {row['round'] + 1})")
            break
    for row in reversed(rows):
        if row.get(headline.keys.fairness) is not None:
            lines.append(f"clients: {fairness_text(row[headline.keys.fairness], headline)}")
            break
    if not lines:
        return []
    return [Text(), *(Text(line) for line in lines)]


def _groups(row: Mapping[str, Any], headline: Headline) -> list[RenderableType]:
    """The groups of a round, below an empty line; nothing before there are any."""
    sizes = row.get("sizes") or []
    if not sizes:
        return []
    if len(sizes) == 1:
        return [Text(), Text(f"one model for {counted(sizes[0], 'client')}")]
    return [Text(), _group_table(sizes, row.get(headline.keys.groups) or [], headline)]


def _group_table(sizes: Sequence[int], values: Sequence[float | None], headline: Headline) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("group", justify="left")
    table.add_column("clients", justify="right")
    table.add_column("", justify="left")
    table.add_column(headline.title, justify="right")
    # CFL and FedClust may make a group for each client.
    largest = sorted(range(len(sizes)), key=lambda group: -sizes[group])[:MOST_GROUPS]
    for group in sorted(largest):
        value = "-"
        if group < len(values):
            value = headline.text(values[group])
        share = sizes[group] / max([*sizes, 1])
        table.add_row(str(group), f"{sizes[group]:,}", bar(share, 24), value)
    if len(sizes) > MOST_GROUPS:
        table.add_row("...", "", f"{len(sizes) - MOST_GROUPS} more", "")
    return table


def _totals(rows: Sequence[Mapping[str, Any]]) -> str:
    refused: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in rows:
        refused.update(row.get("refused") or {})
        for name in ("cold_start", "newcomers", "drifted", "migrations"):
            total[name] += row.get(name) or 0
        total["skipped"] += bool(row.get("skipped"))
    reasons = ", ".join(
        f"{printable(reason)} {count:,}" for reason, count in refused.most_common(MOST_REASONS)
    )
    replies = f"refused replies {sum(refused.values()):,}"
    if reasons:
        replies += f" ({reasons})"
    newcomers = f"newcomers {total['newcomers']:,} (and {total['cold_start']:,} in cold starts)"
    moved = f"drifted {total['drifted']:,}, migrations {total['migrations']:,}"
    return f"{newcomers}, {moved}, {replies}, skipped rounds {total['skipped']:,}"


def happened(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each round in which clients joined, moved or were refused, or which was skipped.

    Example:
        >>> row = {"round": 4, "newcomers": 2, "migrations": 1, "refused": {"refused:finite": 3}}
        >>> happened([row, {"round": 5}])
        ['round 5: 2 newcomers, 1 migration, 3 replies refused']
    """
    lines = []
    for row in rows:
        events = _events(row)
        if events:
            lines.append(f"round {row['round'] + 1}: {printable(', '.join(events))}")
    return lines


def _events(row: Mapping[str, Any]) -> list[str]:
    events = [
        f"{event['shift']}, {counted(len(event['clients']), 'client')}"
        for event in row.get("shift") or ()
        if "clients" in event
    ]
    if row.get("cold_start"):
        events.append(f"{counted(row['cold_start'], 'client')} in the cold start")
    if row.get("newcomers"):
        events.append(counted(row["newcomers"], "newcomer"))
    if row.get("migrations"):
        events.append(counted(row["migrations"], "migration"))
    refused = sum((row.get("refused") or {}).values())
    if refused == 1:
        events.append("1 reply refused")
    elif refused:
        events.append(f"{refused:,} replies refused")
    if row.get("skipped"):
        events.append("skipped, too few replies")
    note = (row.get("notes") or {}).get("grouping")
    if note:
        events.append(str(note))
    return events

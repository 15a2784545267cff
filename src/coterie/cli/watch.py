"""Shows a run in progress in the terminal: progress, curve, groups, and what happened."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coterie.cli.signals import stop_once
from coterie.files import refuse_malformed
from coterie.headline import ACCURACY, Headline, other_scores
from coterie.runs.folder.digests import ROWS
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.published import published_state, published_summary
from coterie.runs.reporter import Reporter
from coterie.runs.state import RunState, read_state, summary_so_far
from coterie.terminal import (
    console,
    counted,
    duration,
    fairness_text,
    found_groups,
    printable,
    seed_text,
    summary_table,
)

BLOCKS = " ▁▂▃▄▅▆▇█"
LEVELS = 8  # of a character
CURVE_WIDTH = 60
CURVE_HEIGHT = 8
MOST_GROUPS = 10
MOST_EVENTS = 6
MOST_REASONS = 3  # for which replies were refused, by name


def watch(run: Path | str, *, once: bool = False, interval: float = 0.5) -> None:
    """Show a run until it ends: a live screen in a terminal, a line now and then elsewhere."""
    folder = RunFolder.open(run)
    check_folder(folder)
    state = read_state(folder)
    headline = state.headline
    out = console()
    # A signal must leave the live screen, or the terminal stays without a cursor. Rows are JSON but
    # may have other keys or types than a run writes, where a file was edited.
    with stop_once(), refuse_malformed(folder.path / ROWS):
        if once:
            out.print(screen(published_state(state)), soft_wrap=True)
            return
        states = _states(folder, state, interval)
        if out.is_terminal:
            # Cropped: a screen higher than the terminal would be printed again with every refresh.
            with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:
                for state in states:
                    live.update(screen(state), refresh=True)
        else:
            _print_lines(states, len(state.rows))
        summary = published_summary(summary_so_far(read_state(folder)), headline)
        out.print(summary_table(summary, str(folder.path)), soft_wrap=True)


def _states(folder: RunFolder, state: RunState, interval: float) -> Iterator[RunState]:
    """The states of a run until it is done."""
    yield published_state(state)
    while not state.done:
        time.sleep(interval)
        state = read_state(folder, state)
        yield published_state(state)


def _print_lines(states: Iterable[RunState], printed: int) -> None:
    """Print the lines that the run itself prints where there is no terminal."""
    warned = False
    reporter = None
    for state in states:
        if reporter is None:
            reporter = Reporter(state.rounds, printed, headline=state.headline)
            if printed and not state.done:
                print(f"{printed} of {counted(state.rounds, 'round')} done", flush=True)
        # A resumed run goes back to its last checkpoint: its rounds are printed again.
        printed = min(printed, len(state.rows))
        for row in state.rows[printed:]:
            reporter(row)
            warned = False
        printed = len(state.rows)
        if state.silence and not warned:
            print(_silence_line(state), flush=True)
            warned = True


# --- the screen -----------------------------------------------------------------------------------


def screen(state: RunState) -> RenderableType:
    """A run as it is now."""
    config = state.config
    title = f"{state.title}, {config['model']['name']}{seed_text(config)}"
    parts: list[RenderableType] = [Text(printable(title), style="bold"), Text(_progress(state))]
    if not state.rows:
        return Group(*parts, Text(_silence_line(state) or "waiting for the first round"))
    headline = state.headline
    now = headline.title
    if state.values:
        now += f", now {headline.text(state.values[-1])}"
    parts += [Text(), *map(Text, [now, *curve(state.values, headline=headline)])]
    others = _other_scores(state)
    if others:
        parts += [Text(), *map(Text, others)]
    parts += _groups(state)
    parts += [Text(), Text(_totals(state))]
    parts += map(Text, happened(state.rows)[-MOST_EVENTS:])
    if state.silence:
        parts.append(Text(_silence_line(state), style="yellow"))
    return Group(*parts)


def _progress(state: RunState) -> str:
    done = len(state.rows)
    text = f"round {done}/{state.rounds} {bar(done / state.rounds, 30)}"
    if state.done:
        return f"{text} done"
    left = state.seconds_left
    if left is None:
        return text
    return f"{text} {duration(left)} left"


def _silence_line(state: RunState) -> str:
    """A line if no round has come for long, else nothing."""
    if not state.silence:
        return ""
    resume = f"if the run was stopped: coterie resume {state.path}"
    return f"no round for {duration(state.silence)}; {resume}"


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
        return ["no round has been evaluated yet"]
    columns = min(width, len(values))
    edges = [len(values) * i // columns for i in range(columns + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(edges)]
    # Not from 0 to 1: near the end of a run a curve would be a flat line.
    low = min(means)
    high = max(means)
    levels = [_level(mean, low, high, height) for mean in means]
    labels = {0: headline.text(low), height - 1: headline.text(high)}
    lines = []
    for row in reversed(range(height)):
        characters = [BLOCKS[min(max(level - LEVELS * row, 0), LEVELS)] for level in levels]
        lines.append(f"{labels.get(row, ''):>7} |{''.join(characters)}")
    return lines


def _level(value: float, low: float, high: float, height: int) -> int:
    """How high a column is, in eighths of a line; at least one, so that every round is seen."""
    if high == low:
        return LEVELS * height // 2
    return 1 + round((value - low) / (high - low) * (LEVELS * height - 1))


def _other_scores(state: RunState) -> list[str]:
    """The other ways of scoring, of the last round that has them, and how even clients are served."""
    headline = state.headline
    lines = []
    for row in reversed(state.rows):
        others = other_scores(row, headline)
        if others:
            lines.append(f"{others} (round {row['round'] + 1})")
            break
    for row in reversed(state.rows):
        if row.get(headline.keys.fairness) is not None:
            lines.append(f"clients: {fairness_text(row[headline.keys.fairness], headline)}")
            break
    return lines


def _groups(state: RunState) -> list[RenderableType]:
    """The groups of a round, below an empty line; nothing before there are any."""
    row = state.rows[-1]
    sizes = row.get("sizes") or []
    if not sizes:
        return []
    if len(sizes) == 1:
        algorithm = state.config["algorithm"]["name"]
        return [Text(), Text(found_groups(sizes, sizes[0], algorithm).removeprefix("none: "))]
    values = row.get(state.headline.keys.groups) or []
    return [Text(), _group_table(sizes, values, state.headline)]


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


def _totals(state: RunState) -> str:
    refused = state.counted("refused")
    total: Counter[str] = Counter()
    for row in state.rows:
        for name in ("cold_start", "newcomers", "drifted", "migrations", "skipped"):
            total[name] += row.get(name) or 0
    reasons = ", ".join(
        f"{printable(reason)} {count:,}" for reason, count in refused.most_common(MOST_REASONS)
    )
    replies = f"refused replies {refused.total():,}"
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

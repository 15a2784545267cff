"""A run as it goes, in the terminal: from its folder alone, so from any process."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coterie.data import load_partition
from coterie.runs.files import damaged
from coterie.runs.store import RunFolder
from coterie.runs.summary import summarise
from coterie.terminal import Reporter, console, counted, duration, percent, printable, summary_table

BLOCKS = " ▁▂▃▄▅▆▇█"
GROUPS = 10
EVENTS = 6
HEIGHT = 8
RECENT = 20
PATIENCE = 60.0  # seconds without a round, or twenty usual rounds, until a word is said about it


class Follower:
    """The rows of a run, read again when their file has changed.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.config = folder, folder.resolved
        self.file = folder.path / "rounds.jsonl"
        self.rows: list[dict[str, Any]] = []
        self._seen: tuple[int, ...] = ()
        self.rounds = int(self.config["train"]["rounds"])

    def read(self) -> bool:
        """Read what is new; returns whether anything is.

        Raises:
            CheckpointError: if a line before the last is damaged.
        """
        try:
            now = os.stat(self.file)
        except FileNotFoundError:
            return False
        mark = (now.st_size, now.st_mtime_ns, now.st_ino)
        if mark == self._seen:
            return False
        self.rows = self.folder.rows()
        self._seen = mark
        return True

    @property
    def done(self) -> bool:
        """Whether the last round is there, and the summary that is written after it."""
        return len(self.rows) >= self.rounds and (self.folder.path / "summary.json").is_file()

    @property
    def silence(self) -> float:
        """Seconds since the last row was written."""
        return (
            time.time()
            - (self.file if self.file.exists() else self.folder.path / "config.toml")
            .stat()
            .st_mtime
        )


def watch(run: Path | str, *, once: bool = False, interval: float = 0.5) -> None:
    """Show a run until it ends: a live screen in a terminal, a line now and then elsewhere.

    Args:
        run: the folder of the run, in progress or finished.
        once: show how it stands, and return.
        interval: seconds between looks.

    Raises:
        ConfigError: if there is no run.
        CheckpointError: if its rows are damaged.
        KeyboardInterrupt: for Ctrl-C; the terminal is as it was.
    """
    follower = Follower(RunFolder.open(run))
    out = console()
    follower.read()
    if once:
        out.print(_checked(follower, lambda: screen(follower)), soft_wrap=True)
        return
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        if out.is_terminal:
            _live(follower, interval)
        else:
            _lines(follower, interval)
    finally:
        signal.signal(signal.SIGTERM, before)
    out.print(_checked(follower, lambda: _closing(follower)), soft_wrap=True)


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _live(follower: Follower, interval: float) -> None:
    """Redraw until the run is done."""
    with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_checked(follower, lambda: screen(follower)), refresh=True)
            if follower.done:
                return
            time.sleep(interval)
            follower.read()


def _lines(follower: Follower, interval: float) -> None:
    """The lines that the run itself prints where there is no terminal."""
    reporter = Reporter(follower.rounds, len(follower.rows))
    told = len(follower.rows)
    warned = False
    if follower.rows and not follower.done:
        print(f"{len(follower.rows)} of {counted(follower.rounds, 'round')} done", flush=True)
    while not follower.done:
        time.sleep(interval)
        if follower.read():
            told = min(told, len(follower.rows))
            warned = False
            for row in follower.rows[told:]:
                _checked(follower, lambda row=row: reporter(row))  # type: ignore[misc]
            told = len(follower.rows)
        elif not warned and (said := _stalled(follower)):
            print(said, flush=True)
            warned = True


def _checked(follower: Follower, show: Callable[[], Any]) -> Any:
    """What is shown, or one line that names the file if its rows are not what a run writes."""
    try:
        return show()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(follower.file, error) from None


def _closing(follower: Follower) -> Text:
    clients = load_partition(follower.folder.path / "partition.npz").clients
    summary = follower.folder.summary() or summarise(follower.config, follower.rows, clients)
    return summary_table(summary, str(follower.folder.path))


# --- the screen -----------------------------------------------------------------------------------


def screen(follower: Follower) -> RenderableType:
    """How a run stands: headline, curve, groups, what happened."""
    config = follower.config
    rows = follower.rows
    name = f"{config['algorithm']['name']} on {config['data']['source']}, {config['model']['name']}, seed {config['seed']}"
    parts: list[RenderableType] = [Text(printable(name), style="bold"), Text(_progress(follower))]
    if not rows:
        return Group(*parts, Text(_stalled(follower) or "waiting for the first round"))
    values = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    parts += [Text(), *(Text(line) for line in curve(values))]
    counts = rows[-1].get("sizes") or []
    if len(counts) == 1:
        parts += [Text(), Text(f"one model for {counted(counts[0], 'client')}")]
    elif counts:
        parts += [Text(), _groups(rows[-1])]
    parts += [Text(), Text(_totals(rows))]
    parts += [Text(line) for line in happened(rows)[-EVENTS:]]
    said = _stalled(follower)
    return Group(*parts, *([Text(said, style="yellow")] if said else []))


def _progress(follower: Follower) -> str:
    done = len(follower.rows)
    rounds = follower.rounds
    said = f"round {done}/{rounds} {bar(done / rounds, 30)}"
    if follower.done:
        return f"{said} done"
    each = _each(follower.rows)
    if each is None:
        return said
    return f"{said} {duration(each * (rounds - done))} left"


def _each(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of a usual round, of the last ones; ``None`` before the second round.

    The first round does not count: it has the cold start.
    """
    spent = [row["seconds"]["total"] for row in rows[1:][-RECENT:] if row.get("seconds")]
    if spent:
        return statistics.median(spent)
    return None


def _stalled(follower: Follower) -> str:
    """A line if no round has come for long: nobody but the run knows whether it still goes on."""
    if follower.done:
        return ""
    silence = follower.silence
    each = _each(follower.rows) or 0.0
    if silence < max(PATIENCE, 20 * each):
        return ""
    return f"no round for {duration(silence)}; if the run was stopped: coterie resume {follower.folder.path}"


def bar(share: float, width: int) -> str:
    """A share as a bar.

    Example:
        >>> bar(0.5, 4), bar(1, 2)
        ('██  ', '██')
    """
    full = round(min(max(share, 0), 1) * width)
    return "█" * full + " " * (width - full)


def curve(values: Sequence[float], width: int = 60, height: int = HEIGHT) -> list[str]:
    """Fractions over time, as text: the mean of as many rounds as share a column, between the least
    and the most.

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
    low = min(means)
    high = max(means)
    levels = [
        1 + round((v - low) / (high - low) * (8 * height - 1)) if high > low else 4 * height
        for v in means
    ]
    lines = []
    for at in reversed(range(height)):
        label = percent(high) if at == height - 1 else percent(low) if at == 0 else ""
        text = "".join(BLOCKS[min(max(level - 8 * at, 0), 8)] for level in levels)
        lines.append(f"{label:>7} |{text}")
    return lines


def _groups(row: Mapping[str, Any]) -> Table:
    """A line for each of the largest groups."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, side in (
        ("group", "left"),
        ("clients", "right"),
        ("", "left"),
        ("accuracy", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    counts = row["sizes"]
    scores = row.get("accuracy_groups") or []
    order = sorted(range(len(counts)), key=lambda j: -counts[j])[:GROUPS]
    for j in sorted(order):
        score = percent(scores[j]) if j < len(scores) else "-"
        table.add_row(str(j), f"{counts[j]:,}", bar(counts[j] / max([*counts, 1]), 24), score)
    if len(counts) > GROUPS:
        table.add_row("...", "", f"{len(counts) - GROUPS} more", "")
    return table


def _totals(rows: Sequence[Mapping[str, Any]]) -> str:
    """What has happened so far, in one line."""
    refused: Counter[str] = Counter()
    for row in rows:
        refused.update(row.get("refused") or {})
    summed = {
        name: sum(row.get(name) or 0 for row in rows)
        for name in ("cold_start", "newcomers", "drifted", "migrations")
    }
    skipped = sum(bool(row.get("skipped")) for row in rows)
    why = (
        f" ({', '.join(f'{printable(k)} {n:,}' for k, n in refused.most_common(3))})"
        if refused
        else ""
    )
    lost = f"refused replies {sum(refused.values()):,}{why}"
    came = f"newcomers {summed['newcomers']:,} (and {summed['cold_start']:,} in cold starts)"
    moved = f"drifted {summed['drifted']:,}, migrations {summed['migrations']:,}"
    return f"{came}, {moved}, {lost}, skipped rounds {skipped:,}"


def happened(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each round in which clients came, moved or were refused, or which was skipped.

    Example:
        >>> happened([{"round": 4, "newcomers": 2, "migrations": 1, "refused": {"refused:finite": 3}}, {"round": 5}])
        ['round 5: 2 newcomers, 1 migration, 3 replies refused']
    """
    lines = []
    for row in rows:
        said = [
            f"{e['shift']}, {counted(len(e['clients']), 'client')}"
            for e in row.get("shift") or ()
            if "clients" in e
        ]
        for name, what in (
            ("cold_start", "client"),
            ("newcomers", "newcomer"),
            ("migrations", "migration"),
        ):
            if row.get(name):
                said.append(
                    counted(row[name], what)
                    + (" in the cold start" if name == "cold_start" else "")
                )
        lost = sum((row.get("refused") or {}).values())
        said += [f"{lost:,} {'reply' if lost == 1 else 'replies'} refused"] if lost else []
        said += ["skipped, too few replies"] if row.get("skipped") else []
        note = (row.get("notes") or {}).get("grouping")
        said += [str(note)] if note else []
        if said:
            lines.append(f"round {row['round'] + 1}: {printable(', '.join(said))}")
    return lines

"""What a run prints in a terminal: progress and tables. Names that were read are never taken for
markup."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from coterie.headline import ACCURACY, Headline

PLAIN_WIDTH = 110  # characters of a line, where there is no terminal
LINES = 20  # of progress, where there is no terminal
PARTS = ("training", "grouping", "aggregation", "evaluation")


def console(file: TextIO | None = None) -> Console:
    """The terminal, or plain text of a fixed width where there is none."""
    out = sys.stdout if file is None else file
    width = None if out.isatty() else PLAIN_WIDTH
    # Names of runs and clients are text: brackets in them are no markup.
    return Console(file=out, markup=False, emoji=False, highlight=False, width=width)


def say(line: str, file: IO[str] | None = None) -> None:
    """Print a line of a run. The run goes on if its output is no longer read, as by a closed ``head``."""
    with suppress(BrokenPipeError):
        print(line, file=file, flush=True)


def warn(line: str) -> None:
    """Print a line about something that the reader should know, to standard error."""
    say(f"warning: {line}", sys.stderr)


def percent(fraction: float | None) -> str:
    """A fraction in percent, ``-`` for none.

    Example:
        >>> percent(0.9216), percent(None)
        ('92.2 %', '-')
    """
    return ACCURACY.text(fraction)


def amount(size: float) -> str:
    """A number of bytes.

    Example:
        >>> amount(1716000)
        '1.7 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            if unit == "B":
                return f"{size:.0f} B"
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def duration(seconds: float) -> str:
    """A time span.

    Example:
        >>> duration(3.14), duration(75), duration(7300)
        ('3.1 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{minutes // 60} h {minutes % 60} min"


def printable(text: str) -> str:
    """A name that was read, safe to print.

    Example:
        >>> printable("Ann"), printable("a" + chr(27) + "[2J")
        ('Ann', "'a\\\\x1b[2J'")
    """
    if text.isprintable():
        return text
    return repr(text)


class Reporter:
    """Shows the progress of a run: a live bar in a terminal, about twenty lines elsewhere.

    Args:
        rounds: how many there will be.
        start: how many are done already.
        file: where to, default standard output.
        headline: what the run is measured by.
    """

    def __init__(
        self,
        rounds: int,
        start: int = 0,
        file: TextIO | None = None,
        headline: Headline = ACCURACY,
    ) -> None:
        self.rounds = rounds
        self.start = start
        self.headline = headline
        self.console = console(file)
        self.value: float | None = None
        self.error: float | None = None
        self.first_ended: float | None = None  # when the first round ended
        self.bar: Progress | None = None
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[text]}", markup=False),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=rounds, completed=start, text="")

    def __enter__(self) -> Reporter:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, row: Mapping[str, Any]) -> None:
        """A round is done; ``row`` is its line in ``rounds.jsonl``."""
        # Not every round is evaluated: the last value stays until there is another.
        keys = self.headline.keys
        if row.get(keys.value) is not None:
            self.value = row[keys.value]
            self.error = row.get(keys.error)
        done = row["round"] + 1
        note = (row.get("notes") or {}).get("grouping")
        if note:
            self.console.print(f"round {done}/{self.rounds}: {note}")
        text = self._text(row)
        seconds = self._seconds_left(done)
        if seconds is not None:
            text += f", {duration(seconds)} left"
        if self.bar:
            self.bar.update(self.task, completed=done, text=text)
        elif self._has_line(done):
            say(f"round {done}/{self.rounds}: {text}", self.console.file)

    def _text(self, row: Mapping[str, Any]) -> str:
        """The headline and groups, as of a row."""
        value = f"{self.headline.title} {self.headline.text(self.value)}"
        if self.error is not None:
            value += f" ± {self.headline.text(self.error)}"  # of a sample of the clients
        counts = row.get("sizes", [])
        if len(counts) == 1:
            return f"{value}, one model"
        text = f"{value}, groups {sizes(counts)}"
        if row.get("agreement") and counts:
            text += f", agreement {row['agreement']['ari']:.2f}"
        return text

    def _has_line(self, done: int) -> bool:
        """Whether a round has a line of the about twenty: the first has, and the last."""
        if done == self.start + 1:
            return True
        # A line whenever another twentieth of the rounds is done, so a log is short
        # whatever a run is long.
        return done * LINES // self.rounds > (done - 1) * LINES // self.rounds

    def _seconds_left(self, done: int) -> float | None:
        """Seconds that are left, by the rounds since the first one; ``None`` before they can be
        known.

        The first round does not count: it has the cold start, and the workers start in it.
        """
        now = time.monotonic()
        if self.first_ended is None:
            self.first_ended = now
        if done == self.rounds:
            return 0.0
        count = done - self.start - 1
        if count < 1:
            return None
        return (now - self.first_ended) / count * (self.rounds - done)


def counted(number: int, what: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "round"), counted(3, "round")
        ('1 round', '3 rounds')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def sizes(counts: Sequence[int]) -> str:
    """The sizes of groups.

    Example:
        >>> sizes([20, 19, 21])
        '20 + 19 + 21'
    """
    shown = " + ".join(str(c) for c in counts[:8])
    if len(counts) > 8:
        return f"{shown} + ... ({len(counts)})"
    return shown or "-"


def found_groups(counts: Sequence[int], clients: int) -> str:
    """How many groups there are, and how many clients in each.

    Example:
        >>> found_groups([20, 0, 38], 60)
        '2 found, of 58 clients: 20 + 38; 1 without clients; 2 of 60 clients in none'
        >>> found_groups([60], 60)
        'one model for 60 clients'
    """
    filled = [count for count in counts if count]
    grouped = sum(counts)
    if len(counts) == 1:
        text = f"one model for {counted(grouped, 'client')}"
    else:
        text = f"{len(filled)} found, of {counted(grouped, 'client')}: {sizes(filled)}"
        if len(filled) < len(counts):
            text += f"; {len(counts) - len(filled)} without clients"
    if grouped < clients:
        text += f"; {clients - grouped:,} of {counted(clients, 'client')} in none"
    return text


def summary_table(summary: Mapping[str, Any], folder: str) -> Text:
    """The closing table of a run, a line for each figure; print it with ``soft_wrap=True``."""
    rows = _summary_rows(summary) | {"folder": folder}
    width = max(map(len, rows))
    lines = [
        Text.assemble((f"{name:<{width}}", "bold"), f" {printable(value)}")
        for name, value in rows.items()
    ]
    return Text("\n").join(lines)


def _summary_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """The lines of the closing table: name and text."""
    run = f"{summary['algorithm']} on {summary['dataset']}, {summary['model']}"
    headline = ACCURACY
    if "headline" in summary:
        headline = Headline.of(summary["headline"])
    rows = {
        "run": f"{run}, seed {summary['seed']}",
        "rounds": _rounds_done(summary),
        headline.title: _figures(summary[headline.name], headline),
        "groups": found_groups(summary["sizes"], summary["clients"]),
    }
    if summary.get("baseline") is not None:
        rows["baseline"] = f"{headline.text(summary['baseline'])} without looking at the inputs"
    agreement = summary.get("agreement")
    if agreement and len(summary["sizes"]) > 1:
        information = f"mutual information {agreement['nmi']:.2f}"
        rows["agreement"] = f"adjusted Rand index {agreement['ari']:.2f}, {information}"
    transfers = summary["transfers"]
    moved = f"{amount(transfers['down_bytes'])} down, {amount(transfers['up_bytes'])} up"
    refused = ", ".join(f"{reason} {count}" for reason, count in summary["refused"].items())
    return rows | {
        "time": _seconds_taken(summary["seconds"]),
        "spent on": ", ".join(f"{part} {duration(summary['seconds'][part])}" for part in PARTS),
        "transfers": f"{transfers['models']:,} models, {moved}",
        "refused": refused or "none",
    }


def _figures(figures: Mapping[str, float | None], headline: Headline) -> str:
    """Best, last and mean of the last ten of the evaluated rounds."""
    best = headline.text(figures[headline.best_key])
    last = headline.text(figures["final"])
    mean = headline.text(figures["last10_mean"])
    return f"{headline.best_key} {best}, final {last}, mean of the last ten {mean}"


def _rounds_done(summary: Mapping[str, Any]) -> str:
    text = str(summary["rounds"])
    if not summary["complete"]:
        text += " so far"
    if summary["skipped"]:
        text += f", {summary['skipped']} of them skipped"
    return text


def _seconds_taken(seconds: Mapping[str, Any]) -> str:
    median = "-"
    if seconds["per_round_median"] is not None:
        median = f"{seconds['per_round_median']:.3f} s"
    return f"{duration(seconds['total'])}, {median} a round (median)"


def columns_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and the others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", vertical="bottom", no_wrap=not i)
    for row in rows:
        table.add_row(*row)
    return table

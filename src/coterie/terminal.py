"""What a run looks like in a terminal: progress, tables, bars. Nothing that was read is taken for
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

LINES = 20
SHADES = " ░▒▓█"


def console(file: TextIO | None = None) -> Console:
    """The terminal, or plain text of a fixed width where there is none."""
    out = sys.stdout if file is None else file
    return Console(
        file=out, markup=False, emoji=False, highlight=False, width=None if out.isatty() else 110
    )


def say(line: str, file: IO[str] | None = None) -> None:
    """A line of a run, which goes on if nobody reads it any more."""
    with suppress(BrokenPipeError):
        print(line, file=file, flush=True)


def percent(fraction: float | None) -> str:
    """A fraction in percent, ``-`` for none.

    Example:
        >>> percent(0.9216), percent(None)
        ('92.2 %', '-')
    """
    if fraction is None:
        return "-"
    return f"{100 * fraction:.1f} %"


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
    """

    def __init__(self, rounds: int, start: int = 0, file: TextIO | None = None) -> None:
        self.rounds = rounds
        self.start = start
        self.console = console(file)
        self.accuracy: float | None = None
        self.error: float | None = None
        self.first: float | None = None  # when the first round ended
        self.bar = self._bar() if self.console.is_terminal else None
        self.task = (
            self.bar.add_task("", total=rounds, completed=start, said="") if self.bar else None
        )

    def _bar(self) -> Progress:
        columns = (
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[said]}", markup=False),
        )
        return Progress(*columns, console=self.console)

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
        if row.get("accuracy") is not None:
            self.accuracy = row["accuracy"]
            self.error = row.get("accuracy_error")
        done = row["round"] + 1
        now = time.monotonic()
        if self.first is None:
            self.first = now
        note = (row.get("notes") or {}).get("grouping")
        if note:
            self.console.print(f"round {done}/{self.rounds}: {note}")
        sampled = "" if self.error is None else f" ± {percent(self.error)}"
        counts = row.get("sizes", [])
        said = f"accuracy {percent(self.accuracy)}{sampled}, "
        said += "one model" if len(counts) == 1 else f"groups {sizes(counts)}"
        if row.get("agreement") and len(counts) > 1:
            said += f", agreement {row['agreement']['ari']:.2f}"
        left = self._left(done, now - self.first)
        if left is not None:
            said += f", {duration(left)} left"
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=done, said=said)
        elif (
            done == self.start + 1
            or done * LINES // self.rounds > (done - 1) * LINES // self.rounds
        ):
            say(f"round {done}/{self.rounds}: {said}", self.console.file)

    def _left(self, done: int, passed: float) -> float | None:
        """Seconds that are left, by the ``passed`` seconds since the first round; ``None`` before
        they can be known.

        The first round does not count: it has the cold start, and the workers start in it.
        """
        if done == self.rounds:
            return 0.0
        count = done - self.start - 1
        if count < 1:
            return None
        return passed / count * (self.rounds - done)


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
    filled = [c for c in counts if c]
    inside = sum(counts)
    if len(counts) == 1:
        said = f"one model for {counted(inside, 'client')}"
    else:
        said = f"{len(filled)} found, of {counted(inside, 'client')}: {sizes(filled)}"
        said += (
            f"; {len(counts) - len(filled)} without clients" if len(filled) < len(counts) else ""
        )
    return said + (
        f"; {clients - inside:,} of {counted(clients, 'client')} in none"
        if inside < clients
        else ""
    )


def agreed(agreement: Mapping[str, float] | None) -> dict[str, str]:
    """A line on how well the groups are those that were planted, where that is known.

    Example:
        >>> agreed({"ari": 0.96, "nmi": 0.941}), agreed(None)
        ({'agreement': 'adjusted Rand index 0.96, mutual information 0.94'}, {})
    """
    if not agreement:
        return {}
    return {
        "agreement": f"adjusted Rand index {agreement['ari']:.2f}, mutual information {agreement['nmi']:.2f}"
    }


def summary_table(summary: Mapping[str, Any], folder: str) -> Text:
    """The closing table of a run, a line for each figure; print it with ``soft_wrap=True``."""
    accuracy = summary["accuracy"]
    seconds = summary["seconds"]
    transfers = summary["transfers"]
    split = [
        f"{name} {duration(seconds[name])}"
        for name in ("training", "grouping", "aggregation", "evaluation")
    ]
    moved = f"{amount(transfers['down_bytes'])} down, {amount(transfers['up_bytes'])} up"
    skipped = f", {summary['skipped']} of them skipped" if summary["skipped"] else ""
    each = "-" if seconds["per_round_median"] is None else f"{seconds['per_round_median']:.3f} s"
    rows = {
        "run": f"{summary['algorithm']} on {summary['dataset']}, {summary['model']}, seed {summary['seed']}",
        "rounds": f"{summary['rounds']}{'' if summary['complete'] else ' so far'}{skipped}",
        "accuracy": f"max {percent(accuracy['max'])}, final {percent(accuracy['final'])}, "
        f"mean of the last ten {percent(accuracy['last10_mean'])}",
        "groups": found_groups(summary["sizes"], summary["clients"]),
        **(agreed(summary.get("agreement")) if len(summary["sizes"]) > 1 else {}),
        "time": f"{duration(seconds['total'])}, {each} a round (median)",
        "spent on": ", ".join(split),
        "transfers": f"{transfers['models']:,} models, {moved}",
        "refused": ", ".join(f"{name} {n}" for name, n in summary["refused"].items()) or "none",
        "folder": folder,
    }
    wide = max(map(len, rows))
    lines = [
        Text.assemble((f"{name:<{wide}}", "bold"), f" {printable(value)}")
        for name, value in rows.items()
    ]
    return Text("\n").join(lines)


def choices_list(rows: Iterable[tuple[str, str, Sequence[tuple[str, str]]]]) -> Text:
    """Choices of a kind: name and description, then a line for each option and what it may be."""
    lines = []
    for name, description, options in rows:
        lines.append(Text.assemble((name, "bold"), f": {description}"))
        wide = max((len(option) for option, _ in options), default=0)
        lines += [Text(f"    {option:<{wide}}  {allowed}") for option, allowed in options]
    return Text("\n").join(lines)


def sizes_table(rows: Iterable[tuple[str, Sequence[int]]]) -> Table:
    """Samples per client of each split: total, least, median, mean, most."""
    import statistics

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("split", "clients with samples", "samples", "min", "median", "mean", "max"):
        table.add_column(name, justify="left" if name == "split" else "right")
    for split, counts in rows:
        median = statistics.median(counts)
        mean = statistics.fmean(counts)
        some = sum(c > 0 for c in counts)
        figures = (some, sum(counts), min(counts), median, mean, max(counts))
        table.add_row(split, *(f"{f:,.1f}" if isinstance(f, float) else f"{f:,}" for f in figures))
    return table


def columns_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and the others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", vertical="bottom", no_wrap=not i)
    for row in rows:
        table.add_row(*row)
    return table


def bars(names: Sequence[str], counts: Sequence[int], width: int = 40) -> list[str]:
    """A bar for each count.

    Example:
        >>> bars(["cat", "dog"], [1, 2], width=4)
        ['cat ██   1', 'dog ████ 2']
    """
    most = max([*counts, 1])
    longest = max(map(len, names), default=0)
    digits = len(f"{max([*counts, 0]):,}")
    return [
        f"{name:<{longest}} {'█' * round(width * count / most):<{width}} {count:>{digits},}"
        for name, count in zip(names, counts, strict=True)
    ]


def heat(counts: Sequence[int]) -> str:
    """One character per class: the darker, the larger its share of the client's samples.

    Example:
        >>> heat([0, 3, 1])
        ' ▓░'
    """
    total = sum(counts)
    return "".join(SHADES[-(-4 * c // total)] if total else SHADES[0] for c in counts)

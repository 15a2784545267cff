"""Text for a terminal: lines, tables, and numbers as people read them.

Used by the commands of `coterie.cli`, `coterie.flower` and `coterie.studies`, and for the progress
and the warnings of a run. The report and the card of an export write numbers as these commands do.
Names of runs and clients come from files: brackets in them are never taken for Rich's markup.
"""

from __future__ import annotations

import codecs
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from textwrap import wrap
from typing import IO, Any, Literal, TextIO, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coterie.headline import ACCURACY, Headline

Output = TypeVar("Output", bound=IO[str])

PLAIN_WIDTH = 110  # characters of a line, where there is no terminal
MOST_LAYERS = 8  # that are named
LAST = 10  # rounds, whose mean a summary has
# In a terminal that lacks them: bars and curves, each level darker or higher than the one before.
STAND_INS = dict(zip("░▒▓█▁▂▃▄▅▆▇", ".:*#_.,-~=*", strict=True)) | {"±": "+-", "…": "..."}
# What the seconds of a run are split into, as its summary names them.
PARTS = ("training", "grouping", "aggregation", "evaluation")


def console(file: TextIO | None = None) -> Console:
    """The terminal, or plain text of a fixed width where there is none."""
    out = with_escapes(file or sys.stdout)
    width = None
    if not out.isatty():
        width = PLAIN_WIDTH
    # Names of runs and clients are text: brackets in them are no markup.
    return Console(file=out, markup=False, emoji=False, highlight=False, width=width)


def say(line: str, file: IO[str] | None = None) -> None:
    """Print a line of a run.

    The run continues if its output is no longer read, as after ``| head`` has ended.
    """
    with suppress(BrokenPipeError):
        print(line, file=with_escapes(file or sys.stdout), flush=True)


def with_escapes(stream: Output) -> Output:
    """A stream that writes letters which its encoding lacks as their escapes, and bars as ASCII.

    A terminal that knows no umlaut would otherwise end a run by the name of a client.
    """
    if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="coterie")
    return stream


def _stand_in(error: UnicodeError) -> tuple[str | bytes, int]:
    """The letter in the place of the first that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError), "streams for output are encoded alone"
    letter = error.object[error.start]
    if letter in STAND_INS:
        return STAND_INS[letter], error.start + 1
    one = UnicodeEncodeError(
        error.encoding, error.object, error.start, error.start + 1, error.reason
    )
    return codecs.backslashreplace_errors(one)


codecs.register_error("coterie", _stand_in)


def warn(line: str) -> None:
    """Print a line about something that the reader should know, to standard error."""
    say(f"warning: {visible(line)}", sys.stderr)


def number_text(value: float | None, digits: str) -> str:
    """A number in a cell of a table, ``-`` for none."""
    if value is None:
        return "-"
    return format(value, digits)


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
    """A name from a file, safe to print: quoted and escaped if it has control characters.

    Example:
        >>> printable("Ann"), printable("a" + chr(27) + "[2J")
        ('Ann', "'a\\\\x1b[2J'")
    """
    if text.isprintable():
        return text
    return repr(text)


def visible(line: str) -> str:
    """A line in which characters that would move the cursor or hide text stand as their escapes.

    A message may quote a file or a server, which may say anything.

    Example:
        >>> print(visible("classes a" + chr(27) + "[2J, b"))
        classes a\\x1b[2J, b
    """
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def counted(number: int, what: str) -> str:
    """A number of things."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}s"


def first_few(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are.

    Example:
        >>> first_few(["a", "b", "c"]), first_few(["a", "b", "c"], most=2)
        ('a, b, c', 'a, b, and 1 more')
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])}, and {len(names) - most} more"


def sizes(counts: Sequence[int]) -> str:
    """The sizes of groups."""
    shown = " + ".join(str(c) for c in counts[:8])
    if len(counts) > 8:
        return f"{shown} + ... ({len(counts)})"
    return shown or "-"


ALONE = "local"  # the algorithm in which every client trains for itself


def found_groups(counts: Sequence[int], clients: int, algorithm: str = "") -> str:
    """How many groups an algorithm ended with, and how many clients in each.

    Example:
        >>> found_groups([20, 0, 38], 60)
        '2 groups of 58 clients: 20 + 38; 1 without clients; 2 of 60 clients in none'
        >>> found_groups([60], 60)
        'one model for 60 clients'
        >>> found_groups([60], 60, "local")
        'none: each of 60 clients has a model of its own'
    """
    filled = [count for count in counts if count]
    grouped = sum(counts)
    if len(counts) == 1 and algorithm == ALONE:
        text = f"none: each of {counted(grouped, 'client')} has a model of its own"
    elif len(counts) == 1:
        text = f"one model for {counted(grouped, 'client')}"
    else:
        text = f"{counted(len(filled), 'group')} of {counted(grouped, 'client')}: {sizes(filled)}"
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


def seed_text(known: Mapping[str, Any]) -> str:
    """The seed of a run, as the end of a line that names it; empty where it is not shown.

    Example:
        >>> seed_text({"seed": 3}), seed_text({})
        (', seed 3', '')
    """
    if "seed" not in known:
        return ""
    return f", seed {known['seed']}"


def _summary_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """The lines of the closing table: name and text."""
    run = f"{summary['algorithm']} on {summary['dataset']}, {summary['model']}"
    headline = ACCURACY
    if "headline" in summary:
        headline = Headline.of(summary["headline"])
    rows = {
        "run": f"{run}{seed_text(summary)}",
        "rounds": _rounds_done(summary),
        **_scores(summary, headline),
        "groups": found_groups(summary["sizes"], summary["clients"], summary["algorithm"]),
    }
    rows |= _without_model(summary, headline)
    agreement = summary.get("agreement")
    if agreement and len(summary["sizes"]) > 1:
        information = f"mutual information {agreement['nmi']:.2f}"
        rows["agreement"] = f"adjusted Rand index {agreement['ari']:.2f}, {information}"
    if "share_error" in summary:
        rows["shares"] = f"{summary['share_error']:.3f} from the planted ones, mean absolute error"
    transfers = summary["transfers"]
    moved = f"{amount(transfers['down_bytes'])} down, {amount(transfers['up_bytes'])} up"
    if "frozen_bytes" in transfers:
        moved += f"; {amount(transfers['frozen_bytes'])} frozen, loaded once by each node"
    refused = ", ".join(f"{reason} {count}" for reason, count in summary["refused"].items())
    replies = "all were accepted"
    if refused:
        replies = f"refused: {refused}"
    spent = summary.get("privacy")
    if spent:
        rows["privacy"] = f"epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g}"
    return rows | {
        "time": _seconds_taken(summary["seconds"]),
        "spent on": ", ".join(f"{part} {duration(summary['seconds'][part])}" for part in PARTS),
        "transfers": f"{transfers['models']:,} models, {moved}",
        "replies": replies,
    }


def _without_model(summary: Mapping[str, Any], headline: Headline) -> dict[str, str]:
    """A line for each prediction that no model made, and whether it is better than the model."""
    values = dict(summary.get("naive", {}))
    notes = {}
    if summary.get("baseline") is not None:
        values = {"baseline": summary["baseline"], **values}
        notes["baseline"] = " without looking at the inputs"
    final = summary[headline.name]["final"]
    rows = {}
    for name, value in values.items():
        rows[name] = f"{headline.text(value)}{notes.get(name, '')}"
        if final is not None and headline.gain(value, over=final) > 0:
            rows[name] += ", better than the model"
    return rows


def _scores(summary: Mapping[str, Any], headline: Headline) -> dict[str, str]:
    """A line for each way in which clients were scored, what they are of, and how even they are."""
    rounds = summary["rounds"]
    rows = {headline.title: _figures(summary[headline.name], headline, rounds)}
    # Beside the score over all samples, which can hide a client.
    rows |= _over_clients(summary, headline)
    # The usual way needs no name.
    titles = {headline.name: ""}
    # A run has those that it was asked for.
    for title, keys in headline.keys.others.items():
        titles[keys.value] = f", {title}"
        if keys.value in summary:
            rows[title] = _figures(summary[keys.value], headline, rounds)
    for name, found in summary.get("fairness", {}).items():
        if found is not None:
            rows[f"fairness{titles[name]}"] = fairness_text(found, headline)
    for name, said in summary.get("protocol", {}).items():
        rows[f"scored{titles[name]}"] = said
    kept = summary.get("personal")
    if kept:
        layers = first_few(kept["layers"], MOST_LAYERS)
        share = f"{kept['values']:,} of {kept['of']:,} values"
        rows["personal layers"] = f"{layers}: {share} stay with each client and score it"
    return rows


def _over_clients(summary: Mapping[str, Any], headline: Headline) -> dict[str, str]:
    """A line with the mean of the clients' own scores, and who is served worst."""
    found = summary.get("over_clients")
    # Of one client there is nothing to compare.
    if found is None or summary["clients"] < 2:
        return {}
    low, high = found.get("interval", (math.nan, math.nan))
    figure = headline.with_interval(found["worst"], low, high)
    worst = f"worst {figure} at {client_name(found['client'])}"
    text = f"mean {headline.text(found['mean'])}, {worst}"
    if "samples" in found:
        text += f", {samples_text(found['samples'], found.get('positives'))}"
    # A client may be away in the last round, or have no test samples.
    if found.get("scored", summary["clients"]) < summary["clients"]:
        text += f"; {found['scored']:,} of {counted(summary['clients'], 'client')} scored"
    return {"clients": text}


def client_name(name: object) -> str:
    """The name of a client in a sentence: a number alone would read like a figure.

    Example:
        >>> client_name("32"), client_name("north")
        ('client 32', 'north')
    """
    return f"client {name}" if str(name).isdigit() else str(name)


def samples_text(samples: int, positives: int | None = None) -> str:
    """The samples that a figure rests on.

    Example:
        >>> samples_text(31, 29), samples_text(1)
        ('31 samples, 29 positive', '1 sample')
    """
    text = counted(samples, "sample")
    if positives is None:
        return text
    return f"{text}, {positives:,} positive"


def fairness_text(found: Mapping[str, float | None], headline: Headline) -> str:
    """Fairness over clients in words.

    Example:
        >>> fairness_text({"worst_tenth": 0.5, "spread": 0.125, "jain": 0.98}, ACCURACY)
        'worst tenth 50.0 %, spread 12.5 %, evenness 0.980 (1: all clients the same)'
    """
    worst = headline.text(found["worst_tenth"])
    text = f"worst tenth {worst}, spread {headline.text(found['spread'])}"
    if found["jain"] is not None:
        # Jain's index.
        text += f", evenness {found['jain']:.3f} (1: all clients the same)"
    return text


def _figures(figures: Mapping[str, float | None], headline: Headline, rounds: int) -> str:
    """Best and last of the evaluated rounds, and the mean of the last ten if there are more."""
    best = headline.text(figures[headline.best_key])
    last = headline.text(figures["final"])
    text = f"{headline.best_key} {best}, final {last}"
    if rounds > LAST:
        text += f", mean of the last ten {headline.text(figures['last10_mean'])}"
    return text


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
    text = f"{duration(seconds['total'])}, {median} per round (median)"
    # Runs of before have no such figure: it was in their first round.
    if seconds.get("start_up"):
        text += f", and {duration(seconds['start_up'])} of start-up"
    return text


def columns_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and the others are numbers. If it is too wide, heads take
    several lines, and only then cells."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = list(rows)
    least = column_widths(columns, rows)
    whole = [max(len(name), one) for name, one in zip(columns, least, strict=True)]
    width = console().width
    widths = whole if _letters_of(whole) <= width else least
    fits = _letters_of(widths) <= width
    for at, (name, letters) in enumerate(zip(columns, widths, strict=True)):
        head = "\n".join(wrap(name, letters, break_on_hyphens=False))
        justify: Literal["left", "right"] = "right" if at else "left"
        table.add_column(head, justify=justify, vertical="bottom", no_wrap=fits or not at)
    for row in rows:
        table.add_row(*row)
    return table


def column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The letters that each column of a table needs: those of its longest cell and of the longest word
    of its head."""
    cells = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return [
        max(map(len, [" ", *name.split(), *column]))
        for name, column in zip(columns, cells, strict=True)
    ]


def _letters_of(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * len(widths)

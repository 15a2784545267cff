"""The tables of a federation's state, for the terminal and for the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from coterie.flower.server.scores import COLUMN
from coterie.flower.watch.status import FederationStatus, work_name
from coterie.terminal import amount, console, counted, duration, printable, say

SHOWN_ROUNDS = 20
SHOWN_EXCHANGES = 10
SHOWN_LINES = 20


@dataclass(frozen=True, slots=True)
class StatusTable:
    """A table with a title."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def status_tables(status: FederationStatus) -> list[StatusTable]:
    """What there is to show, from top to bottom; what has no rows is left out."""
    tables = (_clients(status), _rounds(status), _exchanges(status), _refused(status))
    return [table for table in (*tables, _lines(status)) if table.rows]


_ANSWERS = ("last answer", "answer to", "answers", "no usable answer")


def _clients(status: FederationStatus) -> StatusTable:
    live = status.live
    connected = set(live.get("connected") or [])
    known: Mapping[str, Any] = live.get("clients") or {}
    groups = dict(zip(status.names, status.groups, strict=False))
    # Whoever is connected has a number, but its name may come later than the rest of the file.
    names = list(dict.fromkeys([*status.names, *known, *sorted(connected)]))
    if not status.shows_clients:
        names = []
    scores = _last_scores(status)
    rows = []
    for name in names:
        group = "-"
        if groups.get(name, -1) >= 0:
            group = str(groups[name])
        state = _client_state(status, name, connected)
        client = known.get(name) or {}
        exchanges = [
            _ago(client.get("last"), status.state.now),
            work_name(str(client.get("kind", ""))),
            str(client.get("answers", 0)),
            counts_in_words(client.get("failed") or {}),
        ]
        rows.append([name, state, scores.get(name, "-"), *exchanges, group])
    headline = status.state.headline
    note = (
        f"The {headline.title} is that of the client's last scored round, on its own test samples. "
        "Counts are those since the server's process of this run started."
    )
    headings = ("client", "state", headline.title, *_ANSWERS, "group")
    return StatusTable("Clients", note, headings, rows)


def _last_scores(status: FederationStatus) -> dict[str, str]:
    """The headline of each client in the last round that scored it."""
    last: dict[str, float] = {}
    for row in status.state.scored:
        scores = row.get(COLUMN) or {}
        last |= {str(name): value for name, (value, _) in scores.items() if value is not None}
    return {name: status.state.headline.text(float(value)) for name, value in last.items()}


def _client_state(status: FederationStatus, name: str, connected: Container[str]) -> str:
    if not status.running:
        return "-"
    if name in status.awaited:
        return "awaited"
    if name in connected:
        return "connected"
    if name in status.removed:
        return "removed"
    return "away"


def _ago(at: Any, now: float) -> str:
    if at is None:
        return "-"
    return f"{duration(max(0.0, now - float(at)))} ago"


def _rounds(status: FederationStatus) -> StatusTable:
    state = status.state
    keys = state.headline.keys
    text: Callable[[Any], str] = state.headline.text
    same = status.same

    def shown(row: Mapping[str, Any]) -> list[str]:
        by_group = row.get(keys.groups) or []
        return [
            str(int(row["round"]) + 1),
            text(row.get(keys.value)),
            text(same.values.get(int(row["round"]))),
            ", ".join(text(value) for value in by_group) or "-",
            ", ".join(map(str, row["sizes"])) or "-",
            str(row["notes"].get("replies", "-")),
            counts_in_words(row["refused"]),
            amount(int(row["transfers"]["down_bytes"])),
            amount(int(row["transfers"]["up_bytes"])),
            duration(float(row["seconds"]["total"])),
        ]

    rows = [shown(row) for row in reversed(state.rows[-SHOWN_ROUNDS:])]
    title = state.headline.title
    note = f"Newest first. {state.headline.capital} is over the clients that were scored in that round."
    # Runs that score a sample of their clients have no scores of single ones.
    if same.values:
        same_ones = counted(same.clients, "client")
        note += f" Next to it is the mean of the {same_ones} in all rounds, by their samples."
    headings = (
        *("round", title, "of the same clients", f"{title} by group", "clients by group"),
        *("replies", "no usable reply", "to clients", "by clients", "time"),
    )
    return StatusTable("Rounds", note, headings, rows)


def _exchanges(status: FederationStatus) -> StatusTable:
    rows = []
    exchanges = status.live.get("exchanges") or []
    for one in reversed(exchanges[-SHOWN_EXCHANGES:]):
        times = [float(seconds) for seconds in one["answered"].values()]
        asked = len(times) + len(one["awaited"]) + len(one["failed"])
        rows.append(
            [
                str(int(one["round"]) + 1),
                work_name(str(one["kind"])),
                str(asked),
                str(len(times)),
                duration(float(one["sending"])),
                _duration(min(times, default=None), "-"),
                _duration(max(times, default=None), "-"),
                duration(float(one["reading"])),
                _duration(one["seconds"], "running"),
            ]
        )
    note = (
        "An exchange is a request to some clients and their replies. The times of the first and "
        "the last reply are counted from its start."
    )
    headings = (
        *("round", "work", "asked", "answered", "sending", "first answer", "last answer"),
        *("reading", "in all"),
    )
    return StatusTable("Exchanges", note, headings, rows)


def _duration(seconds: float | None, unknown: str) -> str:
    if seconds is None:
        return unknown
    return duration(float(seconds))


def _refused(status: FederationStatus) -> StatusTable:
    refused = status.state.counted("refused")
    rows = [
        [reason, reason_in_words(reason), str(count)] for reason, count in sorted(refused.items())
    ]
    note = "Replies that were rejected or did not arrive, in all rounds."
    return StatusTable("Rejected, by reason", note, ("reason", "meaning", "count"), rows)


def _lines(status: FederationStatus) -> StatusTable:
    lines = status.live.get("lines") or []
    rows = [
        [time.strftime("%m-%d %H:%M:%S", time.localtime(float(one["time"]))), str(one["line"])]
        for one in reversed(lines[-SHOWN_LINES:])
    ]
    return StatusTable("Events", "Newest first.", ("time", "what"), rows)


def print_status(status: FederationStatus) -> None:
    """Print the state of a federation to the terminal."""
    out = console()
    say(printable(status.state.title))
    say(printable(status.sentence))
    for name, value in status.facts:
        say(printable(f"{name}: {value}"))
    for table in status_tables(status):
        say("")
        say(printable(f"{table.title}. {table.note}"))
        lines = Table(box=None, padding=(0, 2, 0, 0))
        for heading in table.columns:
            lines.add_column(Text(printable(heading)))
        for row in table.rows:
            lines.add_row(*(Text(printable(cell)) for cell in row))
        out.print(lines)


# --- reasons --------------------------------------------------------------------------------------


# By the word of a row's ``refused`` (docs/deploy.md says more of each).
REASONS = {
    "no answer": "no answer in time",
    "late": "answered too late",
    "unavailable": "went offline",
    "not there": "was offline",
    "not sent": "the request could not be sent",
    "failed": "an error on the node",
    "crashed": "the node's process ended",
    "unverified": "the node could not verify the app",
    "malformed": "the reply could not be decoded",
    "columns": "impossible report on columns",
    "mismatch": "the node does not match the run",
    "name": "the node uses another name",
    "config": "the node reported a problem with its configuration",
    "data": "the node reported a problem with its data",
    "missing": "the node lacked what it needed",
    "work": "the node could not do the work",
}


def reason_in_words(reason: str) -> str:
    """A reason as people read it."""
    return REASONS.get(reason, reason)


def counts_in_words(counts: Mapping[str, int]) -> str:
    """How often, by reason, ``-`` for none.

    Example:
        >>> counts_in_words({"unavailable": 1, "no answer": 2})
        'no answer in time (2 times), went offline (1 time)'
    """
    said = [
        f"{reason_in_words(reason)} ({counted(count, 'time')})"
        for reason, count in sorted(counts.items())
    ]
    return ", ".join(said) or "-"

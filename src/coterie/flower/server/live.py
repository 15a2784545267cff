"""What a run on real clients says of itself: events in the log, and what it does at the moment.

Flower shows a run's log to whoever started the run, and nothing else of it, so events are marked
lines of the log. The file of what the run does says who is asked, who is awaited and until when, and
how long each exchange took. It is for people: no result depends on it, and a run goes on where it
cannot be written.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coterie.files import plain
from coterie.flower.processes.process import identify

MARK = "@coterie "
# Called with a kind (start, round, say, waiting, error or done) and its value.
WriteEvent = Callable[[str, Any], None]


def event_writer() -> WriteEvent:
    """A function that prints events, numbered from 0: a log that is read twice shows each once."""
    numbers = itertools.count()

    def write(kind: str, value: Any) -> None:
        print(MARK + json.dumps({"number": next(numbers), kind: plain(value)}), flush=True)

    return write


# --- what the run does at the moment --------------------------------------------------------------

LIVE = "live.json"
KEPT_EXCHANGES = 50
KEPT_LINES = 50


@dataclass(slots=True)
class Exchange:
    """A request to some clients, and their replies. Times are in seconds since 1970."""

    round: int
    kind: str  # `train`, `evaluate` or `query.statistic`
    began: float
    until: float  # when it is closed, however few replies came
    sending: float = 0.0  # seconds until all requests were handed to the SuperLink
    awaited: list[str] = field(default_factory=list)
    answered: dict[str, float] = field(default_factory=dict)  # name -> seconds after the beginning
    failed: dict[str, str] = field(default_factory=dict)  # name -> why there is no reply
    reading: float = 0.0  # seconds of fetching and reading replies
    seconds: float | None = None  # of all of it; `None` while it goes on

    def read(self, seconds: float) -> None:
        """Replies were fetched and read in so many seconds."""
        self.reading += seconds

    def close(self, name: str, failure: str | None, now: float) -> None:
        """A client has replied, or is not waited for any longer."""
        self.awaited.remove(name)
        if failure is None:
            self.answered[name] = now - self.began
        else:
            self.failed[name] = failure
        if not self.awaited:
            self.seconds = now - self.began


class LiveState:
    """What a run does at the moment. It observes the exchanges of an engine, see
    `coterie.engines.flower.exchange.ExchangeObserver`."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / LIVE
        process = identify(os.getpid())
        self.state: dict[str, Any] = {
            "process": None if process is None else list(process),
            "since": time.time(),
            "doing": "starting",
            "waiting": None,
            "connected": [],
            "clients": {},
            "lines": [],
        }
        self.exchanges: list[Exchange] = []
        self._open: dict[str, tuple[Exchange, str]] = {}  # message -> exchange, client
        self.write()

    def write(self) -> None:
        """Write the file, the old one or the new one, whole."""
        now = time.time()
        exchanges = [asdict(one) for one in self.exchanges]
        text = json.dumps({"time": now, **self.state, "exchanges": exchanges})
        hidden = self.file.with_name(f".{LIVE}.tmp")
        with suppress(OSError):
            hidden.write_text(text, encoding="utf-8")
            hidden.replace(self.file)

    # --- between rounds ---------------------------------------------------------------------------

    def wait(
        self, round: int, least: int, awaited: str, until: float, connected: Sequence[str]
    ) -> None:
        """The run waits for clients."""
        self.state["doing"] = "waiting"
        self.state["waiting"] = {
            "round": round,
            "least": least,
            "awaited": awaited,
            "until": until,
        }
        self.state["connected"] = list(connected)
        self.write()

    def work(self, connected: Sequence[str]) -> None:
        """Enough clients are there, and a round begins."""
        self.state["doing"] = "working"
        self.state["waiting"] = None
        self.state["connected"] = list(connected)
        self.write()

    def noting(self, write_event: WriteEvent) -> WriteEvent:
        """The same events; what they say is noted here, too."""

        def write(kind: str, value: Any) -> None:
            write_event(kind, value)
            if kind == "say":
                self._note(str(value))
            elif kind == "error":
                self.state["doing"] = "failed"
                self._note(str(value["message"]))
            elif kind == "done":
                self.state["doing"] = "done"
                self.write()

        return write

    def _note(self, line: str) -> None:
        lines = [*self.state["lines"], {"time": time.time(), "line": line[:500]}]
        self.state["lines"] = lines[-KEPT_LINES:]
        self.write()

    # --- in an exchange ---------------------------------------------------------------------------

    def sent(
        self, kind: str, round: int, ttl: float, sending: float, clients: Mapping[str, str]
    ) -> None:
        """Requests were sent, in so many seconds; ``clients`` are names by message."""
        if not clients:
            return
        now = time.time()
        names = sorted(clients.values())
        exchange = Exchange(round, kind, now - sending, now + ttl, sending, names)
        self.exchanges = [*self.exchanges, exchange][-KEPT_EXCHANGES:]
        self._open |= {message: (exchange, name) for message, name in clients.items()}
        self.state["doing"] = "asking"
        self.write()

    def arrived(self, failures: Mapping[str, str | None], reading: float) -> None:
        """Replies came; ``failures`` are by message, ``None`` where it is a reply."""
        known = {message: self._open[message] for message in failures if message in self._open}
        for message, (exchange, name) in known.items():
            self._close(message, exchange, name, failures[message])
        if known:
            next(iter(known.values()))[0].read(reading)
            self.write()

    def dropped(self, messages: Collection[str], why: str) -> None:
        """Replies are waited for no longer: ``no answer``, or ``late`` where others were enough."""
        known = {message: self._open[message] for message in messages if message in self._open}
        for message, (exchange, name) in known.items():
            self._close(message, exchange, name, why)
        if known:
            self.write()

    def _close(self, message: str, exchange: Exchange, name: str, failure: str | None) -> None:
        now = time.time()
        del self._open[message]
        exchange.close(name, failure, now)
        client = self.state["clients"].setdefault(
            name, {"last": None, "kind": "", "answers": 0, "failed": {}}
        )
        if failure is None:
            client |= {"last": now, "kind": exchange.kind, "answers": client["answers"] + 1}
        else:
            client["failed"][failure] = client["failed"].get(failure, 0) + 1
        if not exchange.awaited:
            self.state["doing"] = "working"

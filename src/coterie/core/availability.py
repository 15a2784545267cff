"""Which clients of a simulation can be reached in which rounds."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.config.arguments import CheckedRecord
from coterie.config.schema import PYTHON_ONLY
from coterie.core.arrays import BoolArray
from coterie.core.keys import Key
from coterie.errors import DataError
from coterie.files import encoding_of

Pattern = Literal["day_night", "random", "file"]
Reachable = Annotated[float, Field(gt=0, le=1)]
Spans = Mapping[str, tuple[tuple[int, int], ...]]
COLUMNS = ("client", "from", "until")


@dataclass(frozen=True, slots=True)
class Availability(CheckedRecord):
    """Which clients can be reached in which rounds.

    Args:
        kind: ``day_night``: each client can be reached in the first ``share`` of its own day of
            ``period`` rounds, which begins at a random round for each client; ``random``: in each
            round with the probability ``share``, independently of earlier rounds; ``file``: as
            `spans` say.
        period: number of rounds in a day. The spans of a file are repeated after this many rounds;
            ``0``: never.
        share: share of the rounds in which a client can be reached.
        zones: number of different rounds in which a day can begin; ``None``: any round.
        file: a CSV file of spans, with ``kind`` ``file``.
        spans: the spans of that file: client, by name or else by number -> rounds ``from`` to
            ``until``, without the last. Where names of clients are numbers, a number is a name.
            Clients that are not named can always be reached.
        names: the names of the clients.

    Raises:
        ConfigError: for a value out of its range.

    Example:
        >>> night_and_day = Availability("day_night", period=4, share=0.5, zones=2)
        >>> [night_and_day.reachable(t, 6, Key(1)).astype(int).tolist() for t in (0, 2, 4)]
        [[0, 0, 1, 0, 0, 1], [1, 1, 0, 1, 1, 0], [0, 0, 1, 0, 0, 1]]
    """

    kind: Pattern = "day_night"
    period: Annotated[int, Field(ge=0)] = 24
    share: Reachable = 0.5
    zones: Annotated[int, Field(ge=1)] | None = None
    file: str | None = None
    spans: Spans = field(default_factory=dict, metadata=PYTHON_ONLY)
    names: tuple[str, ...] = field(default=(), metadata=PYTHON_ONLY)

    def reachable(self, round: int, clients: int, key: Key) -> BoolArray:
        """Which of the clients can be reached in a round, bool ``[N]``."""
        stream = key.of("availability")
        if self.kind == "random":
            draws = stream.at(round).generator().random(clients)
            return draws < self.share
        if self.kind == "file":
            return self._by_spans(round, clients)
        # The round in which the day of each client begins.
        zones = self.period if self.zones is None else self.zones
        beginning = stream.generator().integers(zones, size=clients) * self.period // zones
        return (round - beginning) % self.period < self.share * self.period

    def _by_spans(self, round: int, clients: int) -> BoolArray:
        now = round
        if self.period:
            now = round % self.period
        found = np.ones(clients, bool)
        for client, key in enumerate(self._keys(clients)):
            if key is not None:
                found[client] = any(begin <= now < end for begin, end in self.spans[key])
        return found

    def _keys(self, clients: int) -> list[str | None]:
        """What the spans of each client are called; ``None`` for one that has none."""
        # Among names such as 01 and 02, a number such as 1 is a name that is misspelt.
        numbers_are_names = any(name.isdigit() for name in self.names)
        keys: list[str | None] = []
        for client in range(clients):
            number = str(client)
            key = None
            if client < len(self.names) and self.names[client] in self.spans:
                key = self.names[client]
            elif not numbers_are_names and number in self.spans:
                key = number
            keys.append(key)
        return keys

    def unknown_clients(self, clients: int) -> list[str]:
        """The clients of spans that are neither a name nor a number of the federation's clients."""
        known = set(self._keys(clients))
        return [key for key in self.spans if key not in known]


def read_spans(file: Path) -> Spans:
    """The rounds in which clients can be reached, from a CSV file with the columns ``client``,
    ``from`` and ``until``, one line a span.

    Raises:
        DataError: naming the line that is wrong.
    """
    return parse_spans(read_spans_text(file), file)


def read_spans_text(file: Path) -> str:
    """The text of a file of spans."""
    try:
        return file.read_text(encoding=encoding_of(file))
    except (OSError, UnicodeError) as error:
        expected = f"a CSV file with the columns {', '.join(COLUMNS)}"
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise DataError(
            "cannot-be-read", file, f"cannot be read ({reason})", allowed=expected
        ) from None


def parse_spans(text: str, file: Path) -> Spans:
    """As `read_spans`, from the text of a file that error lines name."""
    rows = csv.DictReader(io.StringIO(text))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        got = ", ".join(rows.fieldnames or ()) or "nothing"
        raise DataError("differs", file, "wrong columns", found=got, allowed=", ".join(COLUMNS))
    spans: dict[str, tuple[tuple[int, int], ...]] = {}
    for number, row in enumerate(rows, 2):
        span = _span(file, number, row)
        spans[row["client"]] = (*spans.get(row["client"], ()), span)
    return spans


def _span(file: Path, number: int, row: Mapping[str, str]) -> tuple[int, int]:
    try:
        begin = int(row["from"])
        end = int(row["until"])
    except (ValueError, TypeError):
        got = f"{row['from']} and {row['until']}"
        what = f"line {number}: not numbers of rounds"
        raise DataError("wrong-type", file, what, found=got, allowed="two whole numbers") from None
    if not 0 <= begin < end:
        what = f"line {number}: not a span"
        got = f"{begin} to {end}"
        raise DataError("wrong-type", file, what, found=got, allowed="0 <= from < until")
    return begin, end

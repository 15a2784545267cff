"""The file ``rounds.jsonl`` of a run folder: rows are appended, read, and cut where a run goes back.

Each line ends with the SHA-256 of all rows so far, ``chain``, which begins with the configuration.
So no line can be changed, left out, or taken from another run.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.config.identity import relevant
from coterie.errors import CheckpointError
from coterie.files import (
    MALFORMED,
    canonical_json,
    read_json,
    refuse_malformed,
    replace_file,
    sync_file,
)
from coterie.runs.folder.digests import ROWS, consistent, read_digests, record_rows, sha256
from coterie.terminal import warn

LINK = re.compile(rb',"chain":"([0-9a-f]{64})"\}\n?\Z')

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """The rows of rounds 0, 1, ... without a gap, and what is wrong with the lines after them, if
    anything."""

    rows: Sequence[Row]
    links: Sequence[str]
    problem: str = ""


def chained(row: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """A line, and the digest of the rows up to it."""
    text = json.dumps(row, separators=(",", ":"), allow_nan=False).encode()
    digest = sha256(before.encode() + text)
    return text[:-1] + f',"chain":"{digest}"}}\n'.encode(), digest


def parse_rows(data: bytes, start: str) -> ParsedRows:
    """The rows of a file whose chain has this start, as far as nothing is wrong with them."""
    found: list[Row] = []
    links = [start]
    problem = ""
    # After the last newline stands nothing, or a line that a kill tore.
    lines = data.split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        row = _row(line)
        link = LINK.search(line)
        if row is None:
            # A power cut may also tear the last line with its newline.
            if number < len(lines):
                what = f"damaged, got {line[:40]!r}"
                problem = f"line {number}: {what}; expected one JSON object per line, as written"
        # It can be read, so no kill tore it: it was changed, or is of another run or format.
        elif link is None or link[1].decode() != sha256(links[-1].encode() + LINK.sub(b"}", line)):
            what = f"damaged or of another run, got {line[:40]!r}"
            problem = f"line {number}: {what}; expected one JSON object per line, as written"
        elif row["round"] != number - 1:
            got = f"not in order, got round {row['round']}"
            problem = f"line {number}: {got}; expected {number - 1}"
        else:
            found.append(row)
            links.append(link[1].decode())
            continue
        break
    return ParsedRows(found, links[1:], problem)


def _row(line: bytes) -> Row | None:
    """The values of a line, ``None`` where it cannot be read."""
    try:
        row = read_json(line, parse_float=_number)
        row.pop("chain", None)
        return {**row, "round": int(row["round"])}
    except MALFORMED:
        return None


def _number(text: str) -> float:
    """A number of JSON; ``1e400`` is none that a run writes."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"not a finite number, got {text}")
    return value


@dataclass(frozen=True, slots=True)
class RowFile:
    """The rows of a run."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / ROWS

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row of plain values."""
        # The digest before stands in the file and not in memory: so a folder has one state.
        line, _ = chained(row, self._end()[1])
        size = 0
        if self.path.exists():
            size = self.path.stat().st_size
        try:
            # Not synced, which would cost more than a short round: a checkpoint syncs the rows
            # before it, and later ones are computed again.
            with self.path.open("ab") as file:
                file.write(line)
        except OSError:
            # Of a line for which the disk has no room a part may stand there.
            with suppress(OSError):
                os.truncate(self.path, size)
            raise

    def sync(self) -> tuple[int, str]:
        """Wait until the rows are on the disk; how many there are, and their digest."""
        sync_file(self.path)
        return self._end()

    def _end(self) -> tuple[int, str]:
        """How many rows there are by the last line, and their digest."""
        if not self.path.exists() or not self.path.stat().st_size:
            return 0, self._start()
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            line = data[data.rfind(b"\n", 0, len(data) - 1) + 1 :]
        match = LINK.search(line)
        if match is None:
            got = f"a last line without its digest, {line[-40:]!r}"
            raise CheckpointError("damaged", self.path, found=got, allowed="whole lines")
        with refuse_malformed(self.path):
            return int(read_json(line)["round"]) + 1, match[1].decode()

    def read(self) -> list[Row]:
        """The rows; a last line that a kill tore is left out."""
        return list(consistent(self.folder, self._checked).rows)

    def _checked(self) -> ParsedRows:
        digests = read_digests(self.folder)
        found = self._parse()
        if found.problem:
            raise CheckpointError("damaged", self.path, found.problem)
        count = len(found.rows)
        if count < digests.rows:
            what = "rows are missing"
            expected = f"{digests.rows} or more"
            raise CheckpointError("damaged", self.path, what, found=count, allowed=expected)
        if digests.rows and found.links[digests.rows - 1] != digests.chain:
            what = "belongs to another run"
            got = f"different rows up to round {digests.rows - 1}"
            expected = "the rows of this run"
            raise CheckpointError("differs", self.path, what, found=got, allowed=expected)
        return found

    def rewind(self, round: int) -> list[Row]:
        """Forget the rows from a round on; returns those before it."""
        found = self._parse()
        # A run with a gap in its rows would show a curve and totals that never were.
        if len(found.rows) < round:
            got = found.problem or f"rows are missing, got {len(found.rows)}"
            raise CheckpointError("damaged", self.path, got, allowed=f"{round}, one for each round")
        data = self._data()
        if found.problem:
            was = data.count(b"\n")
            warn(f"{self.path}: {found.problem}; {was - round} of {was} lines were removed")
        # The record first: it says how many rows there are at least, also after a kill.
        record_rows(self.folder, round, [self._start(), *found.links][round])
        # Rewritten and not cut: so `coterie watch` sees by the file's number that rows went
        # away.
        replace_file(self.path, b"".join(data.splitlines(keepends=True)[:round]))
        return list(found.rows[:round])

    def _start(self) -> str:
        """Where the chain begins: rows of another configuration do not fit."""
        config = relevant(read_digests(self.folder).config)
        # A run may continue to another number of rounds, and its first ones stay.
        config.pop("train.rounds", None)
        return sha256(canonical_json(config))

    def _parse(self) -> ParsedRows:
        return parse_rows(self._data(), self._start())

    def _data(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

"""The file ``rounds.jsonl`` of a run folder: rows are appended, read, and cut where a run goes
back."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from coterie.config.identity import config_hash
from coterie.errors import CheckpointError
from coterie.runs.folder import digests as record
from coterie.runs.folder.digests import ROWS, Digests
from coterie.runs.folder.files import MALFORMED, replace_file, sync_file
from coterie.terminal import warn

LINK = re.compile(rb',"chain":"([0-9a-f]{64})"\}\Z')
TAIL = 16_384  # bytes in which the last line usually fits

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The lines of a file of rows.

    Args:
        rows: of rounds 0, 1, ... as far as they go on without a gap.
        links: the digest of the chain after each row.
        problem: what is wrong with the lines after them, none where nothing is.
    """

    rows: Sequence[Row]
    links: Sequence[str]
    problem: str = ""


# --- writing --------------------------------------------------------------------------------------


def chained(row: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """A line, and the digest of the chain after it."""
    text = json.dumps(row, separators=(",", ":"), allow_nan=False).encode()
    digest = _digest(text, before)
    return text[:-1] + f',"chain":"{digest}"}}\n'.encode(), digest


def chained_lines(rows: Sequence[Row], start: str) -> tuple[bytes, str]:
    """The file of some rows, and the digest of the chain after them."""
    digest = start
    lines = []
    for row in rows:
        line, digest = chained(row, digest)
        lines.append(line)
    return b"".join(lines), digest


def _digest(text: bytes, before: str) -> str:
    return hashlib.sha256(before.encode() + text).hexdigest()


def append_row(path: Path, row: Mapping[str, Any], start: Callable[[], str]) -> None:
    """Add a line to a file of rows.

    Args:
        start: gives the beginning of the chain, for the first line.
    """
    # The digest before stands in the file and not in memory: so a folder has one state.
    before = last_row(path)[1] or start()
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(chained(row, before)[0])
    except OSError:
        # Of a line for which the disk has no room a part may stand there.
        with suppress(OSError):
            os.truncate(path, size)
        raise


def last_row(path: Path) -> tuple[int, str]:
    """How many rows a file has by its last line, and the digest of the chain there."""
    try:
        with path.open("rb") as file:
            line = _last_line(file)
    except FileNotFoundError:
        return 0, ""
    if not line:
        return 0, ""
    match = LINK.search(line)
    if match is None:
        what = f"damaged, got a last line without its digest, {line[-40:]!r}"
        raise CheckpointError(f"{path}: {what}; expected whole lines")
    return int(json.loads(line)["round"]) + 1, match[1].decode()


def _last_line(file: BinaryIO) -> bytes:
    """The last line, without its newline; what stands after the last newline where that is torn."""
    size = file.seek(0, os.SEEK_END)
    length = TAIL
    while True:
        start = max(0, size - length)
        file.seek(start)
        lines = file.read().removesuffix(b"\n").split(b"\n")
        if start == 0 or len(lines) > 1:
            return lines[-1]
        length *= 8


# --- reading --------------------------------------------------------------------------------------


def parse_rows(data: bytes, start: str | None) -> Rows:
    """The rows of a file.

    Args:
        start: the beginning of the chain; ``None`` in a folder that lost its record, of which the
            rows are taken as they are.
    """
    found: list[Row] = []
    links: list[str] = []
    problem = ""
    before = start or ""
    # After the last newline stands nothing, or a line that a kill tore.
    lines = data.split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        row, link, wrong = _read_line(line, before, chained=start is not None)
        if row is None:
            # A power cut may also tear the last line with its newline.
            if wrong or number < len(lines):
                what = wrong or f"damaged, got {line[:40]!r}"
                problem = f"line {number}: {what}; expected one JSON object a line, as written"
            break
        found.append(row)
        links.append(link)
        before = link
    return _in_order(found, links, problem)


def _read_line(line: bytes, before: str, *, chained: bool) -> tuple[Row | None, str, str]:
    """The row of a line, the chain after it, and what is wrong where it is no torn line."""
    text = line
    link = ""
    match = LINK.search(line)
    if match is not None:
        text = line[: match.start()] + b"}"
        link = match[1].decode()
    try:
        row = json.loads(text, parse_float=_number)
        row = {**row, "round": int(row["round"])}
    except (*MALFORMED, RecursionError):
        return None, "", ""
    # It can be read, so no kill tore it: it was changed, or is of another run or format.
    if match is None or (chained and link != _digest(text, before)):
        return None, "", f"damaged or of another run, got {line[:40]!r}"
    return row, link, ""


def _number(text: str) -> float:
    """A number of JSON; ``1e400`` is none that a run writes."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"no finite number, got {text}")
    return value


def _in_order(found: Sequence[Row], links: Sequence[str], problem: str) -> Rows:
    """Rows as far as they are those of rounds 0, 1, ..."""
    end = 0
    while end < len(found) and found[end]["round"] == end:
        end += 1
    if end == len(found):
        return Rows(found, links, problem)
    problem = f"line {end + 1}: not in order, got round {found[end]['round']}; expected {end}"
    return Rows(found[:end], links[:end], problem)


@dataclass(frozen=True, slots=True)
class RowFile:
    """The rows of a run."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / ROWS

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row of plain values."""
        # Not synced, which would cost more than a short round: a checkpoint syncs the rows before
        # it, and later ones are computed again.
        append_row(self.path, row, self._start)

    def sync(self) -> None:
        """Wait until the rows are on the disk."""
        sync_file(self.path)

    def end(self) -> tuple[int, str]:
        """How many rows there are, and the digest of the chain after them."""
        return last_row(self.path)

    def read(self) -> list[Row]:
        """The rows; a last line that a kill tore is left out."""
        return list(record.consistent(self.folder, self._checked).rows)

    def parse(self) -> Rows:
        """The lines of the file as they are, none where there is no file."""
        return self._parse(record.read_digests(self.folder))

    def rewind(self, round: int) -> list[Row]:
        """Forget the rows from a round on; returns those before it."""
        found = self.parse()
        rows = self._rows_before(found, round)
        lines, chain = chained_lines(rows, self._start())
        if found.problem:
            was = self.path.read_bytes().count(b"\n")
            warn(f"{self.path}: {found.problem}; {was - round} of {was} lines were cut")
        # The record first: it says how many rows there are at least, also after a kill. But a
        # folder that lost its record gets a new one only once its rows fit.
        recorded = record.read_digests(self.folder) is not None
        if recorded:
            record.record_progress(self.folder, (round, chain), round)
        # Written anew and not cut: so `coterie watch` sees by the file's number that rows went
        # away.
        replace_file(self.path, lines)
        if not recorded:
            record.record_progress(self.folder, (round, chain), round)
        return rows

    def _rows_before(self, found: Rows, round: int) -> list[Row]:
        rows = list(found.rows[:round])
        # A run with a gap in its rows would show a curve and totals that never were.
        if len(rows) < round:
            got = found.problem or f"rows are missing, got {len(found.rows)}"
            raise CheckpointError(f"{self.path}: {got}; expected {round}, as many as rounds")
        return rows

    def _start(self) -> str:
        """Where the chain begins: rows of another configuration do not fit."""
        return config_hash(record.settings(self.folder))

    def _parse(self, digests: Digests | None) -> Rows:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Rows((), ())
        start = None
        if digests is not None:
            start = config_hash(digests.config)
        return parse_rows(data, start)

    def _checked(self) -> Rows:
        digests = record.read_digests(self.folder)
        found = self._parse(digests)
        if found.problem:
            raise CheckpointError(f"{self.path}: {found.problem}")
        if digests is None or not digests.rows:
            return found
        count = len(found.rows)
        if count < digests.rows:
            what = f"rows are missing, got {count}"
            raise CheckpointError(f"{self.path}: {what}; expected {digests.rows} or more")
        if found.links[digests.rows - 1] != digests.chain:
            what = f"of another run, got other rows up to round {digests.rows - 1}"
            raise CheckpointError(f"{self.path}: {what}; expected those of this one")
        return found

"""The file ``rounds.jsonl`` of a run folder: rows are appended, read, and cut where a run goes
back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.config.identity import config_hash
from coterie.errors import CheckpointError
from coterie.runs import digests as record
from coterie.runs.digests import ROWS, Digests
from coterie.runs.files import replace_file, sync_file
from coterie.runs.rows import Row, Rows, append_row, chained_lines, last_row, parse_rows
from coterie.terminal import warn


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

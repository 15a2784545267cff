"""A run that is followed from its folder, while another process writes it."""

from __future__ import annotations

import os
import time
from typing import Any

from coterie.runs.folder.files import MALFORMED, damaged
from coterie.runs.folder.store import RunFolder


class Follower:
    """The rows of a run, read again when their file has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        # Read once: a run refuses to be resumed with another configuration.
        self.config = folder.resolved
        self.headline = folder.headline
        try:
            self.rounds = int(self.config["train"]["rounds"])
        except MALFORMED as error:
            raise damaged(folder.path / "config.toml", error) from None
        self.file = folder.path / "rounds.jsonl"
        self.rows: list[dict[str, Any]] = []
        self._last_read: tuple[int, ...] = ()

    def read(self) -> bool:
        """Read what is new; returns whether anything is."""
        try:
            now = os.stat(self.file)
        except FileNotFoundError:
            return False
        # A run that is resumed writes the file anew, and it can become shorter: so neither its
        # size nor its time alone tells whether it has changed.
        version = (now.st_size, now.st_mtime_ns, now.st_ino)
        # A run of thousands of rounds has a large file, and `watch` looks twice a second.
        if version == self._last_read:
            return False
        self.rows = self.folder.rows()
        self._last_read = version
        return True

    @property
    def done(self) -> bool:
        """Whether the run has written its last round, and the summary after it."""
        # Between the last row and the summary the models are written.
        return len(self.rows) >= self.rounds and self.folder.results.summary() is not None

    @property
    def silence(self) -> float:
        """Seconds since the last row was written, or since the run began."""
        file = self.file
        if not file.exists():
            file = self.folder.path / "config.toml"
        # Wall clock, because the times of files are; the run is another process.
        return time.time() - file.stat().st_mtime

"""What is said where a run waits for workers that may never answer: a client's own code may hang, which
no system can tell from a long training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.core import IntArray, Key, Reply
from coterie.terminal import counted, duration, warn

SILENT = 600.0  # seconds without an answer until a line says so
_LIMIT = "set `round_timeout` in [engine] to limit the wait"


@dataclass(slots=True)
class Silence:
    """A wait for workers; times are of the monotonic clock, in seconds."""

    since: float = field(default_factory=time.monotonic)
    said: bool = False

    def end(self) -> None:
        """A worker has answered."""
        self.since = time.monotonic()
        self.said = False

    def look(self) -> None:
        """Say once that no worker answers, if it is time."""
        if self.said or time.monotonic() - self.since < SILENT:
            return
        self.said = True
        warn(f"no worker has answered for {duration(SILENT)}; {_LIMIT}")


def say_who_was_late(
    ids: IntArray, replies: Sequence[Reply], key: Key, limit: float | None
) -> None:
    """Say how many clients were left out because the time was over."""
    late = len(ids) - sum(len(reply.ids) for reply in replies)
    if limit is not None and late:
        verb = "was" if late == 1 else "were"
        who = f"{late} of {counted(len(ids), 'client')} {verb}"
        over = f"`round_timeout` of {duration(limit)} had passed"
        warn(f"round {key.round + 1}: {who} left out because the {over}")

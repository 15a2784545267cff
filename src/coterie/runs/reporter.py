"""The progress of a run in a terminal: a live bar, or about twenty lines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from coterie.headline import ACCURACY, Headline, other_scores
from coterie.terminal import console, duration, say, sizes

LINES = 20  # of progress, where there is no terminal


class Reporter:
    """Shows the progress of a run: a live bar in a terminal, about twenty lines elsewhere.

    Args:
        start: how many are done already.
    """

    def __init__(
        self,
        rounds: int,
        start: int = 0,
        file: TextIO | None = None,
        headline: Headline = ACCURACY,
    ) -> None:
        self.rounds = rounds
        self.start = start
        self.headline = headline
        self.console = console(file)
        self.value: float | None = None
        self.error: float | None = None
        self.first_ended: float | None = None  # when the first round ended
        self.bar: Progress | None = None
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[text]}", markup=False),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=rounds, completed=start, text="")

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
        # Not every round is evaluated: the last value stays until there is another.
        keys = self.headline.keys
        if row.get(keys.value) is not None:
            self.value = row[keys.value]
            self.error = row.get(keys.error)
        done = row["round"] + 1
        note = (row.get("notes") or {}).get("grouping")
        if note:
            self.console.print(f"round {done}/{self.rounds}: {note}")
        text = self._text(row)
        seconds = self._seconds_left(done)
        if seconds is not None:
            text += f", {duration(seconds)} left"
        if self.bar:
            self.bar.update(self.task, completed=done, text=text)
        elif self._has_line(done):
            say(f"round {done}/{self.rounds}: {text}", self.console.file)

    def _text(self, row: Mapping[str, Any]) -> str:
        value = f"{self.headline.title} {self.headline.text(self.value)}"
        if self.error is not None:
            value += f" ± {self.headline.text(self.error)}"  # of a sample of the clients
        # They are of some rounds only, and so are said in those.
        others = other_scores(row, self.headline)
        if others:
            value += f" ({others})"
        counts = row.get("sizes", [])
        if len(counts) == 1:
            return f"{value}, one model"
        text = f"{value}, groups {sizes(counts)}"
        if row.get("agreement") and counts:
            text += f", agreement {row['agreement']['ari']:.2f}"
        return text

    def _has_line(self, done: int) -> bool:
        """Whether a round has a line of the about twenty: the first has, and the last."""
        if done == self.start + 1:
            return True
        # A line whenever another twentieth of the rounds is done, so a log is short
        # whatever a run is long.
        return done * LINES // self.rounds > (done - 1) * LINES // self.rounds

    def _seconds_left(self, done: int) -> float | None:
        """Seconds that are left, by the rounds since the first one; ``None`` before they can be
        known.

        The first round does not count: it has the cold start, and the workers start in it.
        """
        now = time.monotonic()
        if self.first_ended is None:
            self.first_ended = now
        if done == self.rounds:
            return 0.0
        count = done - self.start - 1
        if count < 1:
            return None
        return (now - self.first_ended) / count * (self.rounds - done)

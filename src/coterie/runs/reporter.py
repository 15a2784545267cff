"""The progress of a run in a terminal: a live bar, or about twenty lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from coterie.headline import ACCURACY, Headline, other_scores
from coterie.runs.state import RECENT, seconds_left
from coterie.terminal import console, duration, say, sizes

LINES = 20  # of progress, where there is no terminal
BEGUN = "under way"  # the first round, which may take long


class Reporter:
    """Shows the progress of a run: a live bar in a terminal, about twenty lines elsewhere."""

    def __init__(
        self, rounds: int, start: int = 0, file: TextIO | None = None, headline: Headline = ACCURACY
    ) -> None:
        self.rounds = rounds
        self.start = start
        self.headline = headline
        self.console = console(file)
        # Not every round is evaluated: the last value stays until there is another.
        self.scored: Mapping[str, Any] = {}
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self.bar: Progress | None = None
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(bar_width=None),
                TimeElapsedColumn(),
                TextColumn("{task.fields[text]}", markup=False),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=rounds, completed=start, text=BEGUN)

    def __enter__(self) -> Reporter:
        if self.bar:
            self.bar.start()
        elif self.start < self.rounds:
            say(f"round {self.start + 1}/{self.rounds}: {BEGUN}", self.console.file)
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
        if row.get(self.headline.name) is not None:
            self.scored = row
        done = row["round"] + 1
        note = (row.get("notes") or {}).get("grouping")
        if note:
            self.console.print(f"round {done}/{self.rounds}: {note}")
        text = self._text(row) + self._time_left(row)
        if self.bar:
            self.bar.update(self.task, completed=done, text=text)
        elif self._has_line(done):
            say(f"round {done}/{self.rounds}: {text}", self.console.file)

    def _text(self, row: Mapping[str, Any]) -> str:
        keys = self.headline.keys
        value = f"{self.headline.title} {self.headline.text(self.scored.get(keys.value))}"
        error = self.scored.get(keys.error)
        if error is not None:
            value += f" ± {self.headline.text(error)}"  # of a sample of the clients
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

    def _time_left(self, row: Mapping[str, Any]) -> str:
        # The first round does not count: it has the cold start, and the workers start in it.
        if row["round"] > self.start:
            self.recent.append(row)
        left = seconds_left(list(self.recent), self.rounds - row["round"] - 1)
        if left is None:
            return ""
        return f", {duration(left)} left"

    def _has_line(self, done: int) -> bool:
        """Whether a round has a line of the about twenty: the first has, and the last."""
        if done == self.start + 1:
            return True
        # A line whenever another twentieth of the rounds is done, so a log is short
        # whatever a run is long.
        return done * LINES // self.rounds > (done - 1) * LINES // self.rounds

"""What is known of a run at a moment, read from its folder by any process while another writes it.

`coterie watch`, `coterie show`, and the page and the figures of a federation show this record.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie.files import refuse_malformed
from coterie.headline import Headline
from coterie.runs.folder.digests import CONFIG, DIGESTS, ROWS
from coterie.runs.folder.store import RunFolder

Rows = Sequence[Mapping[str, Any]]
RECENT = 20  # rounds, of which the time left is estimated
# A run that writes nothing for so long may have been stopped:
PATIENCE = 60.0  # seconds, and
PATIENCE_ROUNDS = 20  # usual rounds


@dataclass(frozen=True, slots=True)
class RunState:
    """A run as it is.

    Args:
        now: when it was read, in seconds since 1970.
        written: when the last row was written, or the run began.
        version: changes with the files that were read.
    """

    path: Path
    config: Mapping[str, Any]
    rounds: int
    headline: Headline
    rows: Rows
    summary: Mapping[str, Any] | None = None
    now: float = 0.0
    written: float = 0.0
    version: tuple[tuple[int, ...], ...] = ()

    @property
    def title(self) -> str:
        """What runs, in words."""
        return f"{self.config['algorithm']['name']} on {self.config['data']['source']}"

    @property
    def over(self) -> bool:
        """Whether no round is left."""
        return len(self.rows) >= self.rounds

    @property
    def done(self) -> bool:
        """Whether the run has written its results, too."""
        # Between the last row and the summary the models are written.
        return self.over and self.summary is not None

    @property
    def scored(self) -> Rows:
        """The rounds in which the models were scored."""
        return [row for row in self.rows if row.get(self.headline.name) is not None]

    @property
    def values(self) -> list[float]:
        """The headline in these."""
        return [row[self.headline.name] for row in self.scored]

    def counted(self, column: str) -> Counter[str]:
        """The sums of a column of counts by reason, over all rounds."""
        found: Counter[str] = Counter()
        for row in self.rows:
            # Only rounds in which there was something to count have some of the columns.
            found.update(row.get(column) or {})
        return found

    @property
    def start_up(self) -> float:
        """Seconds of start-up, which those of the rounds leave out."""
        seconds = (row.get("seconds") or {} for row in self.rows)
        return math.fsum(one.get("start_up", 0.0) for one in seconds)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the last rounds; ``None`` before it is known."""
        return seconds_left(self.rows[1:], self.rounds - len(self.rows))

    @property
    def silence(self) -> float:
        """Seconds without a new round, where they are too many for a run in progress; else 0. From
        outside, a killed run looks like a slow one."""
        silence = self.now - self.written
        # A round with a cold start or many clients may take long by itself.
        usual = seconds_left(self.rows[1:], 1) or 0.0
        if self.done or silence < max(PATIENCE, PATIENCE_ROUNDS * usual):
            return 0.0
        return silence


def seconds_left(rows: Rows, rounds: int) -> float | None:
    """How long so many rounds take, at the pace of the last ones; ``None`` where it is unknown.
    Leave the first round out of ``rows``: it has the cold start."""
    if not rounds:
        return 0.0
    seconds = [row["seconds"]["total"] for row in rows[-RECENT:] if row.get("seconds")]
    if not seconds:
        return None
    # The median, since rounds in which clients do not answer take as long as the timeout.
    return statistics.median(seconds) * rounds


def read_state(folder: RunFolder, before: RunState | None = None) -> RunState:
    """The state of a run. Of what was read ``before`` only the time changes where no file has."""
    # A run of thousands of rounds has a large file, and `watch` looks twice a second.
    version = (_version(folder.path / ROWS), _version(folder.path / DIGESTS))
    # Wall clock, because the times of files are; the run is another process.
    now = time.time()
    if before is not None and version == before.version:
        return replace(before, now=now)
    config = folder.resolved
    with refuse_malformed(folder.path / CONFIG):
        rounds = int(config["train"]["rounds"])
    written = folder.path / ROWS
    if not written.exists():
        written = folder.path / CONFIG
    return RunState(
        folder.path,
        config,
        rounds,
        folder.headline,
        folder.rows(),
        folder.results.summary(),
        now,
        written.stat().st_mtime,
        version,
    )


def _version(file: Path) -> tuple[int, ...]:
    """What changes with a file: neither its size nor its time alone does, since a run that is
    resumed writes it again."""
    try:
        now = os.stat(file)
    except FileNotFoundError:
        return ()
    return (now.st_size, now.st_mtime_ns, now.st_ino)


def summary_so_far(state: RunState) -> Mapping[str, Any]:
    """The summary of a run, also before it has written one."""
    if state.summary is not None:
        return state.summary
    # Imported here: who watches a run for hours does not hold torch in memory meanwhile.
    from coterie.data import load_partition
    from coterie.runs.summary import summarise

    # From the partition: `groups.csv` is written at the end only.
    clients = load_partition(RunFolder(state.path).partition).clients
    return summarise(state.config, state.rows, clients, state.headline)

"""How many replies make a round, and when a run that gets too few gives up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quorum:
    """How many replies make a round, and when a run that gets too few gives up.

    Args:
        min_replies: with fewer updates than this the round is skipped and the models stay as they
            were.
        max_skipped_rounds: after more than this many skipped rounds in a row the run stops.
        max_wait: after skipped rounds in a row that took more seconds than this in all, the run
            stops; ``None``: their time is no reason to stop.
    """

    min_replies: int = 1
    max_skipped_rounds: int = 10
    # Checked by `coterie.runs.run.Run` and not by the loop over rounds: the time is that in the
    # rows, so that what passed before a run was resumed counts, too.
    max_wait: float | None = None

"""When a round counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quorum:
    """When a round counts.

    Args:
        min_replies: with fewer updates than this the round is skipped and the models stay as they
            were.
        max_skipped_rounds: after more than this many skipped rounds in a row the run stops.
        max_wait: seconds that skipped rounds in a row may take before the run stops; ``None``: any
            number of them.
    """

    min_replies: int = 1
    max_skipped_rounds: int = 10
    max_wait: float | None = None

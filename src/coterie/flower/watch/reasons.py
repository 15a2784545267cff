"""Why there is no reply of a client that counts, in words."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.terminal import counted

# By the word of a row's ``refused`` (docs/deploy.md says more of each).
REASONS = {
    "no answer": "no answer in time",
    "late": "answered too late",
    "unavailable": "went offline",
    "not there": "was offline",
    "not sent": "the request could not be sent",
    "failed": "an error on the node",
    "crashed": "the node's process ended",
    "unverified": "the node could not verify the app",
    "malformed": "the reply could not be decoded",
    "columns": "impossible report on columns",
    "mismatch": "the node does not match the run",
    "name": "the node uses another name",
    "config": "the node reported a problem with its configuration",
    "data": "the node reported a problem with its data",
    "missing": "the node lacked what it needed",
    "work": "the node could not do the work",
}


def reason_in_words(reason: str) -> str:
    """A reason as people read it."""
    return REASONS.get(reason, reason)


def counts_in_words(counts: Mapping[str, int]) -> str:
    """How often, by reason, ``-`` for none.

    Example:
        >>> counts_in_words({"unavailable": 1, "no answer": 2})
        'no answer in time (2 times), went offline (1 time)'
    """
    said = [
        f"{reason_in_words(reason)} ({counted(count, 'time')})"
        for reason, count in sorted(counts.items())
    ]
    return ", ".join(said) or "-"

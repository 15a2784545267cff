"""The headline over the clients that every scored round has, so that it does not rise when a weak site
is away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Of a row: name of a client -> its headline and its test samples.
COLUMN = "client_scores"


@dataclass(frozen=True, slots=True)
class SameClients:
    """What the same clients reached in each round.

    Args:
        away: whether some other client was scored in some round.
        values: number of the round -> the mean of their headlines, weighted by their test samples. Of
            an accuracy that is the accuracy over all their samples.
    """

    clients: int
    away: bool
    values: Mapping[int, float]


def same_clients(rows: Sequence[Mapping[str, Any]]) -> SameClients:
    """The clients that have a score in all of these rounds, and what they reached.

    Args:
        rows: of ``rounds.jsonl``; those without scores of single clients are left out.
    """
    scored = [row for row in rows if row.get(COLUMN)]
    if not scored:
        return SameClients(0, False, {})
    # A client without test samples has none, and one whose samples are of one class has no AUROC.
    known = [
        {name for name, (value, _) in row[COLUMN].items() if value is not None} for row in scored
    ]
    in_all = set.intersection(*known)
    in_any = set.union(*known)
    values = {}
    for row in scored:
        pairs = [row[COLUMN][name] for name in sorted(in_all)]
        total = sum(samples for _, samples in pairs)
        if total:
            values[int(row["round"])] = sum(value * samples for value, samples in pairs) / total
    return SameClients(len(in_all), in_all != in_any, values)

"""Who trains from which model, and after whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.core.arrays import IntArray, empty_mapping


@dataclass(frozen=True, slots=True)
class Plan:
    """Who trains from which model, and after whom.

    Args:
        ids: int64 ``[n]``, distinct clients.
        row: int64 ``[n]``, the model each one trains (clients of one chain share it).
        chain: int64 ``[n]``, clients with the same number train one after another, in the order
            given here. ``None``: everybody alone.
        spent: int64 ``[n]``, local epochs already spent in this round (in a cold start), ``None``:
            none.
        notes: what the rule did, as counts (newcomers, cold start, fallbacks).
    """

    ids: IntArray
    row: IntArray
    chain: IntArray | None = None
    spent: IntArray | None = None
    notes: Mapping[str, Any] = field(default_factory=empty_mapping)

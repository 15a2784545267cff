"""The row of a round in ``rounds.jsonl``: what it says beside the scores of the models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.clients.ledger import Ledger, flexcfl_models, transfer_totals
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.data.shifts import FederationSnapshot
from coterie.headline import Keys
from coterie.privacy.accounting import Budget

# Counts that have a column of their own in the row.
_COUNTS = ("newcomers", "cold_start", "drifted", "migrations", "same_group")
# Notes that are in the row elsewhere, or are too large for it.
_NOT_NOTES = (
    *_COUNTS,
    "loss",
    "discrepancy",
    "privacy",
    "skipped",
    "seconds",
    "drifted_ids",
    "ids",
    "weights",
    "plan",
)


def round_row(
    number: int,
    before: Groups,
    groups: Groups,
    notes: Mapping[str, Any],
    ledger: Ledger,
    keys: Keys,
) -> dict[str, Any]:
    """The row of a round before it is scored; its keys are in the order of the file."""
    return {
        "round": number,
        # Empty keys hold the places of the figures that scoring fills in.
        keys.value: None,
        keys.all: None,
        keys.mean: None,
        "clients_assigned": groups.assigned,
        keys.groups: None,
        keys.quantiles: None,
        keys.fairness: None,
        "loss": notes.get("loss"),
        "discrepancy": notes.get("discrepancy"),
        "sizes": groups.sizes().tolist(),
        **{name: int(notes.get(name, 0)) for name in _COUNTS},
        "local_steps": ledger.steps,
        "skipped": bool(notes.get("skipped", False)),
        "notes": {name: value for name, value in notes.items() if name not in _NOT_NOTES},
        "refused": counts_by_name(ledger.refused),
        # Counted twice: all that moved, and what FlexCFL's Fig. 6 counts, to compare with print.
        "transfers": {
            **transfer_totals(ledger.blocks),
            "flexcfl": flexcfl_models(ledger.blocks, notes),
        },
        "moves": moves(before.member, groups.member),
    }


def counts_by_name(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts in the order of their names, so that equal rows are written alike."""
    return dict(sorted(counts.items()))


def moves(before: IntArray, after: IntArray) -> list[list[int]]:
    """Every client whose group changed, and its new one, ``-1`` for none.

    Example:
        >>> moves(np.array([-1, 0, 1]), np.array([1, 0, -1]))
        [[0, 1], [2, -1]]
    """
    # Of ten million clients the comparison alone takes longer than the rest of the row.
    if before is after:
        return []
    changed = np.flatnonzero(before != after)
    return np.stack([changed, after[changed]], axis=1).tolist()


def shift_columns(
    snapshot: FederationSnapshot, before: Groups, notes: Mapping[str, Any]
) -> dict[str, Any]:
    """What the shift did, and which changes of clients with a group the method did not see."""
    changed = snapshot.changed
    # A client without a group has nothing that drift could make wrong.
    had_group = changed[before.member[changed] >= 0]
    missed = np.setdiff1d(had_group, notes.get("drifted_ids", np.empty(0, np.int64)))
    return {"shift": list(snapshot.events), "changed": len(changed), "missed": len(missed)}


def attack_columns(
    clipped: Mapping[str, int], attackers: Sequence[int], cohort: IntArray
) -> dict[str, dict[str, int] | int]:
    """What the bounds cut down, and how many clients of the round attacked.

    Args:
        clipped: replies of the round that were brought within their bounds, by reason.
    """
    found: dict[str, dict[str, int] | int] = {}
    # Only where there is something to say, which without attackers is hardly ever.
    if clipped:
        found["clipped"] = counts_by_name(clipped)
    if attackers:
        found["attackers"] = int(np.isin(cohort, attackers).sum())
    return found


def privacy_columns(
    budget: Budget | None, number: int, notes: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """What the rounds up to this one spent, and the noise of this one, where updates are private."""
    if budget is None:
        return {}
    spent = {"epsilon": budget.epsilon(number + 1), "delta": budget.delta}
    return {"privacy": {**spent, **notes.get("privacy", {})}}


def secure_columns(notes: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """What sums as secure aggregation computes them cost, and how far off they were."""
    # Only in runs that have them, so that other rows stay as they are.
    if "secure" not in notes:
        return {}
    return {"secure": notes["secure"]}


def round_seconds(
    ledger: Ledger, notes: Mapping[str, Any], began: float, evaluation_began: float
) -> dict[str, float]:
    """Where the time of a round went."""
    now = time.perf_counter()
    of_method = notes.get("seconds", {})
    return {
        "training": ledger.training,
        "grouping": of_method.get("grouping", 0.0),
        "aggregation": of_method.get("aggregation", 0.0),
        "evaluation": now - evaluation_began,
        "total": now - began,
    }

"""A run folder, states and rows that tests of stored runs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coterie.core.groups import Groups, Memory
from coterie.experiment import check
from tests.conftest import same_memory

TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 8}},
    "model": {"name": "mclr"},
    "train": {"rounds": 4, "clients_per_round": 4},
    "algorithm": {"name": "fedavg"},
}
RESOLVED = check(TABLES).resolved()


@dataclass(frozen=True)
class Remembered:
    """What a rule might remember: a tensor, an array, numbers, and nothing."""

    record_name = "remembered"
    direction: torch.Tensor
    known: np.ndarray
    threshold: float
    count: int
    proximity: np.ndarray | None = None


def state(seed: int, k: int = 2) -> Groups:
    """Random groups of eight clients, with an optimiser and a memory."""
    rng = torch.Generator().manual_seed(seed)
    models = torch.randn(k, 12, generator=rng)
    optimiser = {"velocity": torch.randn(k, 12, generator=rng), "steps": torch.arange(k)}
    memory = Memory().with_record(
        Remembered(torch.randn(k, 12, generator=rng), np.arange(3) > 1, 0.25, 7)
    )
    member = np.arange(8) % (k + 1) - 1
    return Groups(models, member, optimiser, memory, models[0], np.arange(k) > 0)


def same(a: Groups, b: Groups) -> bool:
    """Whether all of two states is equal to the bit."""
    tensors = [(a.models, b.models), *((a.optimiser[n], b.optimiser[n]) for n in a.optimiser)]
    assert a.start is not None
    assert b.start is not None
    tensors += [(a.start, b.start)]
    names = a.optimiser.keys() == b.optimiser.keys() and same_memory(a, b)
    names = names and np.array_equal(a.trained, b.trained)  # type: ignore[arg-type]
    equal = all(x.dtype == y.dtype and torch.equal(x, y) for x, y in tensors)
    return (
        names and equal and a.member.dtype == b.member.dtype and np.array_equal(a.member, b.member)
    )


def row(round: int, **more: Any) -> dict[str, Any]:
    """A row of ``rounds.jsonl``."""
    seconds = {
        "training": 0.5,
        "grouping": 0.1,
        "aggregation": 0.1,
        "evaluation": 0.1,
        "total": 1.0 + round,
    }
    transfers = {"models": 8, "down_bytes": 100, "up_bytes": 50}
    return {
        "round": round,
        "accuracy": 0.1 * round,
        "sizes": [3, 5],
        "seconds": seconds,
        "transfers": transfers,
        "refused": {"finite": 1},
        **more,
    }

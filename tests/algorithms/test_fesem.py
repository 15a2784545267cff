"""FeSEM: migration changes nothing, for its distances need no data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.data.shifts import SHIFTS
from tests.contract.test_shifts import two_labels_each
from tests.simulations import play_covering


@pytest.mark.parametrize("order", ["train_then_assign", "flexcfl"])
def test_fesem_with_migration_is_fesem(order: Any) -> None:
    """Its distance test needs no data: whoever drifted has nothing to compute anew."""
    population = two_labels_each()
    shift = SHIFTS["swap_all"](p=0.8, pool="all", start=2)
    plain, migrating = (
        play_covering(ct.fesem(2, order=order, migration=migration), population, 6, shift=shift)
        for migration in ("none", "per_label")
    )
    assert sum(result.row["drifted"] for result in migrating) > 0
    for a, b in zip(plain, migrating, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)
        assert np.array_equal(a.groups.member, b.groups.member)
        assert a.row["newcomers"] == b.row["newcomers"]

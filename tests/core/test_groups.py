"""Groups: what is counted of members, and that counts follow clients that move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from coterie.core.groups import NO_GROUP, Groups


def some_groups(clients: int = 200, k: int = 4) -> Groups:
    member = np.random.default_rng(0).integers(NO_GROUP, k, clients)
    return Groups(torch.zeros(k, 2), member)


def counted(groups: Groups) -> list[int]:
    return [int((groups.member == j).sum()) for j in range(groups.k)]


def test_counts_follow_clients_that_move_again_and_again() -> None:
    rng = np.random.default_rng(1)
    groups = some_groups()
    before = groups
    sizes = groups.sizes().tolist()
    for _ in range(20):
        # Few clients and many, with the same client twice.
        ids = rng.integers(0, 200, rng.integers(1, 60))
        groups = groups.with_members(ids, rng.integers(NO_GROUP, 4, len(ids)))
        assert groups.sizes().tolist() == counted(groups)
        assert groups.assigned == sum(counted(groups))
        assert groups.has_group.tolist() == (groups.member >= 0).tolist()
    assert before.sizes().tolist() == sizes == counted(before)


def test_counts_are_those_of_the_members_that_a_copy_was_given() -> None:
    groups = some_groups()
    groups.sizes()
    everyone = replace(groups, member=np.zeros(200, np.int64))
    assert everyone.sizes().tolist() == [200, 0, 0, 0]
    assert everyone.assigned == 200
    assert groups.sizes().tolist() == counted(groups)
    assert groups.select([0, 0]).sizes().tolist()[:2] == counted(groups)[:2]


def test_groups_that_nobody_is_in_have_no_members() -> None:
    groups = Groups(torch.zeros(3, 2), np.full(5, NO_GROUP))
    assert groups.sizes().tolist() == [0, 0, 0]
    assert groups.assigned == 0
    assert not groups.has_group.any()

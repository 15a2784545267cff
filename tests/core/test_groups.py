"""Groups: what is counted of members, and that counts follow clients that move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
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


@pytest.mark.parametrize("wrong", [np.array([0.0, 1.7, 2.2]), np.zeros(2, np.int64), 0.5, "1"])
def test_groups_that_are_no_integers_or_not_one_for_each_client_are_refused(wrong: Any) -> None:
    groups = some_groups()
    with pytest.raises(ValueError, match="with_members"):
        groups.with_members(np.arange(3), wrong)
    # One for all of them, and one for each client of a mask.
    assert groups.with_members(np.arange(3), 1).member[:3].tolist() == [1, 1, 1]
    few = np.arange(200) < 2
    assert groups.with_members(few, np.array([2, 0])).member[:2].tolist() == [2, 0]
    # A round in which no client moves.
    assert groups.with_members(np.array([], np.int64), []).member.tolist() == groups.member.tolist()

"""How many groups there are: the estimators."""

from __future__ import annotations

import pytest
import torch

from coterie.core.keys import Key
from coterie.math.group_count import ESTIMATORS, estimate_groups


def clumps(
    groups: int, each: int = 20, apart: float = 1.0, noise: float = 1.0, d: int = 300
) -> torch.Tensor:
    """Updates around a common direction and one of their group's own, all of length one, in
    noise."""
    draw = torch.Generator().manual_seed(groups)
    own = torch.nn.functional.normalize(torch.randn(groups, d, generator=draw))
    common = torch.nn.functional.normalize(torch.randn(1, d, generator=draw))
    rows = (common + apart * own).repeat_interleave(each, dim=0)
    return rows + noise * torch.randn(len(rows), d, generator=draw) / d**0.5


@pytest.mark.sampled(4)
@pytest.mark.parametrize("groups", range(1, 9))
def test_separation_counts_clumps(groups: int) -> None:
    assert estimate_groups(clumps(groups), 8, Key(0)) == groups


@pytest.mark.parametrize("how", ESTIMATORS)
def test_every_estimator_can_answer_one(how: str) -> None:
    assert estimate_groups(clumps(1, each=60), 8, Key(0), how) == 1


@pytest.mark.parametrize("how", ["eigengap", "silhouette", "separation"])
@pytest.mark.parametrize("groups", [2, 4])
def test_estimators_tell_groups_that_lie_far_apart(how: str, groups: int) -> None:
    assert estimate_groups(clumps(groups, apart=5.0, noise=0.3), 8, Key(0), how) == groups


def test_a_few_strangers_are_no_group() -> None:
    rows = torch.cat(
        [clumps(3, apart=2.0), torch.randn(2, 300, generator=torch.Generator().manual_seed(9))]
    )
    assert estimate_groups(rows, 8, Key(0)) == 3


def test_clients_too_few_or_silent_or_all_alike_are_one_group() -> None:
    assert estimate_groups(torch.zeros(10, 5), 8, Key(0)) == 1
    assert estimate_groups(clumps(2)[:3], 8, Key(0)) == 1
    assert estimate_groups(torch.ones(20, 5), 8, Key(0)) == 1


def test_the_length_of_updates_and_the_order_of_clients_do_not_matter() -> None:
    rows = clumps(4)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    longer = rows * torch.logspace(-3, 3, len(rows))[:, None]
    assert estimate_groups(rows[order], 8, Key(1)) == estimate_groups(longer, 8, Key(1)) == 4

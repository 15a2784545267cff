"""The faults of reference code, which a study tests on purpose."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.updates import Updates
from coterie.studies.reproduce.faults import first_client

CLIENTS = 40
COHORT = np.arange(4, 24, 2)  # ten clients, so that everybody was sampled after four rounds


def weighed(number: int, seed: int = 0) -> np.ndarray:
    """The weights of ten clients, the first five of group 0 and the others of group 1."""
    groups = Groups(torch.zeros(2, 1), np.zeros(CLIENTS, np.int64))
    row = np.repeat([0, 1], 5)
    updates = Updates(COHORT, row, torch.zeros(10, 1), np.ones(10), np.zeros(10))
    round = Round(number, Key(seed, round=number), COHORT, cast(Clients, cast(Any, None)))
    return first_client(groups, updates, round)


@pytest.mark.parametrize("number", range(4))
def test_the_lowest_number_counts_until_everybody_was_sampled(number: int) -> None:
    chosen = weighed(number).argmax(axis=1)
    assert chosen.tolist() == [0, 5]


def test_a_random_participant_counts_in_later_rounds() -> None:
    chosen = {tuple(weighed(number).argmax(axis=1).tolist()) for number in range(4, 60)}
    assert {first for first, _ in chosen} == set(range(5))
    assert {second for _, second in chosen} == set(range(5, 10))


def test_the_participant_follows_from_the_seed() -> None:
    assert np.array_equal(weighed(7), weighed(7))
    assert any(not np.array_equal(weighed(7), weighed(7, seed)) for seed in range(1, 6))


def test_one_client_of_each_group_has_all_the_weight() -> None:
    weights = weighed(9)
    assert weights.sum(axis=1).tolist() == [1.0, 1.0]
    assert sorted(np.unique(weights)) == [0.0, 1.0]

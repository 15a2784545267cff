"""What seeds share, on which the interval of a mean over them depends."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import Partition
from coterie.data.lazy import ranges
from coterie.measures.seeds import overlap_of, split_of


def split(train: list[int], test: list[int], tables: dict | None = None):
    rows = (np.array(train[::2]), np.array(train[1::2]))
    return split_of(Partition(rows, (np.array(test), np.empty(0, np.int64))), tables or {})


def test_seeds_that_test_on_what_others_train_on_are_counted_as_dependent() -> None:
    drawn = [split([0, 1, 2, 3, 4, 5], [6, 7]), split([0, 1, 2, 3, 6, 7], [4, 5])]
    found = overlap_of(drawn)
    assert (found.reuse, found.fixed) == (pytest.approx(1 / 3), False)
    # A file of test samples, divided among clients by the seed: none is ever trained on.
    divided = [split([0, 1, 2, 3], [6, 7]), split([0, 1, 4, 5], [8, 9])]
    assert (overlap_of(divided).reuse, overlap_of(divided).fixed) == (0.0, False)
    fixed = [split([0, 1, 2, 3], [6, 7]), split([3, 2, 1, 0], [7, 6])]
    assert (overlap_of(fixed).reuse, overlap_of(fixed).fixed) == (0.0, True)


def test_a_division_that_each_seed_draws_anew_is_told_from_a_fixed_one() -> None:
    # The same samples of each client, split into training and test samples by the seed.
    same = [
        split_of(Partition((np.array([0, 1]), np.array(b)), (np.array([2]), np.array(c))), {})
        for b, c in (([4, 5], [6, 7]), ([7, 4], [5, 6]))
    ]
    assert overlap_of(same).redrawn is False
    # The same test samples, held by other clients.
    drawn = [
        split_of(Partition((np.array([0]), np.array([1])), (np.array(a), np.array(b))), {})
        for a, b in (([2], [3]), ([3], [2]))
    ]
    assert (overlap_of(drawn).fixed, overlap_of(drawn).redrawn) == (True, True)
    assert overlap_of(drawn).note != overlap_of([drawn[0], drawn[0]]).note


def test_a_single_seed_and_unknown_samples_share_nothing() -> None:
    one = split([0, 1], [2])
    lazy = split_of(Partition(*[ranges(np.array([0]), np.array([4]))] * 2), {})
    nodes = split([], [])
    assert (lazy, nodes) == (None, None)
    for splits in ([one], [one, lazy], []):
        assert (overlap_of(splits).reuse, overlap_of(splits).fixed) == (0.0, False)


def test_validation_samples_are_drawn_anew_by_every_seed() -> None:
    tables = {"evaluate": {"validation": 0.2}}
    found = overlap_of([split([0, 1, 2, 3], [4, 5], tables)] * 2)
    assert found.reuse == pytest.approx(0.25)

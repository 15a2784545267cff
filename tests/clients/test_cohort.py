"""Which clients are asked in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.clients.cohort import Sampler
from coterie.core.keys import Key

KINDS = ("uniform", "cover_then_uniform")
some_clients = st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True).map(np.array)
per_round = st.integers(1, 35)
seeds = st.integers(0, 2**32)


@given(some_clients, per_round, seeds)
def test_the_covering_rounds_meet_everybody_once_in_order(clients: Any, k: int, seed: int) -> None:
    sampler = Sampler("cover_then_uniform", clients, k, Key(seed))
    rounds = -(-len(clients) // k)
    met = [sampler(t) for t in range(rounds)]
    assert np.concatenate(met).tolist() == sorted(clients)
    assert all(len(cohort) == k for cohort in met[:-1])
    uniform = Sampler("uniform", clients, k, Key(seed))
    assert all(np.array_equal(sampler(t), uniform(t)) for t in range(rounds, rounds + 5))


@given(st.sampled_from(KINDS), some_clients, per_round, seeds, st.integers(0, 50))
def test_a_cohort_is_distinct_sorted_and_a_function_of_the_round(
    kind: Any, clients: Any, k: int, seed: int, t: int
) -> None:
    sampler = Sampler(kind, clients, k, Key(seed))
    cohort = sampler(t)
    covering = kind == "cover_then_uniform" and t * k < len(clients)
    assert len(cohort) == (min(k, len(clients) - t * k) if covering else min(k, len(clients)))
    assert (np.diff(cohort) > 0).all()
    assert np.isin(cohort, clients).all()
    Sampler(kind, clients, k, Key(seed))(t + 1)
    assert np.array_equal(cohort, Sampler(kind, clients.copy(), k, Key(seed))(t))


@given(st.sampled_from(KINDS), some_clients, per_round, seeds, st.integers(0, 9), st.data())
def test_only_those_present_are_asked(
    kind: Any, clients: Any, k: int, seed: int, t: int, data: st.DataObject
) -> None:
    sampler = Sampler(kind, clients, k, Key(seed))
    present = np.array(data.draw(st.lists(st.booleans(), min_size=61, max_size=61)))
    here = clients[present[clients]]
    cohort = sampler(t, present)
    assert present[cohort].all()
    assert np.array_equal(cohort, Sampler(kind, here, k, Key(seed))(t))
    assert np.array_equal(sampler(t, np.ones(61, bool)), sampler(t))


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_present_is_an_empty_cohort(kind: Any) -> None:
    assert len(Sampler(kind, np.arange(4), 2, Key(0))(0, np.zeros(4, bool))) == 0


def test_the_uniform_sampler_is_uniform() -> None:
    sampler = Sampler("uniform", np.arange(10), 3, Key(1))
    met = np.bincount(np.concatenate([sampler(t) for t in range(2000)]), minlength=10)
    assert (np.abs(met - 600) < 5 * np.sqrt(2000 * 0.3 * 0.7)).all()
    assert not np.array_equal(sampler(0), Sampler("uniform", np.arange(10), 3, Key(2))(0))

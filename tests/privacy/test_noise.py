"""Noised sums: what one client can change, the noise, and the clip that adapts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.privacy.noise import PrivateMemory, PrivateSums, clipped_sums, lengths_of, noised

NUMBERS = st.floats(-1e6, 1e6, width=32)


def updates(delta: np.ndarray, row: np.ndarray) -> Updates:
    n = len(delta)
    return Updates(np.arange(n), row, torch.from_numpy(delta), np.ones(n), np.ones(n))


def released(
    sums: PrivateSums, delta: np.ndarray, row: np.ndarray, groups: Groups, number: int = 0
):
    key = Key(0).at(number)
    round = Round(number, key, np.arange(len(delta)), Clients(engine=None))
    plan = Plan(np.arange(len(delta)), row)
    return sums(groups, updates(delta, row), np.ones((groups.k, len(delta))), plan, round)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_client_more_or_less_changes_all_sums_together_by_the_clip_at_most(data):
    n = data.draw(st.integers(1, 6))
    k = data.draw(st.integers(1, 3))
    clip = data.draw(st.floats(1e-3, 1e3))
    delta = np.array(data.draw(st.lists(NUMBERS, min_size=3 * n, max_size=3 * n)), np.float32)
    delta = delta.reshape(n, 3)
    row = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    without = data.draw(st.integers(0, n - 1))

    def sums(kept: np.ndarray) -> np.ndarray:
        part = torch.from_numpy(delta[kept])
        return clipped_sums(part, lengths_of(part), row[kept], k, clip).numpy()

    everyone = np.arange(n)
    changed = sums(everyone) - sums(np.delete(everyone, without))
    assert np.linalg.norm(changed) <= clip * (1 + 1e-6) + 1e-9 * n * clip
    # And the sums of groups that the client is not in stay as they are.
    assert not changed[np.arange(k) != row[without]].any()


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_the_noise_has_the_deviation_that_the_accountant_counts(quantile):
    sums = PrivateSums(clip=2.0, noise=1.5, clients=10, quantile=quantile)
    groups = Groups(torch.zeros(4, 5000), np.zeros(10, np.int64))
    nothing = np.zeros((0, 5000), np.float32)
    total = released(sums, nothing, np.zeros(0, np.int64), groups).total
    # Of groups without any reply, too.
    found = (total * sums.clients / groups.k).numpy().std(axis=1)
    assert found == pytest.approx(np.full(4, sums.sum_noise * 2.0), rel=0.05)
    spent = sums.sum_noise**-2
    if quantile is not None:
        spent += (2 * sums.count_noise) ** -2
    assert spent == pytest.approx(1.5**-2)


def test_the_noise_differs_between_rounds_and_is_the_same_for_a_round():
    sums = PrivateSums(clip=1.0, noise=1.0, clients=1)
    groups = Groups(torch.zeros(1, 8), np.zeros(1, np.int64))
    delta = np.zeros((1, 8), np.float32)
    row = np.zeros(1, np.int64)
    first, again, later = (released(sums, delta, row, groups, number).total for number in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    secret = replace(sums, secret=Key(99))
    assert not torch.equal(first, released(secret, delta, row, groups).total)


def test_the_clip_goes_to_the_quantile_of_the_lengths():
    delta = np.zeros((200, 2), np.float32)
    delta[:, 0] = np.linspace(0.01, 2.0, 200)
    row = np.zeros(200, np.int64)
    sums = PrivateSums(clip=20.0, noise=0.5, clients=200, quantile=0.3)
    groups = Groups(torch.zeros(1, 2), row)
    for number in range(60):
        groups = released(sums, delta, row, groups, number).groups
    assert groups.memory.get(PrivateMemory).clip == pytest.approx(0.6, rel=0.15)


def test_without_noise_and_clip_it_is_the_mean():
    data = ct.load("digits", partition={"kind": "iid", "clients": 6})
    settings = {
        "data": data,
        "model": "mclr",
        "rounds": 3,
        "clients_per_round": 4,
        "engine": "serial",
        "bounds": {"enabled": False},
        "local": ct.Solver(1, 20, 0.1),
        "train": {"sampler": "uniform"},
    }
    method = ct.fedavg()
    plain = ct.run(method, weigh="evenly", **settings)
    sums = PrivateSums(clip=math.inf, noise=0.0, clients=4)
    private = ct.run(replace(method, aggregate=noised(sums)), **settings)
    # A sum of four quarters and a quarter of a sum are the same numbers.
    assert torch.equal(plain.state.models, private.state.models)

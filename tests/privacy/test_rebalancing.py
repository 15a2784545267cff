"""Random rebalancing: small groups get their clients, nobody's draw depends on others, the cost."""

from __future__ import annotations

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
from coterie.errors import ConfigError
from coterie.privacy.noise import PrivateMemory, PrivateSums, Rebalanced, moving_shares
from tests.refusals import refuses

COUNTS = st.lists(st.floats(-20, 200), min_size=2, max_size=5).map(np.array)


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.floats(1, 100))
def test_expected_groups_reach_the_least_where_there_are_clients_enough(counts, least):
    shares = moving_shares(counts, least)
    assert shares.min() >= 0
    assert shares.sum(axis=1) == pytest.approx(np.ones(len(counts)))
    before = np.maximum(counts, 0)
    after = before @ shares
    assert after.sum() == pytest.approx(before.sum())
    if before.sum() >= least * len(counts):
        assert after.min() >= least - 1e-6
    # Large groups give, and keep the least for themselves.
    assert (after[before >= least] >= least - 1e-6).all()


def placed(ids: np.ndarray, counts: list[float]) -> np.ndarray:
    """The models that clients train whose own group is 0."""
    groups = Groups(torch.zeros(2, 1), np.zeros(400, np.int64))
    groups = groups.remember(PrivateMemory(1.0, np.array(counts)))
    rule = Rebalanced(lambda groups, round: (groups, Plan(ids, groups.member[ids])), 50.0)
    round = Round(3, Key(0).at(3), ids, Clients(engine=None))
    return rule(groups, round)[1].row


def test_a_client_moves_whoever_else_is_there():
    everyone = np.arange(400)
    row = placed(everyone, [350.0, 0.0])
    assert 30 < row.sum() < 80
    some = everyone[::3]
    assert np.array_equal(placed(some, [350.0, 0.0]), row[some])
    assert not placed(everyone, [200.0, 200.0]).any()


def test_counts_and_clip_are_a_part_of_the_noise():
    sums = PrivateSums(clip=1.0, noise=2.0, clients=20, quantile=0.5, counts=True)
    spent = sums.sum_noise**-2 + (1 / 4 + 1) * sums.count_noise**-2
    assert spent == pytest.approx(2.0**-2)


def test_a_run_moves_clients_and_members_stay():
    data = ct.load("digits", partition={"kind": "planted", "clients": 30, "groups": 2})
    run = {"data": data, "model": "mclr", "rounds": 3, "clients_per_round": 20}
    run |= {"engine": "serial", "local": ct.Solver(1, 10, 0.1)}
    # From the seed, so that each run of the test draws the same cohorts.
    privacy = ct.Privacy(
        noise=0.1,
        start_noise=0.1,
        least_group=9.0,
        accountant="rdp",
        randomness="seed_not_private",
    )
    result = ct.run(ct.fedgroup(groups=2, alpha=15), privacy=privacy, **run)
    assert "rebalanced" not in result.rows[0]["notes"]
    assert all("rebalanced" in row["notes"] for row in result.rows[1:])
    assert all(row["moves"] == [] or row["newcomers"] for row in result.rows[1:])
    with refuses(ConfigError, "does-not-fit", "privacy.least_group"):
        ct.run(ct.ifca(groups=2), privacy=privacy, **run)

"""Runs from Python, and what their result holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.core.vectors import flatten
from coterie.rules.serving import model_for
from tests.conftest import blobs, small_net


@pytest.fixture(scope="module")
def result() -> ct.Result:
    method = ct.fedgroup(groups=2, alpha=3)
    return ct.run(
        method,
        data=blobs(),
        model=small_net(),
        local=ct.Solver(epochs=2, lr=0.1),
        rounds=4,
        clients_per_round=4,
        engine="serial",
    )


def test_a_result_tells_accuracy_groups_and_a_frame(result: ct.Result) -> None:
    assert len(result.accuracy) == 4
    assert all(0 <= a <= 1 for a in result.accuracy)
    assert result.groups.shape == (12,)
    frame = result.frame()
    assert frame["accuracy"].tolist() == result.accuracy
    assert {"seconds.training", "transfers.models", "discrepancy", "loss"} <= set(frame.columns)


def test_the_model_of_a_client_is_that_of_its_group(result: ct.Result) -> None:
    for client in range(12):
        net = result.model_for(client)
        assert torch.equal(flatten(net), model_for(result.state, client))
        group = result.groups[client]
        assert group < 0 or torch.equal(flatten(net), result.state.models[group])


def test_the_users_module_is_left_as_it_was() -> None:
    net = small_net()
    before = flatten(net)
    ct.run(ct.fedavg(), data=blobs(), model=net, rounds=1, engine="serial")
    assert torch.equal(flatten(net), before)


def test_running_statistics_travel_with_the_model() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    solver = ct.Solver(epochs=1, batch_size=50, lr=0.1)
    result = ct.run(ct.fedavg(), data=blobs(), model=net, local=solver, rounds=2, engine="serial")
    assert not torch.equal(result.model_for(0)[1].running_mean, net[1].running_mean)


def test_a_new_method_is_one_short_function() -> None:
    """What the README promises: a rule of one's own in a slot, nothing else."""
    from coterie.core.plan import Plan

    def odd_and_even(groups: ct.Groups, round: ct.Round) -> tuple[ct.Groups, Plan]:
        from dataclasses import replace

        member = np.arange(len(groups.member)) % 2
        return replace(groups, member=member), Plan(round.cohort, member[round.cohort])

    result = ct.run(
        ct.Method(assign=odd_and_even, groups=2),
        data=blobs(),
        model=small_net(),
        rounds=3,
        engine="serial",
    )
    assert np.array_equal(result.groups, np.arange(12) % 2)
    assert result.accuracy[-1] > result.accuracy[0] - 0.05


def test_each_seed_is_its_own_run() -> None:
    a, b, again = (
        ct.run(
            ct.fedavg(),
            data=blobs(),
            model=small_net(),
            rounds=2,
            seed=seed,
            clients_per_round=3,
            engine="serial",
        )
        for seed in (0, 1, 0)
    )
    assert torch.equal(a.state.models, again.state.models)
    assert not torch.equal(a.state.models, b.state.models)

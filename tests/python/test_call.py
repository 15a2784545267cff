"""Runs from Python, and what their result holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.clients.cohort import Quorum
from coterie.core.keep import layers_to_keep
from coterie.core.vectors import flatten
from coterie.data.shifts import swap_all
from coterie.rules.assigning import by_group
from coterie.rules.migration import Migration
from tests.conftest import blobs, small_net
from tests.refusals import refuses


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
        assert torch.equal(flatten(net), by_group(result.state).vector(client))
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
        member = np.arange(len(groups.member)) % 2
        return replace(groups, member=member), Plan(round.cohort, member[round.cohort])

    result = ct.run(
        ct.Method(assign=odd_and_even, first=ct.FirstModels(2)),
        data=blobs(),
        model=small_net(),
        rounds=3,
        engine="serial",
    )
    assert np.array_equal(result.groups, np.arange(12) % 2)
    assert result.accuracy[-1] > result.accuracy[0] - 0.05


def test_a_rule_of_version_0_1_is_refused_in_one_line() -> None:
    def weigh(groups: ct.Groups, updates: ct.Updates) -> np.ndarray:
        return np.ones((groups.k, len(updates)))

    def assign(groups: ct.Groups, cohort: object, door: object, key: object) -> object:
        return groups

    class Steps:
        def init(self, starts: object, clients: int) -> object:
            return None

        def step(self, state: object, cohort: object, door: object, key: object) -> object:
            return state

    old = {
        "weigh": (replace(ct.fedavg(), weigh=weigh), "groups, updates"),
        "recluster": (replace(ct.fedavg(), recluster=weigh), "groups, updates"),
        "assign": (replace(ct.fedavg(), assign=assign), "groups, cohort, door, key"),
        "step": (Steps(), "state, cohort, door, key"),
    }
    for slot, (method, got) in old.items():
        with refuses(ct.ConfigError, "differs", slot) as caught:
            ct.run(method, data=blobs(), model=small_net(), rounds=1, engine="serial")
        assert caught.value.problems[0].got == got


@pytest.mark.parametrize("slot", ["assign", "recluster", "step"])
@pytest.mark.parametrize("returned", [None, "groups", (1, 2), "three", {"a": 1}])
def test_what_a_rule_of_ones_own_returns_is_checked(slot: str, returned: object) -> None:
    """With the place of the rule, where its user has to look."""

    def rule(groups: ct.Groups, *others: object) -> object:
        return {"groups": groups, "three": (groups, {}, {})}.get(str(returned), returned)

    class Steps:
        def init(self, initial_models: Any, clients: int) -> ct.Groups:
            return ct.Groups(initial_models(0)[None], np.zeros(clients, np.int64))

        def step(self, groups: ct.Groups, round: ct.Round) -> object:
            return rule(groups)

    rules = {
        "assign": replace(ct.fedavg(), assign=rule),
        "recluster": replace(ct.fedavg(), recluster=rule),
        "step": Steps(),
    }
    with refuses(ct.ConfigError, "wrong-type", slot) as caught:
        ct.run(rules[slot], data=blobs(), model=small_net(), rounds=1, engine="serial")
    assert f"{__file__}, line " in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_quorum_that_is_never_met_ends_the_run() -> None:
    options = {"data": blobs(), "model": small_net(), "rounds": 2, "engine": "serial"}
    solver = ct.Solver(epochs=1)
    met = ct.run(
        ct.fedavg(), clients_per_round=4, quorum=Quorum(min_replies=4), local=solver, **options
    )
    assert not any(row["skipped"] for row in met.rows)
    with refuses(ct.ConfigError, "out-of-range", "quorum.min_replies"):
        ct.run(ct.fedavg(), clients_per_round=4, quorum=Quorum(5, 0), local=solver, **options)
    half = {"sampler": lambda round: np.arange(2)}
    with refuses(ct.QuorumError, "too-few", "quorum"):
        ct.run(
            ct.fedavg(),
            clients_per_round=4,
            quorum=Quorum(4, 0),
            local=solver,
            train=half,
            **options,
        )


def test_replies_after_the_timeout_are_lost() -> None:
    net = small_net()
    late = ct.run(
        ct.fedavg(),
        data=blobs(),
        model=net,
        rounds=2,
        engine={"name": "serial", "round_timeout": 1e-9},
    )
    assert [row["skipped"] for row in late.rows] == [True, True]
    assert torch.equal(late.state.models[0], flatten(net))


def test_any_method_that_groups_clients_can_migrate() -> None:
    """FedGroup has no such argument of its own."""
    options = {"data": blobs(), "model": small_net(), "rounds": 4, "engine": "serial", "seed": 1}
    shift = swap_all(p=1.0, pool="warm", start=2)
    method = ct.fedgroup(groups=2, alpha=3, pretrain_steps=5)
    rows = ct.run(method, shift=shift, migration={"detector": "per_label"}, **options).rows
    assert sum(row["drifted"] for row in rows) > 0
    tolerant = ct.run(method, shift=shift, migration=Migration(tau=100.0), **options).rows
    assert sum(row["drifted"] for row in tolerant) == 0
    with refuses(ct.ConfigError, "does-not-fit", "migration.detector"):
        ct.run(ct.fedavg(), migration={"detector": "per_label"}, **options)


def test_what_a_client_keeps_is_part_of_its_model() -> None:
    net = small_net()
    keep = layers_to_keep(net, ["2"])
    method = replace(ct.fedavg(), local=ct.Train(keep=keep))
    data = blobs()
    result = ct.run(method, data=data, model=net, rounds=4, engine="serial", clients_per_round=8)
    right = 0
    for client, rows in enumerate(data.test):
        predicted = result.model_for(client)(data.x[rows]).argmax(dim=1)
        right += int((predicted == data.y[rows]).sum())
    total = int(data.sizes("test").sum())
    assert result.rows[-1]["accuracy_all"] == pytest.approx(right / total)
    heads = {tuple(result.vector_for(client)[keep.kept()].tolist()) for client in range(12)}
    assert len(heads) == 12, "all were met, and each has its own"
    assert not len(ct.run(ct.fedavg(), data=data, model=net, rounds=1, engine="serial").kept.ids)


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

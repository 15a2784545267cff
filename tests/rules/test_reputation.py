"""What a robust rule remembers of clients that go against their group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.round import Round
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import NO_GROUP, Groups, Memory
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.engines.attacks import sign_flip
from coterie.errors import ConfigError
from coterie.rules.reputation import ReputationMemory, reputation_memory, sketch, trust
from coterie.rules.robust import geometric_median
from coterie.rules.weighing import Aggregate
from tests.refusals import refuses

CLIENTS = 9
HOSTILE = np.array([6, 7, 8])
D = 20
# Rounds in which the hostile ones are a minority, and then one in which they are the majority.
COHORTS = ([0, 1, 2, 6], [3, 4, 5, 7], [0, 2, 4, 8], [1, 3, 5, 6], [2, 6, 7, 8])


def sent(ids: IntArray, factor: float) -> FloatArray:
    """Honest clients move near (1, ..., 1); the hostile ones send that turned round."""
    noise = [Key(3).client(client).generator().standard_normal(D) for client in ids.tolist()]
    honest = 1.0 + 0.3 * np.stack(noise)
    return np.where(np.isin(ids, HOSTILE)[:, None], -factor * honest, honest)


def combined(
    rule: Aggregate, groups: Groups, updates: Updates, weights: FloatArray
) -> tuple[Groups, torch.Tensor]:
    """The groups after a round, and how far it moves each model."""
    round = Round(0, Key(0), updates.ids, None)  # type: ignore[arg-type]
    found = rule.combine(groups, updates, weights, Plan(updates.ids, updates.row), round)
    return found.groups, found.total


def last_step(rule: Aggregate, factor: float = 1.0, k: int = 1) -> tuple[Groups, FloatArray]:
    """The groups after all cohorts, and how far the last one moved the model."""
    groups = Groups(torch.zeros(k, D), np.zeros(CLIENTS, np.int64))
    total = torch.zeros(k, D)
    for cohort in COHORTS:
        ids = np.array(cohort)
        delta = torch.from_numpy(sent(ids, factor)).to(torch.float32)
        n = len(ids)
        updates = Updates(ids, np.zeros(n, np.int64), delta, np.ones(n), np.zeros(n))
        weights = np.zeros((k, n))
        weights[0] = 1 / n
        groups, total = combined(rule, groups, updates, weights)
    return groups, total[0].numpy()


@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_a_hostile_majority_of_one_round_does_not_decide(factor: float) -> None:
    """Without memory the same round goes backwards."""
    _, plain = last_step(geometric_median(), factor)
    assert plain.mean() < -0.8
    groups, step = last_step(geometric_median(remember=True), factor)
    assert step.mean() > 0.8
    counts = trust(reputation_memory(groups).sent.to(torch.float64).numpy())
    assert counts[:6].tolist() == [1.0] * 6
    assert (counts[HOSTILE] < 0.01).all()


@pytest.mark.parametrize("remember", [False, True])
def test_a_large_hostile_client_is_one_of_many(remember: bool) -> None:
    """Shares by samples follow a power law on MNIST: one client of a round can have most of them."""
    ids = np.array([0, 1, 2, 3, 6])
    delta = torch.from_numpy(sent(ids, 1.0)).to(torch.float32)
    updates = Updates(ids, np.zeros(5, np.int64), delta, np.ones(5), np.zeros(5))
    weights = np.array([[0.1, 0.1, 0.1, 0.1, 0.6]])
    groups = Groups(torch.zeros(1, D), np.zeros(CLIENTS, np.int64))
    steps = []
    for evenly in (False, True):
        rule = geometric_median(remember=remember, evenly=evenly)
        # Known clients of the group would outvote it: it is the first round that is at risk.
        steps.append(combined(rule, groups, updates, weights)[1][0].mean())
    by_size, even = steps
    assert remember or by_size < -0.8
    assert even > 0.8
    assert even >= by_size


def test_where_all_clients_are_of_one_size_evenly_changes_no_bit() -> None:
    _, plain = last_step(geometric_median(remember=True))
    _, even = last_step(geometric_median(remember=True, evenly=True))
    assert np.array_equal(plain, even)


def test_memory_is_in_checkpoints_and_goes_with_the_number_of_groups() -> None:
    groups, _ = last_step(geometric_median(remember=True), k=2)
    known = reputation_memory(groups)
    loaded = Memory(saved=groups.memory.tensors()).get(ReputationMemory)
    assert loaded is not None
    assert torch.equal(loaded.sent, known.sent)
    assert loaded.group.tolist() == known.group.tolist() == [0] * CLIENTS
    assert loaded.length.tolist() == known.length.tolist()
    assert known.length[0] > 0 == known.length[1]
    after = reputation_memory(groups.select([0, 0, 1]))
    assert torch.equal(after.sent, known.sent)
    assert after.group.tolist() == [NO_GROUP] * CLIENTS


def test_a_sketch_keeps_cosines() -> None:
    rows = torch.from_numpy(Key(5).generator().standard_normal((2, 5000)))
    one, other = rows[0], 0.5 * rows[0] + rows[1]
    exact = torch.cosine_similarity(one, other, dim=0)
    kept = sketch(torch.stack([one, other]))
    assert kept.shape == (2, 256)
    assert abs(float(torch.cosine_similarity(kept[0], kept[1], dim=0) - exact)) < 0.15
    assert torch.equal(sketch(rows[:, :256]), rows[:, :256])


def test_buckets_are_refused() -> None:
    with refuses(ConfigError, "in-conflict", "weigh.bucket"):
        geometric_median(remember=True, bucket=2)


def settings(**more: Any) -> dict[str, Any]:
    data = ct.load("digits", partition={"kind": "planted", "clients": 30, "groups": 2})
    common = {"data": data, "model": "mclr", "rounds": 4, "clients_per_round": 10}
    local = ct.Solver(epochs=2, lr=0.1)
    return {**common, "local": local, "engine": "serial", "train": {"evaluate_every": 2}, **more}


def test_runs_without_attackers_keep_their_bits_and_those_with_them_their_accuracy() -> None:
    method = ct.ifca(groups=2, init="robust_cold_start", alpha=5)
    common = settings()
    plain = ct.run(method, weigh="geometric_median", **common)
    remembering = ct.run(method, weigh=geometric_median(remember=True), **common)
    assert torch.equal(plain.state.models, remembering.state.models)
    # Of 15 clients of a group six attack: in some rounds they are the majority of its five replies.
    planted = common["data"].planted
    of_one = np.flatnonzero(planted == 0)[:6].tolist()
    of_other = np.flatnonzero(planted == 1)[:1].tolist()
    attack = sign_flip(clients=(*of_one, *of_other))
    common = settings(rounds=10, seed=2)
    with_memory, without = (
        ct.run(method, attack=attack, weigh=geometric_median(remember=remember), **common)
        for remember in (True, False)
    )
    assert with_memory.accuracy[-1] > without.accuracy[-1] + 0.02

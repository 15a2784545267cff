"""StoCFL: clusters of one that merge, and the pull to the global model."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms.stocfl import PulledToGlobal, SeenClients
from coterie.core.training import WithOwnModel
from coterie.engines import OwnModelEngine, SerialEngine
from coterie.engines.attacks import alie
from coterie.rules.merged_clusters import merged_clusters
from coterie.rules.weighing import evenly
from tests.conftest import blobs, small_net

OPTIONS: dict[str, Any] = {
    "data": blobs(clients=12, groups=2, size=60, classes=6),
    "model": small_net(6),
    "local": ct.Solver(epochs=2, batch_size=5, lr=0.1),
    "rounds": 4,
    "clients_per_round": 6,
    "engine": "serial",
    "seed": 1,
}


def test_clusters_that_are_joined_through_another_are_one() -> None:
    # 0 and 2 are not alike, but both are like 1. The second has most clients.
    similarity = np.array([[1.0, 0.6, 0.1], [0.6, 1.0, 0.5], [0.1, 0.5, 1.0]])
    assert merged_clusters(similarity, np.array([1, 4, 2]), tau=0.5).tolist() == [1, 1, 1]
    assert merged_clusters(similarity, np.array([1, 4, 2]), tau=0.55).tolist() == [1, 1, 2]
    assert merged_clusters(similarity, np.array([1, 4, 2]), tau=0.61).tolist() == [0, 1, 2]


def bridged(similar: float) -> np.ndarray:
    """Five clusters: 0 and 1 are alike, 3 and 4 are, and 2 is like all of them, most like 3."""
    similarity = np.eye(5)
    similarity[:2, :2] = 0.8
    similarity[3:, 3:] = 0.8
    similarity[2] = similarity[:, 2] = similar
    similarity[2, 3] = similarity[3, 2] = similar + 0.05
    np.fill_diagonal(similarity, 1.0)
    return similarity


def test_a_cluster_alone_joins_no_two_that_are_as_large() -> None:
    similarity = bridged(0.6)
    one = np.ones(5, np.int64)
    assert merged_clusters(similarity, one, 0.5).tolist() == [0, 0, 0, 0, 0]
    assert merged_clusters(similarity, one, 0.5, "leave_out").tolist() == [0, 0, 2, 2, 2]
    # One that is larger than what it joins is no bridge, but their middle.
    size = np.array([1, 1, 3, 1, 1])
    assert merged_clusters(similarity, size, 0.5, "leave_out").tolist() == [2, 2, 2, 2, 2]
    # Nor is one that joins single clients.
    assert merged_clusters(similarity[:4, :4], one[:4], 0.5, "leave_out").tolist() == [0, 0, 0, 0]
    # Two ways join clusters for good, and bridges do not join each other.
    two = np.zeros((6, 6))
    two[:5, :5] = similarity
    two[5] = two[:, 5] = np.append(similarity[2], 1.0)
    two[2, 5] = two[5, 2] = 0.1
    assert merged_clusters(two, np.ones(6, np.int64), 0.5, "leave_out").tolist() == [0] * 6


@pytest.mark.parametrize("seed", [0, 2])
def test_one_attacker_like_all_groups_does_not_merge_them(seed: int) -> None:
    """ALIE sends about the mean of the round's clients, which is similar to every group."""
    partition = {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"}
    mixed = {}
    for outliers in ("keep", "leave_out"):
        result = ct.run(
            ct.stocfl(outliers=outliers),
            data=ct.load("digits", partition=partition, seed=seed),
            model="mclr",
            local=ct.Solver(epochs=5, batch_size=10, lr=0.1),
            rounds=5,
            clients_per_round=20,
            attack=alie(clients=((7 + 11 * seed) % 60,)),
            seed=seed,
            engine="serial",
        )
        mixed[outliers] = result.rows[-1]["agreement"]["ari"]
    assert mixed["keep"] < 0.6
    assert mixed["leave_out"] > 0.8


def test_stocfl_leaves_bridges_out_by_default() -> None:
    assert ct.stocfl() == ct.stocfl(outliers="leave_out")


def test_the_planted_groups_are_found_without_their_number() -> None:
    result = ct.run(ct.stocfl(tau=0.3), **OPTIONS | {"rounds": 8})
    seen = result.state.member >= 0
    planted = OPTIONS["data"].planted[seen]
    pairs = {(int(a), int(b)) for a, b in zip(planted, result.state.member[seen], strict=True)}
    assert len(pairs) == 2
    assert result.state.k == 2


def test_no_two_clients_are_merged_above_every_cosine() -> None:
    result = ct.run(ct.stocfl(tau=1.0), **OPTIONS)
    member = result.state.member[result.state.member >= 0]
    assert len(np.unique(member)) == len(member) == result.state.k


def test_one_cluster_without_a_pull_is_fedavg_of_equal_weights() -> None:
    # Clusters are compared when their clients are in the same round, so all are in every round.
    options = OPTIONS | {"clients_per_round": 12}
    ours = ct.run(ct.stocfl(tau=-1, lam=0.0), **options)
    fedavg = ct.run(replace(ct.fedavg(), weigh=evenly), **options)
    assert torch.equal(ours.state.models, fedavg.state.models)


def test_the_global_model_is_that_of_fedavg() -> None:
    """It is trained by all clients of a round, whatever their clusters are."""
    method = ct.stocfl(tau=1.0, lam=0.3)
    ours = ct.run(method, **OPTIONS | {"rounds": 1})
    memory = ours.state.memory.get(SeenClients)
    assert memory is not None
    again = ct.run(ct.stocfl(tau=-1, lam=0.0), **OPTIONS | {"rounds": 1})
    other = again.state.memory.get(SeenClients)
    assert other is not None
    assert torch.equal(memory.omega, other.omega)
    assert not torch.equal(memory.omega, memory.sent)


def test_a_cluster_is_pulled_to_the_global_model_of_the_start_of_the_round() -> None:
    rule = PulledToGlobal(lam=0.5)

    class Training:
        received = torch.tensor([[1.0, 2.0], [5.0, 6.0]])

        def run(self, start: Any, *, anchor: Any, mu: float) -> tuple[Any, float]:
            # One step of rate 1 on lambda/2 |theta - omega|^2 alone.
            return -mu * (start - anchor), 0.25

    trained = rule.train(Training(), {})  # type: ignore[arg-type]
    assert trained.update.tolist() == [2.0, 2.0]
    assert trained.loss == 0.25


def test_the_largest_of_merged_clusters_gives_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """And members, models and rows of the server's optimiser stay together."""
    module = import_module("coterie.algorithms.stocfl")
    rule = module.MergesSampled(0.5, None, "keep")
    state = ct.Groups(
        torch.tensor([[1.0], [2.0], [3.0]]),
        np.array([0, 1, 1, 2, -1, 3]),
        optimiser={"moment": torch.tensor([[10.0], [20.0], [30.0]])},
        start=torch.zeros(1),
    )
    # Client 5 is new: a cluster without a model. It is like 1, which is not like 0.
    psi = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.1, 1.0]])
    memory = SeenClients(torch.tensor([7.0]), torch.tensor([7.0]), psi)
    found = rule._merge(state, memory, 3, np.array([1, 3, 5]))
    # Cluster 0 has no client in the round, so it is not compared with cluster 2, which is like it.
    assert found.models.ravel().tolist() == [1.0, 2.0, 3.0]
    assert found.optimiser["moment"].ravel().tolist() == [10.0, 20.0, 30.0]
    assert found.member.tolist() == [0, 1, 1, 2, -1, 1]
    found = rule._merge(state, memory, 3, np.array([0, 3, 5]))
    assert found.models.ravel().tolist() == [1.0, 2.0, 7.0]
    assert found.member.tolist() == [0, 1, 1, 0, -1, 2]


def test_a_round_without_replies_changes_nothing() -> None:
    """A method with a vector beside the model may ask nobody."""
    from coterie.core.keys import Key
    from coterie.core.vectors import flatten
    from coterie.core.work import Train
    from coterie.local import LocalRunner

    runner = LocalRunner(blobs(), small_net(), ct.Solver())
    engine = OwnModelEngine(SerialEngine(runner))
    work = Train(how=WithOwnModel(PulledToGlobal()))
    models = flatten(small_net()).repeat(2, 1)
    nobody = np.empty(0, np.int64)
    replies = engine.run(work, nobody, models, np.empty((0, 2), np.int64), key=Key(0, round=0))
    assert sum(len(reply.ids) for reply in replies) == 0

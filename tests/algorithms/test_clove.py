"""CLoVE: clusters of loss vectors, and which model each of them trains."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.algorithms.clove import match_to_models
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from tests.conftest import blobs, no_round
from tests.simulations import play_covering


def test_a_model_that_is_best_for_all_goes_to_one_cluster_alone() -> None:
    # Under w_1 every client has the lower loss, so all clients of IFCA would choose it. The first
    # cluster would lose 0.3 + 0.3 more with w_2, the second only 0.1.
    losses = np.array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.4]])
    assert losses.argmin(axis=1).tolist() == [0, 0, 0]
    assert match_to_models(losses, np.array([0, 0, 1])).tolist() == [0, 1]


@given(
    losses=st.lists(
        st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=3, max_size=8
    ).map(np.array)
)
def test_no_other_matching_costs_less(losses: np.ndarray) -> None:
    cluster = np.arange(len(losses)) % 3
    clients = np.arange(len(losses))
    model = match_to_models(losses.astype(np.float64), cluster)
    assert sorted(model.tolist()) == [0, 1, 2]
    cost = losses[clients, model[cluster]].sum()
    for other in permutations(range(3)):
        assert cost <= losses[clients, np.array(other)[cluster]].sum()


def test_one_model_is_fedavg() -> None:
    for a, b in zip(
        play_covering(ct.clove(1), blobs(), 3), play_covering(ct.fedavg(), blobs(), 3), strict=True
    ):
        assert torch.equal(a.groups.models, b.groups.models)


def test_no_two_clusters_train_the_same_model() -> None:
    for state in play_covering(ct.clove(3), blobs(), 3):
        trained = np.unique(state.groups.member[state.groups.member >= 0])
        assert trained.tolist() == [0, 1, 2]


class Told:
    """Clients whose summed losses are known; client 4 says nothing."""

    size = np.array([10.0, 1000.0, 10.0, 1000.0])
    mean = np.array([[0.2, 0.9], [0.3, 0.8], [0.9, 0.2], [0.8, 0.3]])

    def run(self, *asked: Any, key: Key) -> Reply:
        fields = {"loss": self.mean * self.size[:, None], "size": self.size}
        return Reply(0, np.arange(4), fields)


def test_clients_of_few_samples_join_those_whose_mean_losses_are_like_theirs() -> None:
    """Sums would put clients of many samples apart from those of few. Who tells no loss keeps its
    group and does not train."""
    groups = Groups(torch.zeros(2, 1), np.array([1, -1, 0, 1, 1]))
    round = replace(no_round(), cohort=np.arange(5), clients=Told())  # type: ignore[arg-type]
    after, plan = ct.clove(2).assign(groups, round)
    assert (plan.ids.tolist(), plan.row.tolist()) == ([0, 1, 2, 3], [0, 0, 1, 1])
    assert after.member.tolist() == [0, 0, 1, 1, 1]
    assert plan.notes["newcomers"] == 1

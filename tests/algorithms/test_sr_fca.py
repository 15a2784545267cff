"""SR-FCA: distances by losses, correlation clustering, and the two steps of a refinement."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.algorithms.sr_fca import (
    RefinementMemory,
)
from coterie.core.keys import Key
from coterie.data.shifts import SHIFTS
from coterie.math.clustering import pivot_clusters
from coterie.rules.model_distances import group_distances, to_groups
from coterie.rules.weighing import evenly
from tests.conftest import blobs
from tests.simulations import play_covering


@given(
    edges=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    seed=st.integers(0, 20),
)
def test_a_cluster_is_a_client_and_some_of_its_neighbours(
    edges: set[tuple[int, int]], seed: int
) -> None:
    near = np.eye(6, dtype=bool)
    for a, b in edges:
        near[a, b] = near[b, a] = True
    labels = pivot_clusters(near, Key(seed))
    for cluster in range(labels.max() + 1):
        members = np.flatnonzero(labels == cluster)
        assert len(members)
        assert any(near[pivot, members].all() for pivot in members)


def test_distances_by_hand() -> None:
    # Clients 0 and 1 are group 0, client 2 is group 1.
    of_groups = np.array([[0.2, 1.0], [0.4, 1.2], [0.8, 0.1]])
    of_own = np.array([[0.1, 0.3, 0.9], [0.5, 0.1, 1.1], [0.7, 0.9, 0.0]])
    member = np.array([0, 0, 1])
    # Client 0 to group 0: (0.2 + (0.1 + 0.3) / 2) / 2 = 0.2; to group 1: (1.0 + 0.9) / 2 = 0.95.
    # Client 2 to group 0: (0.8 + (0.7 + 0.9) / 2) / 2 = 0.8; to group 1: (0.1 + 0.0) / 2 = 0.05.
    found = to_groups(of_groups, of_own, member)
    np.testing.assert_allclose(found[[0, 2]], [[0.2, 0.95], [0.8, 0.05]])
    # Between them: (loss of w_0 on client 2 + mean loss of w_1 on 0 and 1) / 2 = (0.8 + 1.1) / 2.
    np.testing.assert_allclose(group_distances(of_groups, member)[0, 1], 0.95)


def test_groups_are_merged_where_the_threshold_allows_any_distance() -> None:
    method = ct.sr_fca(threshold=1e6, steps_alone=1, refine_every=1, least=1)
    for state in play_covering(method, blobs(), 3):
        assert state.groups.k == 1


def test_nearly_nobody_is_near_and_small_clusters_are_dissolved() -> None:
    method = ct.sr_fca(threshold=1e-9, steps_alone=1, refinements=1, least=1)
    first = play_covering(method, blobs(), 1)[0]
    assert first.groups.k == len(first.groups.member)
    # No cluster has two clients, so the largest that there are stay.
    method = ct.sr_fca(threshold=1e-9, steps_alone=1, refinements=1, least=2)
    assert play_covering(method, blobs(), 1)[0].groups.k == first.groups.k


def test_refinements_come_after_the_rounds_that_were_asked_for() -> None:
    method = ct.sr_fca(steps_alone=20, refine_every=2, refinements=1, least=1)
    memories = [
        state.groups.memory.get(RefinementMemory) for state in play_covering(method, blobs(), 5)
    ]
    assert [(one.refined, one.rounds) for one in memories if one is not None] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
        (1, 3),
    ]


def test_without_trimming_it_weighs_clients_evenly() -> None:
    method = ct.sr_fca(trim=0.0)
    assert method.weigh is evenly
    average = method.aggregate.combine.average
    points = np.array([[1.0], [2.0], [6.0]])
    np.testing.assert_allclose(average(points, np.array([0.1, 0.2, 0.7])), [3.0])


def test_clients_that_were_not_there_at_the_start_stay_in_groups_that_there_are() -> None:
    """Groups are numbered anew in a refinement, also those of clients who had no part in it."""
    method = ct.sr_fca(threshold=1e-9, steps_alone=1, refine_every=4, refinements=1, least=2)
    late = SHIFTS["arrivals"](round=1, count=4)
    for state in play_covering(method, blobs(), 7, shift=late):
        assert state.groups.member.max() < state.groups.k
    assert (state.groups.member >= 0).all()

"""CORNFLQS: clusters of the server, choices of the clients, and when they agree."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.algorithms.cornflqs import (
    BY_LOSS,
    COORDINATED,
    SETTLED,
    CoordinatesClusters,
    Coordination,
    evenly_at_first,
)
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.math.labellings import numbered_as_before
from coterie.rules.weighing import weighted_mean
from tests.conftest import blobs, no_round
from tests.rules.one_shot_runs import Run


def updates_of(deltas: list[list[float]], row: list[int], size: list[float]) -> Updates:
    n = len(row)
    return Updates(np.arange(n), np.array(row), torch.tensor(deltas), np.array(size), np.zeros(n))


def test_the_server_clusters_solutions_and_averages_each_cluster_by_samples() -> None:
    """Two models at 0 and 10; the second client starts at 10 and ends beside the first."""
    groups = Groups(torch.tensor([[0.0], [10.0]]), np.array([0, 1, 1, -1]))
    groups = groups.remember(Coordination(COORDINATED, np.zeros(4, bool)))
    rule = CoordinatesClusters(groups=2, together=9)
    # Solutions 1, 2 and 12.
    updates = updates_of([[1.0], [-8.0], [2.0]], [0, 1, 1], [10.0, 30.0, 5.0])
    after, counted = rule.recluster(groups, updates, no_round())
    assert after.member.tolist() == [0, 0, 1, -1]
    weights = evenly_at_first(after, counted, no_round())
    moved = groups.models + weighted_mean(weights, counted, groups.models)
    # (10 * 1 + 30 * 2) / 40, and 12.
    np.testing.assert_allclose(moved.ravel(), [1.75, 12.0])


def test_in_the_joint_model_clients_count_the_same() -> None:
    groups = Groups(torch.zeros(1, 1), np.zeros(2, np.int64))
    updates = updates_of([[1.0], [3.0]], [0, 0], [1.0, 99.0])
    assert evenly_at_first(groups, updates, no_round()).tolist() == [[0.5, 0.5]]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2)), min_size=1, max_size=9))
def test_most_clients_keep_the_number_of_their_group(pairs: list[tuple[int, int]]) -> None:
    # Labels of clusters have no gaps.
    cluster = np.unique([one for one, _ in pairs], return_inverse=True)[1]
    before = np.array([had for _, had in pairs])
    found = numbered_as_before(cluster, before, 3)
    assert len(np.unique(found)) == len(np.unique(cluster))
    for number in permutations(range(3)):
        assert (found == before).sum() >= (np.array(number)[cluster] == before).sum()


def stage(run: Run) -> int:
    memory = run.state.memory.get(Coordination)
    assert memory is not None
    return memory.stage


def test_stages_follow_when_all_clients_agree() -> None:
    population = blobs(clients=12, groups=2, size=60, classes=6)
    run = Run(ct.cornflqs(groups=2, together=50), population)
    everyone = list(range(12))
    run.step(everyone)
    assert run.state.k == 1
    seen = []
    moved: list[int] = []
    for _ in range(8):
        notes: Any = run.step(everyone)
        seen.append(stage(run))
        moved.append(notes.get("moved", 0))
    assert seen[0] == COORDINATED
    assert seen[-1] == SETTLED
    assert seen == sorted(seen)
    # All agreed in the round before each stage, so nobody moves there.
    assert moved[seen.index(BY_LOSS)] == 0
    pairs = set(zip(population.planted.tolist(), run.member, strict=True))
    assert len(pairs) == 2


def test_the_server_clusters_for_so_many_rounds_at_most() -> None:
    run = Run(ct.cornflqs(groups=2, together=1), blobs())
    for cohort in ([0, 1, 2], [0, 1, 2, 3]):
        run.step(cohort)
    assert stage(run) == COORDINATED
    run.step([4, 5])
    assert stage(run) >= BY_LOSS


def test_when_groups_are_fixed_only_newcomers_are_sent_all_models() -> None:
    run = Run(ct.cornflqs(groups=2, together=1), blobs(clients=12, groups=2, size=60, classes=6))
    for _ in range(6):
        run.step(list(range(10)))
    assert stage(run) == SETTLED
    before = run.member
    notes = run.step([1, 2, 11])
    assert notes["newcomers"] == 1
    assert run.member[:10] == before[:10]
    assert run.member[11] >= 0

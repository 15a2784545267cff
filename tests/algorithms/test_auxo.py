"""Auxo: rewards, halves, cohorts that split."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

import coterie as ct
from coterie.algorithms.auxo import CohortAffinity, FormsCohorts, halves
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.updates import Updates
from tests.conftest import blobs, no_round
from tests.rules.one_shot_runs import Run


def affinity(groups: Groups) -> CohortAffinity:
    memory = groups.memory.get(CohortAffinity)
    assert memory is not None
    return memory


def updates_of(deltas: list[float], row: list[int]) -> Updates:
    n = len(row)
    delta = torch.tensor(deltas)[:, None]
    return Updates(np.arange(n), np.array(row), delta, np.ones(n), np.zeros(n))


def remembered(reward: list[list[float]], half: NDArray[np.int64], k: int) -> Groups:
    member = np.array(reward).argmax(axis=1)
    groups = Groups(torch.arange(float(k))[:, None], member)
    return groups.remember(CohortAffinity(np.array(reward), half))


def test_rewards_fall_with_the_distance_to_known_members() -> None:
    """Clients 0 and 1 are known members of cohort 0, the others have trained with it, too."""
    reward = [[2.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    groups = remembered(reward, np.zeros((5, 2), np.int64), k=2)
    rule = FormsCohorts(share=0.9, participants=99, reward=5.0)
    after, _ = rule.recluster(groups, updates_of([0.0, 0.0, 0.0, 2.0, 8.0], [0] * 5), no_round())
    # Distances to the members' mean: 0, 0, 0, 2, 8; their mean is 2, and their standard deviation
    # sqrt(68 / 5 - 4) = 3.0984. Two of five are known: (5 - 5 d / 5.0984) * 0.4.
    expected = [4.0, 4.0, 3.0, 1 + 2 - 2 * 0.392281, 1 + 2 - 8 * 0.392281]
    np.testing.assert_allclose(affinity(after).reward[:, 0], expected, rtol=1e-5)
    # The last one lost its place: the other cohort, which knows nothing of it, has the higher reward.
    assert after.member.tolist() == [0, 0, 0, 0, 1]


def test_a_cohort_splits_into_its_halves() -> None:
    half = np.array([[-1], [-1], [1], [1], [0]])
    groups = remembered([[1.0]] * 5, half, k=1)
    rule = FormsCohorts(share=0.3, participants=0, reward=5.0)
    # Too few updates to see a centre, so that nothing but the split happens.
    after, counted = rule.recluster(groups, updates_of([1.0, 1.0, 7.0], [0, 0, 0]), no_round())
    assert after.k == 2
    assert affinity(after).reward.tolist() == [[2, 1], [2, 1], [1, 2], [1, 2], [1, 1]]
    assert not affinity(after).half.any()
    # The new model is made of the updates of its own clients.
    assert counted.row.tolist() == [0, 0, 1]
    unsplit, _ = FormsCohorts(0.5, 0, 5.0).recluster(groups, updates_of([1.0], [0]), no_round())
    assert unsplit.k == 1


def test_where_one_half_is_known_only_the_nearest_join_it() -> None:
    direction = torch.tensor([[0.0], [0.1], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])
    found = halves(direction, np.array([1, 0, 0, 0, 0, 0, 0, 0]), Key(0))
    assert found.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_cohorts_of_planted_groups_have_mostly_clients_of_one() -> None:
    population = blobs(clients=24, groups=2, size=60, classes=6)
    run = Run(ct.auxo(share=0.2, participants=4), population)
    for number in range(8):
        run.step([(5 * number + 3 * place) % 24 for place in range(12)])
    assert run.state.k > 1
    member = np.array(run.member)
    largest = [np.bincount(population.planted[member == j]).max() for j in np.unique(member)]
    assert sum(largest) >= 0.8 * 24

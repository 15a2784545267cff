"""FedDrift: how far models are apart, who has drifted, and which models stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import coterie as ct
from coterie.algorithms.feddrift import (
    NEVER,
    DriftIntoNewModels,
    DriftWatch,
)
from coterie.core.groups import Groups
from coterie.data.shifts import SHIFTS
from coterie.rules.model_distances import losses_between, model_distances
from coterie.runs.loop import RoundResult
from tests.conftest import blobs
from tests.simulations import play_covering


def turning(rounds: int = 9, **options: Any) -> list[RoundResult]:
    """A run in which the labels of four of twelve like clients turn in round 6."""
    turn = SHIFTS["rotate_labels"](round=6, count=4, by=1)
    method = ct.feddrift(delta=0.2, **options)
    return play_covering(method, blobs(groups=1), rounds, shift=turn)


def test_distances_by_hand() -> None:
    # Clients 0 and 1, of 10 and 30 samples, have model 0, and client 2 has model 1.
    loss = np.array([[0.2, 0.8], [0.4, 1.6], [0.9, 0.1]])
    between = losses_between(loss, np.array([10, 30, 5]), np.array([0, 0, 1]))
    # Model 0 on its own data: (10 * 0.2 + 30 * 0.4) / 40 = 0.35; model 1 there: (8 + 48) / 40 = 1.4.
    np.testing.assert_allclose(between, [[0.35, 0.9], [1.4, 0.1]])
    # max(0.9 - 0.1, 1.4 - 0.35, 0) = 1.05.
    np.testing.assert_allclose(model_distances(between), [[0, 1.05], [1.05, 0]])


def test_a_model_that_does_better_on_the_data_of_another_is_not_far() -> None:
    assert model_distances(np.array([[0.5, 0.1], [0.3, 0.2]])).tolist() == [[0, 0], [0, 0]]


def test_who_drifts_trains_alone_until_the_next_time_step() -> None:
    *_, before, opened, _, merged = turning(every=2)[:9]
    truth = blobs(groups=1)
    changed = [
        i
        for i, rows in enumerate(truth.train)
        if (opened.snapshot.population.labels[rows] != truth.labels[rows]).any()
    ]
    assert len(changed) == 4
    assert before.groups.k == 1
    # Each of them has a model of its own, and then all of them one.
    models = opened.groups.member[changed]
    assert sorted(models) == [1, 2, 3, 4]
    assert (np.delete(opened.groups.member, changed) == 0).all()
    assert merged.groups.member.tolist() == [int(i in changed) for i in range(12)]
    assert merged.groups.k == 2
    assert (opened.row["drifted"], opened.row["missed"]) == (4, 0)


def test_drift_is_looked_for_once_a_time_step() -> None:
    assert [r.round for r in turning(every=4) if r.row["drifted"]] == [8]


def test_any_models_are_merged_where_any_distance_is_allowed() -> None:
    assert [r.groups.k for r in turning(every=1, merge=1e6)] == [1] * 6 + [5, 1, 5]


def test_there_are_never_more_models_than_allowed() -> None:
    last = turning(every=1, most=3)
    assert [r.groups.k for r in last[5:7]] == [1, 3]
    # For two of the four there was no room.
    assert np.bincount(last[6].groups.member).tolist() == [10, 1, 1]


def test_clients_that_start_alone_are_merged_when_they_do_alike() -> None:
    results = play_covering(ct.feddrift(every=6, delta=0.5, start="alone"), blobs(), 7)
    first, *_, last = results
    assert first.groups.member.tolist() == list(range(12))
    # Every model began as the same.
    untrained = np.setdiff1d(np.arange(12), np.flatnonzero(first.groups.trained))
    assert (first.groups.models[untrained] == first.groups.first_model).all()
    planted = blobs().planted
    assert planted is not None
    for group in np.unique(last.groups.member):
        assert len(set(planted[last.groups.member == group])) == 1
    assert last.groups.k < 12


def test_models_without_clients_go_when_room_is_wanted() -> None:
    rule = DriftIntoNewModels(every=1, delta=0.1, merge=0.1, most=4, start="together")
    # Model 1 was left in round 3 and model 3 in round 2; only its own client ever had model 2.
    watch = DriftWatch(torch.zeros(3), np.zeros(4, np.int64), np.array([5, 3, NEVER, 2]))
    groups = Groups(torch.arange(4.0)[:, None], np.array([0, 0, -1])).remember(watch)
    for wanted, left in ((0, [0, 1, 3]), (1, [0, 1, 3]), (2, [0, 1]), (3, [0]), (9, [0])):
        assert rule._make_room(groups, wanted).models.ravel().tolist() == left


def test_a_newcomer_chooses_among_shared_models() -> None:
    *_, last = play_covering(
        ct.feddrift(every=4, start="alone"),
        blobs(),
        6,
        shift=SHIFTS["arrivals"](round=5, count=3),
    )
    assert (last.groups.member >= 0).sum() > 9
    assert last.groups.member.max() < last.groups.k

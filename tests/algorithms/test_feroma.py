"""Feroma: shares by the distance of profiles, a model per client, and clients without labels."""

from __future__ import annotations

import numpy as np
import torch

import coterie as ct
from coterie.algorithms.feroma import MapsProfiles, Profiles, shares_by_distance
from coterie.core.describe import Describe
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.local.statistics import LatentMoments
from coterie.models import build_model
from coterie.rules.newcomers import unlabelled_rule
from tests.conftest import blobs, two_classes_each
from tests.refusals import refuses
from tests.rules.one_shot_runs import Run


def test_shares_are_samples_over_distances() -> None:
    distance = np.array([[1.0, 2.0, 4.0], [3.0, 1.0, 1.0]])
    size = np.array([10.0, 20.0, 40.0])
    # 10/1, 20/2, 40/4; and 10/3, 20/1, 40/1.
    expected = np.array([[1 / 3] * 3, [10 / 190, 60 / 190, 120 / 190]])
    np.testing.assert_allclose(shares_by_distance(distance, size, 1.0), expected, rtol=1e-7)
    squared = shares_by_distance(distance, size, 2.0)
    np.testing.assert_allclose(squared[0], np.array([10, 5, 2.5]) / 17.5, rtol=1e-7)


def test_a_profile_that_is_the_same_takes_all_and_high_powers_stay_numbers() -> None:
    for power in (1.0, 4.0, 50.0):
        share = shares_by_distance(np.array([[0.0, 1.0]]), np.array([5.0, 5.0]), power)
        np.testing.assert_allclose(share, [[1.0, 0.0]], atol=1e-7)


def test_the_start_is_the_mix_of_models_by_the_profiles_they_were_trained_on() -> None:
    """One step by hand: two models of stored profiles, one client that replies with a third."""
    run = Run(ct.feroma(warmup_rounds=0, draws=0), two_classes_each())
    run.step([0, 1, 2])
    memory = run.state.memory.get(Profiles)
    assert memory is not None
    before = run.state.models.clone()
    notes = run.step([3])
    after = run.state.memory.get(Profiles)
    assert after is not None
    # Blocks are scaled by what they span over the stored profiles.
    low = memory.profile.double().amin(dim=(0, 2))[:, None]
    span = memory.profile.double().amax(dim=(0, 2))[:, None] - low
    span[span == 0] = 1.0
    points = ((memory.profile.double() - low) / span).flatten(1)
    point = ((after.profile[3].double() - low) / span).flatten()
    weight = memory.size / (point - points).norm(dim=1).numpy()
    share = weight / weight.sum()
    plan = notes["plan"]
    np.testing.assert_allclose(plan.mixtures, [[*share, 0.0]], rtol=1e-6)
    start = torch.from_numpy(share).float() @ before
    np.testing.assert_allclose(plan.start_models(run.state.models)[4], start, rtol=1e-4, atol=1e-6)
    # What it trained is its model; those of the others stay.
    assert run.member[3] == 3
    assert torch.equal(run.state.models[:3], before)


def test_a_client_replaces_its_own_model_and_keeps_its_number() -> None:
    run = Run(ct.feroma(warmup_rounds=1), two_classes_each())
    run.step([0, 1])
    assert run.state.k == 1
    run.step([4, 6])
    assert run.state.k == 2
    assert [run.member[client] for client in (0, 4, 6)] == [-1, 0, 1]
    first = run.state.models.clone()
    notes = run.step([4, 7])
    assert notes["newcomers"] == 1
    assert [run.member[client] for client in (4, 6, 7)] == [0, 1, 2]
    assert not torch.equal(run.state.models[0], first[0])
    assert torch.equal(run.state.models[1], first[1])


def test_random_halves_differ_by_round_and_by_client_and_not_by_engine() -> None:
    population = blobs()
    net = build_model("mlp", (6,), population.classes, Key(0), hidden=5)
    vector = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
    work = Describe("latent", population.classes, vectors=2, draws=3)

    def told(key: Key, ids: list[int], asked: Describe = work) -> np.ndarray:
        which = np.zeros(len(ids), np.int64)
        found: np.ndarray = LatentMoments(asked, net, key).of_clients(
            population, np.array(ids), vector, which
        )
        return found

    key = Key(5, round=3)
    # A client's halves do not depend on whom else the engine asks.
    assert np.array_equal(told(key, [1, 4])[1], told(key, [4])[0])
    assert not np.allclose(told(key, [4]), told(Key(5, round=4), [4]))
    whole = told(key, [4], Describe("latent", population.classes, vectors=2))
    # The mean of three random halves is near that of all samples, and not the same.
    gap = np.abs(told(key, [4])[0, 0] - whole[0, 0]).max()
    assert 0 < gap < np.abs(whole[0, 1]).max()


def test_a_client_without_labels_is_served_the_model_with_the_nearest_moments() -> None:
    profile = torch.tensor([[[0.0], [1.0], [9.0]], [[4.0], [3.0], [2.0]], [[8.0], [5.0], [0.0]]])
    groups = Groups(torch.zeros(3, 1), np.arange(3))
    groups = groups.remember(Profiles(torch.zeros(1), profile, np.ones(3)))
    rule = unlabelled_rule(ct.feroma().assign)
    assert isinstance(rule, MapsProfiles)
    asked = rule.ask_unlabelled(groups)
    assert asked is not None
    assert asked[0] == Describe("latent", vectors=1, labelled=False)
    # Its mean is nearest to that of the last client, its spread to that of the second.
    rows = torch.tensor([[[7.0], [4.6]], [[1.5], [1.2]]])
    assert rule.place_unlabelled(groups, rows).tolist() == [2, 0]
    assert rule.ask_unlabelled(Groups(torch.zeros(1, 1), np.zeros(3, np.int64))) is None


def test_a_power_of_nothing_is_refused() -> None:
    with refuses(ct.ConfigError, "out-of-range", "power"):
        ct.feroma(power=0)

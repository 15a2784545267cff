"""FLUX: descriptors of clients' data, their clusters, and newcomers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN
from torch import nn

import coterie as ct
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.errors import ConfigError
from coterie.local.statistics import LatentMoments, latent_layer, moments, projection
from coterie.math.clustering import agglomerate
from coterie.math.cuts import adaptive_radius, knee
from coterie.models import build_model
from coterie.rules.descriptors import centroid_distances, scaled
from coterie.rules.signatures import SignatureMemory
from tests.conftest import two_classes_each
from tests.refusals import refuses
from tests.rules.one_shot_runs import Run, signatures


def test_moments_of_all_samples_and_of_each_class() -> None:
    points = np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 6.0], [7.0, 6.0], [9.0, 3.0]])
    labels = np.array([0, 0, 2, 2, 1])
    found = moments(points, labels, 3)
    expected = [
        [5.0, 3.0],  # the mean of all
        [8**0.5, 7.2**0.5],  # their standard deviation
        [2.0, 0.0],
        [-1.0, -1.0],  # class 1 has one sample, which has no spread
        [6.0, 6.0],
        [1.0, 0.0],
        [-1.0, -1.0],
        [1.0, 0.0],
    ]
    np.testing.assert_allclose(found, expected)
    # Without labels: the two blocks of all samples.
    np.testing.assert_allclose(moments(points, labels, 0), expected[:2])


def test_blocks_are_scaled_by_what_they_span_over_clients_and_directions() -> None:
    reference = torch.tensor([[[1.0, 3.0], [0.0, 8.0]], [[5.0, 2.0], [4.0, 2.0]]])
    assert scaled(reference, reference).tolist() == [[0.0, 0.5, 0.0, 1.0], [1.0, 0.25, 0.5, 0.25]]
    # Of fewer blocks, each is scaled as in the reference.
    assert scaled(torch.tensor([[[9.0, 3.0]]]), reference).tolist() == [[2.0, 0.5]]


@given(st.lists(st.integers(0, 60), min_size=2, max_size=30), st.integers(1, 12))
def test_single_linkage_at_the_radius_is_dbscan_of_pairs(at: list[int], radius: int) -> None:
    distance = np.abs(np.subtract.outer(at, at)).astype(float)
    theirs = DBSCAN(eps=radius, min_samples=2, metric="precomputed").fit_predict(distance)
    # FLUX's code makes a cluster of each point that DBSCAN calls noise.
    alone = np.flatnonzero(theirs < 0)
    theirs[alone] = len(at) + alone
    ours = agglomerate(distance, "single", float(radius)).labels
    same = ours[:, None] == ours
    assert (same == (theirs[:, None] == theirs)).all()


def test_the_knee_is_the_first_steep_rise_from_the_right() -> None:
    # Scaled: x - y is greatest at 3, where y has risen by 0.1 of 8.
    assert knee(np.array([1.0, 1.1, 1.2, 1.3, 5.0, 9.0])) == 3
    assert knee(np.array([2.0, 2.0, 2.0])) == 2  # no knee: the last
    at = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.25, 9.0])
    # Nearest neighbours at 0.1, 0.1, 0.1, 0.1, 0.1, 0.15 and 3.75.
    assert adaptive_radius(np.abs(np.subtract.outer(at, at))) == pytest.approx(0.15)


def test_the_latent_space_is_behind_the_convolutions_or_before_the_last_layer() -> None:
    mlp = build_model("mlp", (6,), 3, Key(0), hidden=5)
    assert latent_layer(mlp).in_features == 5
    lenet = build_model("lenet5", (1, 28, 28), 10, Key(0))
    dense = [layer for layer in lenet.modules() if isinstance(layer, nn.Linear)]
    assert latent_layer(lenet) is dense[0]
    with refuses(ConfigError, "does-not-fit", "model.name"):
        latent_layer(nn.Sequential(nn.Conv2d(1, 2, 3)))


def test_the_descriptor_is_made_of_the_hidden_layer_in_directions_of_the_seed() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    vector = torch.cat([p.detach().flatten() for p in net.parameters()])
    x = torch.randn(7, 4, generator=Key(1).torch())
    y = torch.tensor([0, 0, 1, 1, 1, 0, 1])
    found = LatentMoments(Describe("latent", 2, vectors=2), net, Key(5)).of(vector, x, y)
    hidden = net[:2](x).detach().double().numpy()
    np.testing.assert_allclose(found, moments(hidden @ projection(3, 2, Key(5)), y.numpy(), 2))
    # Two clients, and a request of another round, have the same directions.
    assert (projection(3, 2, Key(5)) == projection(3, 2, Key(5, "other", 9))).all()
    assert not np.allclose(projection(3, 2, Key(5)), projection(3, 2, Key(6)))
    # Orthonormal, and zero where the space has no more.
    gram = projection(3, 5, Key(5)).T @ projection(3, 5, Key(5))
    np.testing.assert_allclose(gram, np.diag([1.0, 1.0, 1.0, 0.0, 0.0]), atol=1e-12)


def test_a_newcomer_is_compared_with_the_mean_descriptor_of_each_group() -> None:
    kept = torch.tensor([[[0.0], [9.0]], [[4.0], [1.0]], [[10.0], [5.0]], [[0.0], [0.0]]])
    memory = SignatureMemory(
        torch.zeros(1), kept, np.array([0, 0, 2, -1]), 1.0, np.empty((0, 4)), np.arange(3)
    )
    # Scaled by 0..10 and 1..9; the mean of group 0 is (0.2, 0.5), that of group 2 (1, 0.5).
    whole = centroid_distances(memory, 3, torch.tensor([[[2.0], [9.0]]]))
    np.testing.assert_allclose(whole, [[0.5, np.inf, (0.8**2 + 0.5**2) ** 0.5]])
    first = centroid_distances(memory, 3, torch.tensor([[[7.0]]]))
    np.testing.assert_allclose(first, [[0.5, np.inf, 0.3]], atol=1e-9)


def test_clients_are_described_once_and_newcomers_join_without_opening_a_group() -> None:
    run = Run(ct.flux(warmup_rounds=1), two_classes_each())
    able = list(range(11))
    run.step([0, 1, 2, 3], able)
    assert run.state.k == 1
    notes = run.step([0, 4, 8], able)
    down, up = (b for b in run.clients.ledger.blocks if b.what == "signatures")
    groups = run.state.k
    assert notes["cold_start"] == 11
    assert groups > 1
    assert run.member[11] == -1
    before = signatures(run)
    run.step([11])
    assert run.state.k == groups
    # Clients with odd numbers hold the same classes.
    alike = [run.member[client] for client in (1, 3, 5, 7, 9)]
    assert run.member[11] in alike
    assert torch.equal(signatures(run).signature, before.signature)
    assert down.bytes.tolist() == [4 * len(run.w0)] * 11
    # Moments of all and of 4 classes in 4 directions, and the number of samples.
    classes = run.clients.classes
    assert up.bytes.tolist() == [4 * (2 + 2 * classes) * classes + 4] * 11


def test_a_number_of_groups_in_place_of_a_radius() -> None:
    run = Run(ct.flux(warmup_rounds=0, groups=3), two_classes_each())
    run.step([0, 1, 2])
    assert sorted(set(run.member)) == [0, 1, 2]

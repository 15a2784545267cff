"""CFL-GP: means of updates, their leading directions, and numbers that clusters keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import coterie as ct
from coterie.algorithms.cfl_gp import GradientFeatures, leading_coordinates
from tests.conftest import blobs
from tests.simulations import play_covering


def test_leading_coordinates_are_the_projections_on_singular_directions() -> None:
    feature = torch.randn(7, 20, generator=torch.Generator().manual_seed(1))
    _, _, directions = np.linalg.svd(feature.numpy().astype(np.float64), full_matrices=False)
    expected = feature.numpy() @ directions[:3].T
    found = leading_coordinates(feature, 3)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-5)


def test_as_many_coordinates_as_clients_keep_all_distances() -> None:
    feature = torch.tensor([[1.0, 2.0, 2.0], [1.0, 2.0, 2.0], [4.0, 2.0, -2.0]])
    found = leading_coordinates(feature, 3)
    assert round(float(np.linalg.norm(found[0] - found[1])), 5) == 0
    assert round(float(np.linalg.norm(found[0] - found[2])), 5) == 5


def test_features_are_the_mean_of_all_updates() -> None:
    states = play_covering(ct.cfl_gp(2, every=1, partitions=2), blobs(), 3)
    memories = [state.groups.memory.get(GradientFeatures) for state in states]
    first, second, third = (memory for memory in memories if memory is not None)
    assert first.times.tolist() == [1] * 12
    assert second.times.tolist() == [2] * 12
    # There are two clusterings, so the third round asks nobody.
    assert torch.equal(second.feature, third.feature)
    assert third.partitions == 2
    latest = 2 * second.feature - first.feature
    # What is not the mean of both is told apart: the two updates differ.
    assert not torch.allclose(latest, first.feature)
    alone = play_covering(ct.cfl_gp(2, every=1, partitions=1), blobs(), 1)[-1]
    memory = alone.groups.memory.get(GradientFeatures)
    assert memory is not None
    assert torch.equal(memory.feature, first.feature)


def test_clients_are_clustered_in_the_first_round_and_then_every_so_often() -> None:
    options: dict[str, Any] = {
        "data": blobs(size=60, classes=6),
        "model": "mclr",
        "local": ct.Solver(epochs=2, batch_size=5, lr=0.1),
        "rounds": 5,
        "clients_per_round": 6,
        "engine": "serial",
        "seed": 1,
    }
    result = ct.run(ct.cfl_gp(2, every=2, partitions=2), **options)
    moved = [row["transfers"]["models"] - 2 * 6 for row in result.rows]
    # The twelve clients send an update in the rounds 0 and 2. Who trains the first model in the same
    # round, too, is sent it once.
    assert [12 < count <= 24 for count in moved] == [True, False, True, False, False]
    assert [moved[1], moved[3], moved[4]] == [0, 0, 0]
    pairs = set(zip(options["data"].planted.tolist(), result.state.member.tolist(), strict=True))
    assert len(pairs) == 2

"""IDA: the golden weights, a loop by hand, and its two factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms.ida import AccuracyMemory, InverseDistance, KnowingAccuracy
from coterie.clients.clients import Clients, ModelShape
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.core.work import Score
from coterie.methods.method import Clustered
from coterie.rules.assigning import everyone
from coterie.rules.weighing import evenly
from tests.conftest import blobs, no_round, remembered, round_of, small_net

POINTS = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])


def groups_of(k: int = 1) -> Groups:
    return Groups(torch.zeros(k, 2), np.zeros(9, np.int64))


def updates_of(
    delta: torch.Tensor, row: list[int] | None = None, size: list[float] | None = None
) -> Updates:
    n = len(delta)
    return Updates(
        np.arange(n), np.array(row or [0] * n), delta, np.array(size or [1.0] * n), np.zeros(n)
    )


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_golden_weights(norm: str) -> None:
    weights = InverseDistance(norm).weigh(groups_of(), updates_of(POINTS))  # type: ignore[arg-type]
    np.testing.assert_allclose(weights, [[0.272727, 0.545455, 0.181818]], atol=1e-6)


def test_the_norms_differ_where_directions_do() -> None:
    delta = torch.tensor([[0.0, 3.0], [2.0, 2.0], [-2.0, 1.0]])
    for norm, p in (("l1", 1), ("l2", 2)):
        centre = delta.numpy().mean(axis=0)
        inverse = [
            1 / (float((np.abs(centre - d) ** p).sum() ** (1 / p)) + 1e-6) for d in delta.numpy()
        ]
        weights = InverseDistance(norm).weigh(groups_of(), updates_of(delta))  # type: ignore[arg-type]
        np.testing.assert_allclose(weights[0], np.array(inverse) / sum(inverse), rtol=1e-6)


def test_each_group_has_its_own_mean() -> None:
    delta = torch.cat([POINTS, POINTS * 7 + 3])
    weights = InverseDistance().weigh(groups_of(3), updates_of(delta, [0, 0, 0, 2, 2, 2]))
    np.testing.assert_allclose(weights[0, :3], [3 / 11, 6 / 11, 2 / 11], atol=1e-6)
    np.testing.assert_allclose(weights[2, 3:], [3 / 11, 6 / 11, 2 / 11], atol=1e-6)
    assert not weights[1].any()
    assert not weights[0, 3:].any()


def test_alike_clients_count_alike() -> None:
    for delta in (
        torch.ones(4, 2),
        torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]),
    ):
        groups = groups_of()
        updates = updates_of(delta)
        alike = InverseDistance().weigh(groups, updates)
        np.testing.assert_allclose(alike, evenly(groups, updates, no_round()))


def test_sizes_and_accuracies_are_factors() -> None:
    groups = groups_of().remember(AccuracyMemory(np.array([0.5, 1.0, 0.25, *[1.0] * 6])))
    sized = InverseDistance(by_size=True).weigh(groups, updates_of(POINTS, size=[2.0, 1.0, 3.0]))
    np.testing.assert_allclose(sized, [[6 / 18, 6 / 18, 6 / 18]], atol=1e-6)
    accurate = InverseDistance(intrac=True).weigh(groups, updates_of(POINTS))
    np.testing.assert_allclose(accurate, [[6 / 20, 6 / 20, 8 / 20]], atol=1e-6)


def test_what_clients_report_of_their_accuracy_is_bounded() -> None:
    """Right predictions are untrusted: of four samples none counts as 1/C, and fewer than none or
    more than all are refused, so that the client counts as one that did not answer."""

    class Liars:
        def run(self, work, ids, models, which, *, key):  # type: ignore[no-untyped-def]
            assert work == Score("train", loss=False)
            correct = np.array([[0.0], [9.0], [-5.0], [2.0]])
            fields = {"correct": correct, "size": np.full(4, 4.0)}
            return [Reply(key.round, np.array([0, 2, 3, 5]), fields, key.purpose)]

    clients = Clients(Liars(), shape=ModelShape(4))  # type: ignore[arg-type]
    groups, plan = KnowingAccuracy(everyone)(
        groups_of(), round_of(clients, [0, 2, 3, 5], ct.Key(0))
    )
    assert remembered(groups, AccuracyMemory).accuracy.tolist() == [0.25, 1, 1, 1, 1, 0.5, 1, 1, 1]
    assert clients.ledger.refused == {"correct": 2}
    assert plan.ids.tolist() == [0, 2, 3, 5]


@pytest.mark.parametrize("options", [{}, {"norm": "l2"}, {"intrac": True, "by_size": True}])
def test_it_runs_and_weighs_an_outlier_down(options: dict[str, bool]) -> None:
    result = ct.run(ct.ida(**options), data=blobs(), model=small_net(), rounds=3, engine="serial")
    assert result.accuracy[-1] > 0.2
    far = torch.cat([torch.ones(5, 2) + torch.rand(5, 2) / 10, torch.full((1, 2), 50.0)])
    method = ct.ida(**options)
    assert isinstance(Clustered(method).method.weigh, InverseDistance)
    assert method.weigh(groups_of(), updates_of(far), no_round())[0, 5] < 1 / 24

"""The samples that clients are scored on: shared ones, exact losses, and how many are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Score
from coterie.data.lazy import lazy_columns
from coterie.data.population import Split
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.local.scoring.kept import KeptScores
from tests.lazy_federations import SOLVER, federation, make_two_samples, score


def test_clients_that_share_made_samples_are_scored() -> None:
    x, y = lazy_columns(make_two_samples, np.array([0, 2, 4]), (4,))
    shared = (np.array([1, 3]),) * 2
    made = ct.Population(x, y, (np.array([0]), np.array([2])), shared, 2, ("a", "b"))
    rows = torch.arange(4)
    whole = ct.Population(x[rows], y[rows], made.train, shared, 2, ("a", "b"))
    net = nn.Sequential(nn.Linear(4, 2))
    found, expected = (
        score(SerialEngine(LocalRunner(data, net, SOLVER)), data, net) for data in (made, whole)
    )
    assert {name: values.tolist() for name, values in found.items()} == {
        n: v.tolist() for n, v in expected.items()
    }


@pytest.mark.parametrize("hidden", [nn.ReLU(), nn.Tanh()])
def test_what_did_not_change_is_not_scored_again(
    hidden: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compiled code and by the network itself."""
    net = nn.Sequential(nn.Linear(60, 5), hidden, nn.Linear(5, 10))
    data = federation(12, lazy=False)
    runner = LocalRunner(data, net, SOLVER)
    scored = []
    keep = KeptScores.keep

    def counted(self: KeptScores, vector: Tensor, ids: IntArray, *rest: Any) -> Any:
        # What is scored is handed over to be kept, and nothing else is.
        scored.append(ids.tolist())
        return keep(self, vector, ids, *rest)

    monkeypatch.setattr(KeptScores, "keep", counted)
    ids = np.arange(12)
    which = ids % 2
    even, odd = ids[::2].tolist(), ids[1::2].tolist()
    models = torch.stack([flatten(net), 2 * flatten(net)])

    def answer(work: Score, models: Tensor) -> dict[str, Any]:
        fields = runner.answer(work, ids, models, which, Key(1)).fields
        return {name: values.tolist() for name, values in fields.items()}

    first = answer(Score("test"), models)
    assert answer(Score("test"), models.clone()) == first
    assert scored == [even, odd]
    # One model moved, in the memory where it was.
    models[1] += 0.5
    moved = answer(Score("test"), models)
    assert scored == [even, odd, odd]
    assert moved["loss"][::2] == first["loss"][::2]
    assert moved["loss"][1] != first["loss"][1]
    assert moved == answer(Score("test"), models)
    # Another question, other samples, and samples that changed hands.
    answer(Score("test", loss=False), models)
    answer(Score("train"), models)
    swapped = data.with_parts(data.train, data.test[::-1])
    runner.set_population(swapped)
    found = answer(Score("test"), models)
    assert scored[3:] == [even, odd] * 3
    fresh = LocalRunner(swapped, net, SOLVER).answer(Score("test"), ids, models, which, Key(1))
    assert found["loss"] == fresh.fields["loss"].tolist()


def test_kept_scores_have_a_bound() -> None:
    kept = KeptScores(most=100)
    work = Score("test")
    for client in range(5):
        kept.keep(torch.full((8,), 1.0), np.array([client]), work, {"correct": np.zeros(1)})
    found = [kept.find(torch.ones(8), np.array([client]), work) for client in range(5)]
    # A model of 32 bytes and scores of 8: two of them fit.
    assert [known is not None for known in found] == [False, False, False, True, True]


def test_a_loss_has_the_same_bits_whoever_is_scored_beside() -> None:
    data = federation(30, lazy=True)
    net = nn.Sequential(nn.Linear(60, 10))
    with torch.no_grad():
        net[0].weight.mul_(50)  # losses of very different sizes
    runner = LocalRunner(data, net, SOLVER)
    models = flatten(net)[None]
    together = runner.answer(
        Score("test"), np.arange(30), models, np.zeros(30, np.int64), Key(1)
    ).fields["loss"]
    for i in range(30):
        alone = runner.answer(
            Score("test"), np.array([i]), models, np.zeros(1, np.int64), Key(1)
        ).fields["loss"]
        assert alone[0] == together[i]


def test_scored_samples_that_were_made_are_kept_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.local.scoring.samples.KEEP", 4 * 60 * 300)
    data = federation(60, lazy=True)
    runner = LocalRunner(data, torch.nn.Linear(60, 10), SOLVER)
    each = data.sizes("test").reshape(10, 6).sum(axis=1)
    for at in range(10):
        rows_of = runner.scorer.rows
        rows_of.gathered(np.arange(6 * at, 6 * at + 6), "test")
        assert sum(len(rows.y) for rows in rows_of.kept["test"].values()) <= max(300, each[at])


@pytest.mark.parametrize("split", ["test", "train"])
def test_clients_with_a_model_each_have_the_bits_of_one_scored_alone(split: Split) -> None:
    data = federation(12, lazy=False)
    net = nn.Sequential(nn.Linear(60, 5), nn.ReLU(), nn.Linear(5, 10))
    models = torch.stack([(1 + 0.1 * j) * flatten(net) for j in range(12)])
    ids = np.arange(12)
    # Two models for each client, of which no two clients have the same.
    which = np.stack([ids, ids[::-1]], axis=1)
    together = LocalRunner(data, net, SOLVER).answer(Score(split), ids, models, which, Key(1))
    for client in range(12):
        alone = LocalRunner(data, net, SOLVER).answer(
            Score(split), ids[client : client + 1], models, which[client : client + 1], Key(1)
        )
        for name, values in together.fields.items():
            assert values[client].tolist() == alone.fields[name][0].tolist()

"""The samples that clients are scored on: shared ones, exact losses, and how many are kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Evaluate
from coterie.data.lazy import lazy_columns
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
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


def test_a_loss_has_the_same_bits_whoever_is_scored_beside() -> None:
    data = federation(30, lazy=True)
    net = nn.Sequential(nn.Linear(60, 10))
    with torch.no_grad():
        net[0].weight.mul_(50)  # losses of very different sizes
    runner = LocalRunner(data, net, SOLVER)
    models = flatten(net)[None]
    together = runner.answer(
        Evaluate("test"), np.arange(30), models, np.zeros(30, np.int64), Key(1)
    ).fields["loss"]
    for i in range(30):
        alone = runner.answer(
            Evaluate("test"), np.array([i]), models, np.zeros(1, np.int64), Key(1)
        ).fields["loss"]
        assert alone[0] == together[i]


def test_scored_samples_that_were_made_are_kept_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.local.scored_rows.KEEP", 4 * 60 * 300)
    data = federation(60, lazy=True)
    runner = LocalRunner(data, torch.nn.Linear(60, 10), SOLVER)
    each = data.sizes("test").reshape(10, 6).sum(axis=1)
    for at in range(10):
        rows_of = runner.scorer.rows
        rows_of.gathered(np.arange(6 * at, 6 * at + 6), "test")
        assert sum(len(rows.y) for rows in rows_of.kept["test"].values()) <= max(300, each[at])

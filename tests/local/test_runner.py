"""Scores and descriptions of many clients in one pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Score
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)


@pytest.mark.parametrize("shared", [False, True])
def test_evaluation_in_one_pass_equals_one_client_at_a_time(shared: bool) -> None:
    population = blobs()
    net = small_net()
    if shared:  # each client is also tested on what its neighbour holds, out of order
        test = [
            np.concatenate([population.test[(i + 1) % 12], population.test[i]]) for i in range(12)
        ]
        population = population.with_parts(population.train, tuple(test))
    models = torch.stack([flatten(net), -flatten(net), torch.zeros(len(flatten(net)))])
    which = np.stack([np.arange(12) % 3, (np.arange(12) + 1) % 3], axis=1)
    runner = LocalRunner(population, net, SOLVER)
    reply = runner.answer(Score("test"), np.arange(12), models, which, Key(0))
    for i in range(12):
        x = population.x[population.test[i]]
        y = population.y[population.test[i]]
        for column in (0, 1):
            torch.nn.utils.vector_to_parameters(models[which[i, column]], net.parameters())
            with torch.no_grad():
                logits = net(x)
            assert reply.fields["correct"][i, column] == int((logits.argmax(1) == y).sum())
            loss = nn.functional.cross_entropy(logits, y, reduction="sum").item()
            assert reply.fields["loss"][i, column] == pytest.approx(loss, rel=1e-4)


def test_describe_tells_the_label_histogram() -> None:
    population = blobs()
    net = small_net()
    reply = LocalRunner(population, net, SOLVER).answer(
        Describe("histogram", 4), np.array([2, 5]), flatten(net)[None], np.zeros(2, int), Key(0)
    )
    assert np.array_equal(reply.fields["histogram"], population.histograms()[[2, 5]])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("compiled", [True, False])
def test_samples_are_won_by_the_model_of_least_loss(shared: bool, compiled: bool) -> None:
    population = blobs()
    net = small_net()
    if not compiled:
        net = nn.Sequential(net, nn.Identity())
    if shared:
        train = [
            np.concatenate([part, population.train[i - 1]])
            for i, part in enumerate(population.train)
        ]
        population = population.with_parts(tuple(train), population.test)
    models = torch.stack([flatten(net), -flatten(net), torch.zeros(len(flatten(net)))])
    # Half of the clients are sent their models in another order.
    which = np.array([[0, 1, 2], [2, 0, 1]])[np.arange(12) % 2]
    runner = LocalRunner(population, net, SOLVER)
    work = Score("train", per="sample_winner")
    reply = runner.answer(work, np.arange(12), models, which, Key(0))
    assert set(reply.fields) == set(work.fields(0, 3))
    for i in range(12):
        losses = []
        for row in which[i]:
            torch.nn.utils.vector_to_parameters(models[row], net.parameters())
            with torch.no_grad():
                logits = net(population.x[population.train[i]])
            y = population.y[population.train[i]]
            losses.append(nn.functional.cross_entropy(logits, y, reduction="none"))
        winner = torch.stack(losses).argmin(dim=0)
        assert np.array_equal(reply.fields["wins"][i], np.bincount(winner, minlength=3))
        assert reply.fields["wins"][i].sum() == reply.fields["size"][i]


def test_of_equal_models_the_first_wins_all_samples() -> None:
    population = blobs()
    models = flatten(small_net()).repeat(2, 1)
    work = Score("train", per="sample_winner")
    both = np.tile([0, 1], (12, 1))
    reply = LocalRunner(population, small_net(), SOLVER).answer(
        work, np.arange(12), models, both, Key(0)
    )
    assert np.array_equal(reply.fields["wins"][:, 0], population.sizes("train"))

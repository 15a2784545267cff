"""The loss of logistic regression over a federation: gradients by autograd, and its minimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.errors import ConfigError
from coterie.measures.logistic_loss import LogisticLoss
from tests.conftest import blobs

L2 = 0.05


def test_loss_and_gradients_are_those_of_autograd() -> None:
    population = blobs()
    loss = LogisticLoss.of(population, L2)
    features = loss.inputs.shape[1] - 1
    net = nn.Linear(features, loss.classes).double()
    flat = torch.cat([net.weight.reshape(-1), net.bias]).detach().numpy()
    held = np.concatenate(population.train)
    x = population.x[held].double()
    y = population.y[held]

    def check(mine: torch.Tensor, found: np.ndarray) -> float:
        net.zero_grad()
        value = nn.functional.cross_entropy(net(x[mine]), y[mine]) + L2 * (net.weight**2).sum()
        value.backward()
        grad = torch.cat([p.grad.reshape(-1) for p in (net.weight, net.bias)])
        assert found == pytest.approx(grad.numpy(), abs=1e-12)
        return float(value.detach())

    everyone = torch.ones(len(y), dtype=torch.bool)
    assert check(everyone, loss.gradient(flat)) == pytest.approx(loss.value(flat))
    by_class = loss.class_gradients(flat)
    for label in range(loss.classes):
        check(y == label, by_class[label])


def test_no_point_is_below_the_minimum_and_the_sum_of_biases_stays() -> None:
    loss = LogisticLoss.of(blobs(), L2)
    rng = np.random.default_rng(0)
    start = rng.normal(size=loss.inputs.shape[1] * loss.classes)
    minimum = loss.minimum(start)
    assert minimum[-loss.classes :].sum() == pytest.approx(start[-loss.classes :].sum(), abs=1e-6)
    for _ in range(20):
        near = minimum + 0.01 * rng.normal(size=len(minimum))
        assert loss.value(near) > loss.value(minimum)


def test_what_has_no_minimum_is_refused_in_a_line() -> None:
    population = blobs()
    with pytest.raises(ConfigError, match=r"l2: no minimum is sure to exist, got 0\.0"):
        LogisticLoss.of(population, 0.0)
    x = torch.tensor([[1.0], [2.0]])
    one_class = ct.Population(x, torch.tensor([0, 0]), ([0, 1],), ([],), classes=2)
    with pytest.raises(ConfigError, match=r"no samples of classes \[1\]"):
        LogisticLoss.of(one_class, 0.1).class_gradients(np.zeros(4))

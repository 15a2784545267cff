"""The compiled gradient of a batch, and a constant added to the gradients of compiled steps: those of
autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.objective import Objective, TaskLoss
from coterie.core.vectors import flatten
from coterie.local import Stack
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.compiled import CompiledTrainer
from coterie.local.training.sgd import Autograd, Pull
from coterie.objectives import CrossEntropy
from coterie.tasks import regression
from tests.conftest import assert_near
from tests.local.training.test_compiled import dense, images

# L2 is of the kernels of the first layer that each network below has.
DECAY = ("0.weight", "1.weight")
PENALTIES = {"mu": st.sampled_from([0.0, 0.7]), "l2": st.sampled_from([0.0, 0.01])}


def squared_error(y: Tensor, mu: float) -> Objective:
    return TaskLoss(regression().fitted(y, 0), mu)


def both(net: nn.Sequential, objective: Objective, squared: bool) -> tuple[Any, Any]:
    """The compiled trainer of a network, and autograd's."""
    stack = Stack.of(net, DECAY)
    assert stack is not None
    ours = CompiledTrainer(stack, objective.mu, squared)
    return ours, Autograd(copy.deepcopy(net), objective, DECAY)


def gap_of_gradients(
    net: nn.Sequential, objective: Objective, squared: bool, x: Tensor, y: Tensor, l2: float
) -> float:
    """The largest difference of any value of the two gradients, beside their largest value, or of the
    two losses."""
    ours, theirs = both(net, objective, squared)
    at = flatten(net)
    sent = at + 0.3
    gradient, loss = ours.gradient(at, sent, x, y, l2)
    expected, expected_loss = theirs.gradient(at, sent, x, y, l2)
    largest = float(expected.abs().max())
    assert largest > 0
    gap = float((gradient - expected).abs().max()) / largest
    # A loss is a difference of logits, whose rounding errors it has.
    return max(gap, abs(loss - expected_loss) / max(1.0, expected_loss))


# Up to 40: small batches and large ones take products of two kinds.
@given(
    widths=st.lists(st.integers(2, 9), min_size=2, max_size=4), size=st.integers(1, 40), **PENALTIES
)
def test_of_a_cross_entropy(widths: list[int], size: int, mu: float, l2: float) -> None:
    rng = np.random.default_rng(size)
    x = torch.from_numpy(rng.normal(size=(size, widths[0])).astype(np.float32))
    y = torch.from_numpy(rng.integers(widths[-1], size=size))
    assert gap_of_gradients(dense(*widths), CrossEntropy(mu), False, x, y, l2) <= 1e-5


@given(size=st.integers(1, 40), **PENALTIES)
def test_of_a_squared_error(size: int, mu: float, l2: float) -> None:
    rng = np.random.default_rng(size)
    x = torch.from_numpy(rng.normal(size=(size, 5)).astype(np.float32))
    y = torch.from_numpy(rng.normal(size=(size, 2)).astype(np.float32))
    assert gap_of_gradients(dense(5, 4, 2), squared_error(y, mu), True, x, y, l2) <= 1e-5


@pytest.mark.parametrize("size", [1, 10, 40])
def test_of_images_with_the_channels_innermost(size: int) -> None:
    rng = np.random.default_rng(size)
    net = images([2, 3, 4], 3, 1, True, (12, 9))
    x = torch.from_numpy(rng.normal(size=(size, 2, 12, 9)).astype(np.float32))
    y = torch.from_numpy(rng.integers(3, size=size))
    innermost = x.contiguous(memory_format=torch.channels_last)
    assert gap_of_gradients(net, CrossEntropy(0.1), False, innermost, y, 0.01) <= 1e-5


def test_a_label_that_the_model_does_not_have_is_refused() -> None:
    ours, _ = both(dense(4, 3), CrossEntropy(), False)
    at = flatten(dense(4, 3))
    with pytest.raises(IndexError, match="3 classes, got labels from 3 to 3"):
        ours.gradient(at, at, torch.zeros(1, 4), torch.tensor([3]), 0.0)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("squared", [False, True])
def test_a_constant_in_every_step(momentum: float, squared: bool) -> None:
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(23, 6)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(3, size=23))
    numbers = torch.from_numpy(rng.normal(size=(23, 3)).astype(np.float32))
    y = numbers if squared else labels
    objective = squared_error(y, 0.1) if squared else CrossEntropy(0.1)
    solver = ct.Solver(2, 5, 0.1, momentum=momentum, l2=0.01)
    net = dense(6, 5, 3)
    start = flatten(net)
    constant = torch.from_numpy(rng.normal(size=len(start)).astype(np.float32))
    updates = []
    for trainer in both(net, objective, squared):
        out = torch.empty_like(start)
        trainer.train(TrainingSamples(x, y), start, out, solver, Key(4), Pull(constant=constant))
        updates.append(out)
    ours, theirs = updates
    assert_near(ours, theirs)
    # It is large beside the gradients, so that a step without it is far away.
    assert float((theirs + solver.lr * constant).norm()) > 1e-2

"""Compiled training equals autograd, and is chosen by the shape of a network."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.local import Stack
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.compiled import CompiledTrainer
from coterie.local.training.sgd import Autograd
from coterie.objectives import CrossEntropy

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)


def dense(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Flatten()]
    for i, o in itertools.pairwise(widths):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def images(
    channels: list[int], kernel: int, padding: int, relu_first: bool, shape: tuple[int, int]
) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    down, across = shape
    for i, o in itertools.pairwise(channels):
        after: list[nn.Module] = [nn.ReLU(), nn.MaxPool2d(2)]
        layers += [
            nn.Conv2d(i, o, kernel, padding=padding),
            *(after if relu_first else reversed(after)),
        ]
        down, across = ((n + 2 * padding - kernel + 1) // 2 for n in (down, across))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels[-1] * down * across, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )


def the_closed_form_is_autograd(
    net: nn.Sequential,
    shape: tuple[int, ...],
    classes: int,
    size: int,
    mu: float,
    l2: float,
    momentum: float,
    steps: int | None,
    draws: int = 1,
) -> None:
    """To rounding, in one of so many draws: where a maximum is at a tie, rounding is a step, and no
    fault."""
    decay = ("0.weight", "1.weight")
    solver = ct.Solver(3, 5, 0.1, momentum=momentum, l2=l2, steps=steps)
    start = flatten(net)
    gaps = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        x = torch.from_numpy(rng.normal(size=(size, *shape)).astype(np.float32))
        y = torch.from_numpy(rng.integers(classes, size=size))
        (ours, loss), (theirs, expected) = (
            trained(trainer, x, y, start, solver)
            for trainer in (
                CompiledTrainer(Stack.of(net, decay), mu),
                Autograd(copy.deepcopy(net), CrossEntropy(mu), decay),
            )
        )
        assert np.isfinite(loss)
        # Without samples the update is zero. A loss is a difference of logits, whose rounding errors
        # it has, however small it becomes.
        gap = float((ours - theirs).abs().max())
        gap = gap / float(theirs.abs().max()) if gap else 0.0
        gap = max(gap, abs(loss - expected) / max(1.0, expected))
        gaps.append(gap)
        if gaps[-1] <= 1e-4:
            return
    raise AssertionError(f"the closed form is {gaps} from autograd")


def trained(
    trainer: Any, x: Tensor, y: Tensor, start: Tensor, solver: ct.Solver
) -> tuple[Tensor, float]:
    out = torch.empty_like(start)
    return out, trainer.train(TrainingSamples(x, y), start, out, solver, Key(4)).loss


BUDGET = {
    "size": st.integers(0, 23),
    "mu": st.sampled_from([0.0, 0.7]),
    "l2": st.sampled_from([0.0, 0.01]),
    "momentum": st.sampled_from([0.0, 0.5]),
    "steps": st.sampled_from([None, 1, 7]),
}


@given(widths=st.lists(st.one_of(st.integers(2, 9), st.just(60)), min_size=2, max_size=4), **BUDGET)
def test_the_closed_form_equals_autograd(
    widths: list[int], size: int, mu: float, l2: float, momentum: float, steps: int | None
) -> None:
    the_closed_form_is_autograd(
        dense(*widths), (widths[0],), widths[-1], size, mu, l2, momentum, steps
    )


@given(
    channels=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    kernel=st.sampled_from([1, 2, 3, 5]),
    padding=st.integers(0, 3),
    relu_first=st.booleans(),
    shape=st.tuples(st.integers(16, 19), st.integers(16, 21)),
    **BUDGET,
)
def test_the_closed_form_of_images_equals_autograd(
    channels: list[int],
    kernel: int,
    padding: int,
    relu_first: bool,
    shape: tuple[int, int],
    size: int,
    mu: float,
    l2: float,
    momentum: float,
    steps: int | None,
) -> None:
    net = images(channels, kernel, padding, relu_first, shape)
    the_closed_form_is_autograd(
        net, (channels[0], *shape), 3, size, mu, l2, momentum, steps, draws=3
    )


def test_the_loss_of_a_batch_is_summed_in_order() -> None:
    """Else its last bit depends on whose copy of the compiled code runs, and a resumed run's may be
    another's."""
    errors = import_module("coterie.local.kernels.training").errors
    rng = np.random.default_rng(0)
    for n in range(10, 60):
        z = rng.normal(size=(n, 10)).astype(np.float32)
        y = rng.integers(0, 10, n)
        total = np.float32(0)
        for s in range(n):
            total += np.float32(errors(z[s : s + 1].copy(), y[s : s + 1], True))
        assert errors(z, y, True) == total


def test_samples_and_labels_that_do_not_fit_are_refused() -> None:
    def train(net: nn.Sequential, *shape: int, label: int = 0) -> None:
        x = torch.zeros(2, *shape)
        y = torch.full((2,), label)
        start = flatten(net)
        CompiledTrainer(Stack.of(net)).train(
            TrainingSamples(x, y), start, start.clone(), SOLVER, Key(0)
        )

    some = images([2, 3], 3, 1, True, (8, 8))
    with pytest.raises(IndexError, match="from 3 to 3"):
        train(some, 2, 8, 8, label=3)
    with pytest.raises(IndexError, match="-100"):
        train(some, 2, 8, 8, label=-100)
    for shape in ((3, 8, 8), (2, 64), (2, 9, 12), (2, 1, 1)):
        with pytest.raises(ValueError, match="got"):
            train(some, *shape)
    with pytest.raises(ValueError, match="6 inputs, got 7"):
        train(dense(6, 3), 7)


ONE = nn.ReLU()


def shared() -> nn.Sequential:
    """A layer that stands at two places."""
    twice = nn.Linear(6, 6)
    return nn.Sequential(nn.Sequential(twice, nn.ReLU()), twice, nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(6, 4, bias=False)),
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU()),
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(6, 5), ONE, nn.Linear(5, 3), ONE),
        shared,
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
        ),
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 3)
        ),
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)),
        lambda: nn.Sequential(
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
        ),
    ],
)
def test_other_shapes_go_through_autograd(make: Callable[[], nn.Module]) -> None:
    assert Stack.of(make()) is None


def test_a_client_that_changes_gradients_on_their_way_goes_through_autograd() -> None:
    net = dense(6, 4, 3)
    net[1].register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * 0,))
    assert Stack.of(net) is None


def test_one_relu_at_two_places_is_two() -> None:
    net = nn.Sequential(nn.Linear(6, 5), ONE, nn.Linear(5, 4), ONE, nn.Linear(4, 3))
    the_closed_form_is_autograd(net, (6,), 3, 20, 0.0, 0.0, 0.0, None)

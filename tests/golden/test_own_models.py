"""Rounds of clients with models of their own, worked out by hand from the papers' formulas.

The loss of a sample ``x`` is ``|w - x|^2 / 2``, so its gradient is ``w - x``. A client holds one
sample, so every batch is that sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.algorithms.apfl import Apfl
from coterie.algorithms.ditto import Ditto
from coterie.algorithms.fedala import MOST_PASSES, FedAla
from coterie.algorithms.fedrod import FedRod
from coterie.algorithms.moon import Contrasted
from coterie.algorithms.perfedavg import Order, PerFedAvg
from coterie.algorithms.pfedme import PFedMe
from coterie.algorithms.scaffold import ControlVariate, Scaffold
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.own_model import OwnModel
from coterie.core.training import WithOwnModel
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.client import OwnTraining
from coterie.local.training.trainers import Trainers
from coterie.objectives import plain
from tests.conftest import no_round


class Point(nn.Module):
    """Two parameters, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))


@dataclass(frozen=True)
class SquaredDistance:
    """The mean of ``|w - x|^2 / 2`` over a batch."""

    mu: float = 0.0

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        return (module.w - x).square().sum(dim=1).mean() / 2


def training(
    rule: OwnModel, sent: list[list[float]], sample: list[float], lr: float, steps: int
) -> OwnTraining:
    """The tools of a client that holds one sample.

    Args:
        rule: of the client.
        sent: what it is sent, the model first.
        sample: that it holds.
        lr: learning rate.
        steps: of a training.
    """
    work = Train(SquaredDistance(), WithOwnModel(rule))
    solver = ct.Solver(epochs=steps, batch_size=1, lr=lr)
    samples = TrainingSamples(torch.tensor([sample]), torch.zeros(1))
    return OwnTraining(
        Trainers(Point(), ()), work, solver, samples, torch.tensor(sent), Key(0, round=0).client(1)
    )


def test_ditto() -> None:
    """Alg. 1 with ``eta = 0.5``, two steps, ``lambda = 1``."""
    rule = Ditto(lam=1.0)
    tools = training(rule, sent=[[0.0, 2.0]], sample=[1.0, 0.0], lr=0.5, steps=2)
    found = rule.train(tools, {"v": torch.tensor([2.0, 1.0])})
    # w: (0, 2) -> (0.5, 1) -> (0.75, 0.5).
    assert found.update.tolist() == [0.75, -1.5]
    # v: gradient (2 - 1, 1 - 0) + (2 - 0, 1 - 2) = (3, 0), so v = (0.5, 1);
    # then (0.5 - 1, 1 - 0) + (0.5 - 0, 1 - 2) = (0, 0).
    assert found.own["v"].tolist() == [0.5, 1.0]
    assert rule.serve(torch.tensor([7.0, 7.0]), found.own).tolist() == [0.5, 1.0]


def test_apfl() -> None:
    """Alg. 1 with ``eta = 0.1``, two steps, and a share that adapts in the first."""
    rule = Apfl(alpha=0.5)
    tools = training(rule, sent=[[0.0, 2.0]], sample=[1.0, 0.0], lr=0.1, steps=2)
    found = rule.train(tools, {"v": torch.tensor([2.0, 1.0]), "alpha": torch.tensor([0.5])})
    # Step 1: v_bar = (1, 1.5), gradient (0, 1.5), v = (2, 1 - 0.1 * 0.5 * 1.5) = (2, 0.925),
    # w = (0.1, 1.8); <v - w, gradient> = <(2, -1), (0, 1.5)> = -1.5, alpha = 0.5 + 0.15.
    # Step 2: v_bar = 0.65 (2, 0.925) + 0.35 (0.1, 1.8) = (1.335, 1.23125), gradient (0.335,
    # 1.23125), v = (2 - 0.065 * 0.335, 0.925 - 0.065 * 1.23125); w = (0.19, 1.62).
    assert found.update.tolist() == pytest.approx([0.19, -0.38])
    assert found.own["v"].tolist() == pytest.approx([1.978225, 0.84496875])
    assert found.own["alpha"].tolist() == pytest.approx([0.65])
    served = rule.serve(torch.tensor([1.0, 1.0]), found.own)
    assert served.tolist() == pytest.approx([0.65 * 1.978225 + 0.35, 0.65 * 0.84496875 + 0.35])


@pytest.mark.parametrize(
    ("order", "expected"), [("first", [0.0975, -0.195]), ("hessian_free", [0.049375, -0.09875])]
)
def test_per_fedavg(order: Order, expected: list[float]) -> None:
    """Alg. 1 with ``alpha = 0.5``, ``beta = 0.1``, two steps; the Hessian is 1."""
    rule = PerFedAvg(alpha=0.5, order=order, delta=0.25)
    tools = training(rule, sent=[[0.0, 2.0]], sample=[1.0, 0.0], lr=0.1, steps=2)
    # Step 1: gradient (-1, 2), w~ = (0.5, 1), gradient there g = (-0.5, 1).
    # First order: w = (0.05, 1.9); then w~ = (0.525, 0.95), g = (-0.475, 0.95), w = (0.0975, 1.805).
    # Hessian-free: w moves by 0.1 (1 - 0.5) g, so w = (0.025, 1.95); then w~ = (0.5125, 0.975),
    # g = (-0.4875, 0.975), w = (0.049375, 1.90125).
    assert rule.train(tools, {}).update.tolist() == pytest.approx(expected, abs=1e-6)
    assert rule.adapt(tools, {}).tolist() == [0.5, 1.0]


def test_fedala() -> None:
    """Eq. 6 with ``eta = 0.25`` and one pass, and a step of 0.5 from the mixture."""
    rule = FedAla(share=1.0, eta=0.25)
    tools = training(rule, sent=[[0.0, 2.0]], sample=[1.0, 0.0], lr=0.5, steps=1)
    own = {
        "v": torch.tensor([3.0, 1.0]),
        "weights": torch.tensor([0.5, 0.25]),
        "learned": torch.ones(1),
    }
    # Theta - Theta_i = (-3, 1); mixture (3 - 1.5, 1 + 0.25) = (1.5, 1.25), gradient (0.5, 1.25);
    # W = (0.5 + 0.25 * 1.5, 0.25 - 0.25 * 1.25) = (0.875, -0.0625), the second of them clipped to 0;
    # mixture (3 - 2.625, 1) = (0.375, 1), gradient (-0.625, 1), trained (0.6875, 0.5).
    found = rule.train(tools, own)
    assert found.own["weights"].tolist() == [0.875, 0.0]
    assert found.own["v"].tolist() == [0.6875, 0.5]
    assert found.update.tolist() == [0.6875, -1.5]
    assert rule.adapt(tools, own).tolist() == [0.375, 1.0]


def fedrod_training(
    rule: FedRod, labels: list[int], classes: int, sent: list[float], lr: float
) -> OwnTraining:
    """A client whose samples are all ``x = 1``, in one batch, with a linear network of one input."""
    solver = ct.Solver(epochs=1, batch_size=len(labels), lr=lr)
    samples = TrainingSamples(torch.ones(len(labels), 1), torch.tensor(labels))
    return OwnTraining(
        Trainers(nn.Linear(1, classes), ()),
        Train(how=WithOwnModel(rule)),
        solver,
        samples,
        torch.tensor([sent]),
        Key(0, round=0).client(1),
    )


def test_fedrod() -> None:
    """Both steps of a batch with ``eta = 0.6``; class 0 has two samples, class 1 has one."""
    rule = FedRod()
    # Logits are weight + bias: m = (0, log 2).
    sent = [0.0, 0.0, 0.0, math.log(2)]
    tools = fedrod_training(rule, [0, 0, 1], classes=2, sent=sent, lr=0.6)
    # h = (log 4, 0): the sum of both logits is (log 4, log 2).
    own = torch.tensor([0.0, 0.0, math.log(4), 0.0])
    found = rule.train(tools, {"head": own})
    # Balanced: m + log n = (log 2, log 2), so the softmax is (1/2, 1/2), and the mean gradient of the
    # logits (1/2 - 2/3, 1/2 - 1/3) = (-1/6, 1/6). Each of them goes into a weight and a bias.
    assert found.update.tolist() == pytest.approx([0.1, -0.1, 0.1, -0.1])
    # Plain, of the sum: the softmax is (2/3, 1/3), which are the shares of the labels: no step.
    assert found.own["head"].tolist() == pytest.approx(own.tolist(), abs=1e-6)
    assert found.loss == pytest.approx(-(2 * math.log(2 / 3) + math.log(1 / 3)) / 3)
    # From a head of zeros the softmax is (1/3, 2/3): gradient (-1/3, 1/3).
    found = rule.train(tools, rule.first(tools.start))
    assert found.own["head"].tolist() == pytest.approx([0.2, -0.2, 0.2, -0.2])
    # m + h.
    served = rule.serve(torch.tensor([1.0, 2.0, 3.0, 4.0]), found.own)
    assert served.tolist() == pytest.approx([1.2, 1.8, 3.2, 3.8])
    generic = FedRod(predict="generic").serve(torch.tensor([1.0, 2.0, 3.0, 4.0]), found.own)
    assert generic.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_fedrod_leaves_a_class_without_samples_out_of_the_balanced_softmax() -> None:
    """Three equal logits; classes 0 and 1 have a sample each, class 2 has none."""
    rule = FedRod()
    tools = fedrod_training(rule, [0, 1], classes=3, sent=[0.0] * 6, lr=0.6)
    found = rule.train(tools, rule.first(tools.start))
    # Balanced: (1/2, 1/2, 0) are the shares of the labels. Plain: (1/3, 1/3, 1/3), so the gradient
    # is (-1/6, -1/6, 1/3).
    assert found.update.tolist() == pytest.approx([0.0] * 6, abs=1e-6)
    assert found.own["head"].tolist() == pytest.approx([0.1, 0.1, -0.2] * 2)


@pytest.mark.parametrize(
    ("learned", "sent", "threshold", "passes"),
    [
        (1.0, 0.0, 9.0, 1),
        (0.0, 0.0, 9.0, 11),
        # The weight jumps between 0 and 1, and the loss between 2 and 0.5.
        (0.0, 0.0, 0.1, MOST_PASSES),
        # Nothing is mixed before the first training.
        (0.0, 3.0, 9.0, 0),
    ],
)
def test_fedala_learns_its_weights_until_they_converge_and_then_by_one_pass(
    learned: float, sent: float, threshold: float, passes: int
) -> None:
    rule = FedAla(share=1.0, eta=9.0, threshold=threshold)
    tools = training(rule, sent=[[sent, 0.0]], sample=[1.0, 0.0], lr=0.5, steps=1)
    own = {
        "v": torch.tensor([3.0, 0.0]),
        "weights": torch.ones(2),
        "learned": torch.tensor([learned]),
    }
    found = rule.train(tools, own)
    assert tools._gradients == passes
    assert bool(found.own["learned"]) == (passes > 0)


def test_scaffold() -> None:
    """Alg. 1 with option II, ``eta = 0.1`` and two steps, and the server of four clients."""
    rule = Scaffold()
    sent = [[0.0, 2.0], [0.5, 0.0]]
    tools = training(rule, sent=sent, sample=[1.0, 0.0], lr=0.1, steps=2)
    found = rule.train(tools, {"c": torch.tensor([-0.5, 1.0])})
    # c - c_i = (1, -1). Step 1: (0, 2) - 0.1 ((-1, 2) + (1, -1)) = (0, 1.9); step 2: - 0.1 ((-1, 1.9)
    # + (1, -1)) = (0, 1.81).
    assert found.update.tolist() == pytest.approx([0.0, -0.19])
    # c_i+ = c_i - c + (x - y) / (2 * 0.1) = (-1, 1) + (0, 0.95).
    assert found.own["c"].tolist() == pytest.approx([-1.0, 1.95])
    groups = Groups(torch.zeros(1, 2), np.zeros(4, np.int64))
    groups = groups.remember(ControlVariate(torch.tensor([0.5, 0.0])))
    delta = torch.stack([found.update, torch.tensor([0.2, 0.0])])
    # The second client has two samples, so it took twice as many steps.
    size = np.array([1.0, 2.0])
    updates = Updates(np.array([0, 3]), np.zeros(2, np.int64), delta, size, np.zeros(2))
    round = replace(no_round(), number=0, solver=ct.Solver(epochs=2, batch_size=1, lr=0.1))
    after, _ = rule.move_server(groups, updates, round)
    # Changes: c_i+ - c_i = (-0.5, 0.95), and -(0.5, 0) - (0.2, 0) / 0.4 = (-1, 0); c moves by a
    # fourth of their sum.
    assert rule.second_vector(after).tolist() == pytest.approx([0.5 - 1.5 / 4, 0.95 / 4])


def test_moon() -> None:
    """Eq. 4 for one sample and a network whose features are the input."""

    class Features(nn.Module):
        def __init__(self, rows: list[list[float]]) -> None:
            super().__init__()
            self.body = nn.Linear(2, 2, bias=False)
            self.head = nn.Linear(2, 2, bias=False)
            self.body.weight.data = torch.tensor(rows)
            self.head.weight.data = torch.eye(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x))

    module = Features([[1.0, 0.0], [0.0, 0.0]])
    shared = Features([[1.0, 0.0], [1.0, 0.0]])
    previous = Features([[0.0, 0.0], [1.0, 0.0]])
    loss = Contrasted(plain, 5.0, 0.5, previous)
    found = loss.loss(module, torch.tensor([[1.0, 0.0]]), torch.tensor([0]), lambda: shared)
    # z = (1, 0), z_glob = (1, 1), z_prev = (0, 1): cosines 0.707107 and 0, over 0.5; the contrastive
    # loss is log(1 + exp(-1.414214)) = 0.217622. Outputs (1, 0): cross-entropy log(1 + e^-1).
    assert found.item() == pytest.approx(0.313262 + 5 * 0.217622, abs=1e-4)


def test_pfedme() -> None:
    """Alg. 1 with ``lambda = 2``, ``eta = 0.25``, two batches with two inner steps of 0.1 each."""
    rule = PFedMe(lam=2.0, inner_steps=2, inner_lr=0.1)
    tools = training(rule, sent=[[0.0, 2.0]], sample=[1.0, 0.0], lr=0.25, steps=2)
    found = rule.train(tools, rule.first(tools.start))
    # Batch 1: theta = (0, 2) - 0.1 (-1, 2) = (0.1, 1.8), then - 0.1 ((-0.9, 1.8) + 2 (0.1, -0.2)) =
    # (0.17, 1.66); w = w - 0.5 (w - theta) = (0.085, 1.83).
    # Batch 2: theta = (0.236, 1.528), then (0.2822, 1.4356); w = (0.1836, 1.6328).
    assert found.update.tolist() == pytest.approx([0.1836, -0.3672])
    assert found.own["theta"].tolist() == pytest.approx([0.2822, 1.4356])
    assert rule.serve(torch.zeros(2), found.own).tolist() == pytest.approx([0.2822, 1.4356])

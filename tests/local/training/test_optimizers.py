"""Local training by optimisers of torch equals the loop that one writes by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import coterie as ct
from coterie.core.keys import Key
from coterie.core.task import with_smoothing
from coterie.core.training import FullGradient
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines.blocks import Blocks
from coterie.errors import Code
from coterie.local.training.batched import BatchedTrainer
from coterie.local.training.batches import TrainingSamples, batches
from coterie.local.training.sgd import Autograd
from coterie.local.training.trainers import Trainers
from coterie.objectives import plain, proximal
from coterie.tasks import classification, next_token, regression
from tests.conftest import assert_near
from tests.refusals import refuses

HALVED = ct.LrSchedule("step", every=2, gamma=0.5)
SIZES = (23, 17, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def samples(size: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(size)
    return torch.randn(size, 6, generator=draw), torch.randint(3, (size,), generator=draw)


def ours(solver: ct.Solver, size: int = 23, mu: float = 0.0) -> Tensor:
    net = network()
    x, y = samples(size)
    start = flatten(net)
    out = torch.empty(len(start))
    trainer = Autograd(net, proximal(mu), ("0.weight",))
    trainer.train(TrainingSamples(x, y), start, out, solver, Key(0).client(size))
    return out


def by_hand(solver: ct.Solver, make: Any, factors: list[float], mu: float = 0.0) -> Tensor:
    """The loop of a textbook, with losses instead of gradients of penalties."""
    net = network()
    start = copy.deepcopy(net)
    begun = flatten(net)
    x, y = samples(23)
    optimizer = make(net.parameters())
    step = 0
    for part in batches(23, solver, Key(0).client(23).of("shuffle").generator()):
        for rows in torch.from_numpy(part.order).split(solver.batch_size)[: part.steps]:
            optimizer.param_groups[0]["lr"] = solver.lr * factors[step]
            step += 1
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[rows]), y[rows])
            loss = loss + solver.l2 * net[0].weight.square().sum()
            pairs = zip(net.parameters(), start.parameters(), strict=True)
            loss = loss + mu / 2 * sum((a - b.detach()).square().sum() for a, b in pairs)
            loss.backward()
            if solver.clip_value is not None:
                nn.utils.clip_grad_value_(net.parameters(), solver.clip_value)
            if solver.clip_norm is not None:
                nn.utils.clip_grad_norm_(net.parameters(), solver.clip_norm)
            optimizer.step()
    return flatten(net) - begun


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"optimizer": "adamw"}, lambda p: torch.optim.AdamW(p)),
        (
            {"optimizer": "adam", "optimizer_options": {"betas": [0.8, 0.9]}, "l2": 0.01},
            lambda p: torch.optim.Adam(p, betas=(0.8, 0.9)),
        ),
        (
            {"optimizer": "rmsprop", "momentum": 0.5, "clip_norm": 0.5},
            lambda p: torch.optim.RMSprop(p, momentum=0.5),
        ),
        (
            {"momentum": 0.5, "optimizer_options": {"nesterov": True}, "clip_value": 0.01},
            lambda p: torch.optim.SGD(p, momentum=0.5, nesterov=True),
        ),
        ({"optimizer": "nadam", "weight_decay": 0.0}, lambda p: torch.optim.NAdam(p)),
        ({"optimizer": "adafactor"}, lambda p: torch.optim.Adafactor(p, weight_decay=0.0)),
    ],
)
def test_a_training_is_the_loop_of_torch(options: dict[str, Any], make: Any) -> None:
    solver = ct.Solver(2, 5, 0.02, step_schedule=HALVED, **options)
    factors = [0.5 ** (step // 2) for step in range(10)]
    expected = by_hand(solver, make, factors, mu=0.1)
    assert expected.abs().max() > 1e-3
    assert_near(ours(solver, mu=0.1), expected)


def test_decay_is_decoupled_from_the_gradient() -> None:
    plain_sgd = ct.Solver(1, 23, 0.1)
    decayed = ct.Solver(1, 23, 0.1, weight_decay=0.5)
    shrunk = -0.1 * 0.5 * flatten(network())
    assert_near(ours(decayed), ours(plain_sgd) + shrunk)


def test_state_begins_anew_at_each_client() -> None:
    solver = ct.Solver(1, 5, 0.02, optimizer="adam")
    net = network()
    trainer = Trainers(net, ()).of(plain, solver)
    x, y = samples(23)
    found = torch.empty(2, len(flatten(net)))
    for out in found:
        trainer.train(TrainingSamples(x, y), flatten(net), out, solver, Key(0))
    assert torch.equal(found[0], found[1])


def test_bfloat16_is_near_and_not_equal() -> None:
    solver = ct.Solver(2, 5, 0.02, optimizer="adam")
    half = ct.Solver(2, 5, 0.02, optimizer="adam", precision="bfloat16")
    gap = (ours(half) - ours(solver)).abs().max()
    assert 0 < gap < 0.05


def test_a_client_that_diverges_is_seen() -> None:
    """Clipping does not turn what is not finite into something that is."""
    net = network()
    x, y = samples(5)
    start = flatten(net)
    out = torch.empty(len(start))
    solver = ct.Solver(1, 5, 0.1, optimizer="adam", clip_norm=1.0)
    Autograd(net, plain).train(TrainingSamples(x * torch.inf, y), start, out, solver, Key(0))
    assert not torch.isfinite(out).all()


# --- many clients at once -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adamw", "clip_norm": 0.5, "step_schedule": HALVED},
        {"momentum": 0.5, "clip_value": 0.01, "weight_decay": 0.1},
        {"optimizer": "nadam", "precision": "bfloat16"},
    ],
)
def test_clients_that_train_together_train_as_alone(options: dict[str, Any]) -> None:
    solver = ct.Solver(2, 5, 0.02, **options)
    net = network()
    held = [samples(size) for size in SIZES]
    keys = [Key(0).client(size) for size in SIZES]
    trainer = BatchedTrainer(net, plain)
    together, _, _ = trainer.train(held, flatten(net).repeat(3, 1), solver, keys)
    alone = torch.stack([ours(solver, size) for size in SIZES])
    assert_near(together, alone, 0.1 if solver.precision == "bfloat16" else 1e-4)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"optimizer": "adafactor"}, ("does-not-fit", "local.optimizer")),
        ({"step_schedule": ct.LrSchedule("cosine")}, ("does-not-fit", "local.step_schedule.over")),
    ],
)
def test_what_clients_cannot_share_is_refused(
    options: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(ct.ConfigError, *refusal):
        Blocks(network(), ct.Solver(**options))


# --- schedules ------------------------------------------------------------------------------------


def test_a_schedule_over_rounds_sets_the_rate_of_a_round() -> None:
    cosine = ct.Solver(lr=0.1, round_schedule=ct.LrSchedule("cosine", warmup=1)).over_rounds(5)
    work = Train()
    rates = [round(work.solvers(cosine, number)[0].lr, 4) for number in range(5)]
    assert rates == [0.05, 0.1, 0.0854, 0.05, 0.0146]
    # So a step in a round is that of plain SGD, which compiled code knows.
    assert work.solvers(cosine, 2)[0].is_plain_sgd


def test_a_full_gradient_is_that_of_sgd_whatever_the_optimiser() -> None:
    solver = ct.Solver(3, 5, 0.02, 0.0, 0.1, optimizer="adamw", clip_norm=0.1, step_schedule=HALVED)
    work = Train(how=FullGradient())
    assert work.solvers(solver, 0)[0] == work.solvers(ct.Solver(l2=0.1), 0)[0]


# --- label smoothing ------------------------------------------------------------------------------


def test_labels_are_smoothed_in_training_alone() -> None:
    task = classification()
    outputs, targets = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    smoothed = with_smoothing(task, 0.2)
    expected = F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.2)
    assert torch.equal(smoothed.loss(outputs, targets), expected)
    assert with_smoothing(task, 0.0) is task
    tokens = with_smoothing(next_token(), 0.2)
    assert tokens.loss(outputs[None], targets[None]) == pytest.approx(float(expected.mean()))


def test_what_has_no_labels_to_smooth_is_refused() -> None:
    with refuses(ct.ConfigError, "does-not-fit", "local.label_smoothing"):
        with_smoothing(regression(), 0.1)

    class Custom:
        mu = 0.0

        def loss(self, module: nn.Module, x: Tensor, y: Tensor, received: Any) -> Tensor:
            return F.cross_entropy(module(x), y)

    with refuses(ct.ConfigError, "does-not-fit", "local.label_smoothing"):
        Trainers(network(), ()).of(Custom(), ct.Solver(label_smoothing=0.1))

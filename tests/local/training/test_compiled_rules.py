"""Compiled steps of optimisers, and of squared errors, equal autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.objective import Objective, TaskLoss
from coterie.core.vectors import flatten
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.compiled import CompiledTrainer, compiles
from coterie.local.training.sgd import Autograd, Trainer
from coterie.local.training.stack import Stack
from coterie.local.training.trainers import Trainers
from coterie.objectives import CrossEntropy
from coterie.tasks import regression
from tests.conftest import assert_near

COSINE = ct.LrSchedule("cosine", warmup=2, floor=0.1)
NETS = {
    "one layer": lambda: nn.Linear(6, 3),
    "dense": lambda: nn.Sequential(
        *(nn.Flatten(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    ),
    "images": lambda: nn.Sequential(
        *(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 3)),
    ),
}
# Adam divides by the size of the gradient: where a gradient is rounding alone, so is the step. A
# larger eps keeps such parameters where they are, in both codes.
ADAM = {"optimizer": "adam", "optimizer_options": {"eps": 1e-3}}
RULES: dict[str, dict[str, Any]] = {
    "adam": ADAM,
    "adamw": {**ADAM, "optimizer": "adamw", "weight_decay": 0.2, "step_schedule": COSINE},
    "adam with penalties": {**ADAM, "l2": 0.05},
    "sgd with a schedule": {"momentum": 0.5, "weight_decay": 0.1, "step_schedule": COSINE},
}


def trained(
    trainer: Trainer, x: Tensor, y: Tensor, start: Tensor, solver: ct.Solver
) -> tuple[Tensor, float]:
    out = torch.empty(len(start))
    return out, trainer.train(TrainingSamples(x, y), start, out, solver, Key(0)).loss


def samples(net: str, squared: bool, size: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(size)
    shape = (1, 6, 6) if net == "images" else (6,)
    x = torch.randn(size, *shape, generator=draw)
    if squared:
        return x, torch.randn(size, 3, generator=draw)
    return x, torch.randint(3, (size,), generator=draw)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("squared", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("batch_size", [5, 40])  # by loops, and by a library
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("rule", [*RULES, "sgd"])
def test_compiled_steps_are_those_of_autograd(
    rule: str, net: str, batch_size: int, squared: bool
) -> None:
    torch.manual_seed(1)
    module = NETS[net]()
    start = flatten(module)
    x, y = samples(net, squared, 43)
    solver = ct.Solver(4, batch_size, 0.02, **RULES.get(rule, {}))
    objective: Objective = CrossEntropy(0.1)
    if squared:
        objective = TaskLoss(regression().fitted(y, 0), 0.1)
    decay = tuple(name for name, p in module.named_parameters() if p.ndim > 1)
    ours = Trainers(module, decay).of(objective, solver)
    assert isinstance(ours, CompiledTrainer)
    found, loss = trained(ours, x, y, start, solver)
    theirs = Autograd(copy.deepcopy(module), objective, decay)
    expected, expected_loss = trained(theirs, x, y, start, solver)
    assert expected.abs().max() > 1e-3
    assert_near(found, expected)
    # A loss is a difference of logits, whose rounding errors it has.
    assert loss == pytest.approx(expected_loss, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"clip_norm": 1.0},
        {"optimizer": "adam", "optimizer_options": {"amsgrad": True}},
        {"optimizer": "adam", "precision": "bfloat16"},
        {"optimizer": "rmsprop"},
        {"optimizer_options": {"dampening": 0.1}},
    ],
)
def test_what_no_kernel_computes_goes_through_autograd(options: dict[str, Any]) -> None:
    solver = ct.Solver(**options)
    assert not compiles(solver)
    assert isinstance(Trainers(nn.Linear(6, 3), ()).of(CrossEntropy(), solver), Autograd)


def test_other_losses_of_numbers_go_through_autograd() -> None:
    huber = TaskLoss(regression("huber"))
    assert isinstance(Trainers(nn.Linear(6, 3), ()).of(huber, ct.Solver()), Autograd)


def test_a_client_that_diverges_is_seen() -> None:
    net = nn.Linear(6, 3)
    x, y = samples("dense", False, 9)
    trainer = Trainers(net, ()).of(CrossEntropy(), ct.Solver(**ADAM))
    found, _ = trained(trainer, x * torch.inf, y, flatten(net), ct.Solver(**ADAM))
    assert not torch.isfinite(found).all()


def test_targets_that_do_not_fit_are_refused() -> None:
    """Compiled code does not check its indices."""
    stack = Stack.of(nn.Linear(6, 3))
    assert stack is not None
    net = flatten(nn.Linear(6, 3))
    with pytest.raises(IndexError, match="3 outputs, got 2 targets"):
        trained(
            CompiledTrainer(stack, 0.0, True), torch.ones(4, 6), torch.ones(4, 2), net, ct.Solver()
        )


def test_numbers_below_float32_do_not_slow_the_processor() -> None:
    """Flushing is of the training alone."""
    tiny = np.float32(1e-38)
    net = nn.Linear(6, 3)
    x, y = samples("dense", False, 9)
    trained(
        Trainers(net, ()).of(CrossEntropy(), ct.Solver(**ADAM)),
        x,
        y,
        flatten(net),
        ct.Solver(**ADAM),
    )
    assert float(torch.tensor(tiny) / 4) > 0

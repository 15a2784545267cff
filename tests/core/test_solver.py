"""Every option of local training is checked, and none is lost by code that does not know it."""

from __future__ import annotations

from dataclasses import fields, make_dataclass, replace
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key, keyed_torch
from coterie.core.solver import TAKEN_BY_ALL
from coterie.errors import ConfigError
from coterie.local.training.compiled import compiles
from tests.experiment.options import other_values_of_record
from tests.refusals import refuses

HALVED = ct.LrSchedule("step", every=1, gamma=0.5)
USUAL: dict[str, Any] = {"epochs": 2, "batch_size": 4, "lr": 0.1}
# Another value of each key, with what has to be set beside it.
CHANGES: dict[str, dict[str, Any]] = {
    "epochs": {"epochs": 3},
    "batch_size": {"batch_size": 3},
    "lr": {"lr": 0.2},
    "momentum": {"momentum": 0.5},
    "l2": {"l2": 0.1},
    "steps": {"steps": 7},
    "optimizer": {"optimizer": "adam"},
    "weight_decay": {"weight_decay": 0.1},
    "clip_norm": {"clip_norm": 0.01},
    "clip_value": {"clip_value": 0.001},
    "label_smoothing": {"label_smoothing": 0.1},
    "precision": {"precision": "bfloat16"},
    "keep_state": {"momentum": 0.5, "keep_state": True},
    "step_schedule": {"step_schedule": HALVED},
    "round_schedule": {"round_schedule": HALVED},
    "optimizer_options": {"optimizer": "adam", "optimizer_options": {"eps": 0.1}},
    "augment": {"augment": (torch.neg,)},
}
# A key that is not among them has a value of its type, and may be one that vmap does not take.
FURTHER = {
    key: {key: value}
    for key, value in other_values_of_record(ct.Solver).items()
    if key not in CHANGES
}
CHANGES |= FURTHER
REFUSED_BY_VMAP = ("augment", *FURTHER)


# A solver with an option that no code knows yet. Annotations are read where the solver stands.
WithOneMore = make_dataclass(
    "WithOneMore",
    [("unknown", Annotated[float, Field(ge=0)], 0.0)],
    bases=(ct.Solver,),
    namespace={"__module__": ct.Solver.__module__},
    frozen=True,
    slots=True,
)


def models(solver: ct.Solver, net: nn.Module, engine: str) -> Tensor:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(24, 5)), dtype=torch.float32)
    parts = np.arange(24).reshape(3, 8)
    data = ct.Population(x, torch.arange(24) % 3, tuple(parts[:, :7]), tuple(parts[:, 7:]), 3)
    train = {"rounds": 2, "clients_per_round": 3}
    return ct.run(
        ct.fedavg(), data=data, model=net, local=solver, engine=engine, train=train
    ).state.models


def network(activation: nn.Module) -> nn.Module:
    with keyed_torch(Key(1)):
        return nn.Sequential(nn.Linear(5, 4), activation, nn.Linear(4, 3))


def test_every_key_has_another_value() -> None:
    assert set(CHANGES) == {one.name for one in fields(ct.Solver)}


@pytest.mark.parametrize("key", CHANGES)
@pytest.mark.parametrize(
    ("engine", "activation"),
    [("serial", nn.ReLU()), ("serial", nn.Tanh()), ("vmap", nn.ReLU())],
    ids=["compiled", "autograd", "vmap"],
)
def test_every_key_changes_the_models(engine: str, activation: nn.Module, key: str) -> None:
    changed = ct.Solver(**{**USUAL, **CHANGES[key]})
    default: dict[str, Any] = {one.name: one.default for one in fields(ct.Solver)} | USUAL
    before = replace(changed, **{key: default[key]})
    net = network(activation)
    if engine == "vmap" and key in REFUSED_BY_VMAP:
        with refuses(ConfigError, "does-not-fit", f"local.{key}"):
            models(changed, net, engine)
        return
    with_default = models(before, net, engine)
    moved = (models(changed, net, engine) - with_default).norm() / with_default.norm()
    # Code that does not take an option leaves it to other code, whose sums round differently.
    assert moved > 1e-4, (
        f"{CHANGES[key]} changes nothing. If code uses {key}, give CHANGES a value that does."
    )


def test_code_that_does_not_know_an_option_leaves_it_to_others() -> None:
    usual = WithOneMore()
    assert usual.is_plain_sgd
    assert compiles(usual)
    unusual = WithOneMore(unknown=1.0)
    assert not unusual.is_plain_sgd
    assert not compiles(unusual)
    with refuses(ConfigError, "does-not-fit", "local.unknown"):
        models(unusual, network(nn.ReLU()), "vmap")


def test_an_option_is_checked_wherever_its_field_stands() -> None:
    with refuses(ConfigError, "out-of-range", "unknown"):
        WithOneMore(unknown=-1.0)


@pytest.mark.parametrize("key", CHANGES)
def test_a_full_gradient_keeps_what_changes_the_loss(key: str) -> None:
    """The rest says how a step is made."""
    whole = ct.Solver(**CHANGES[key]).for_full_gradient()
    changed = whole != ct.Solver().for_full_gradient()
    assert changed == (key in ("l2", "label_smoothing")), (
        f"{key} is taken for a part of the loss. If it says how a step is made, name it in _OF_STEPS "
        "of coterie/core/solver.py; if it changes the loss, name it here."
    )


def test_a_full_gradient_keeps_an_option_that_no_code_knows() -> None:
    assert WithOneMore(unknown=1.0).for_full_gradient().set_beyond(TAKEN_BY_ALL) == ["unknown"]


def test_a_solver_without_epochs_is_refused_where_it_is_made() -> None:
    with refuses(ConfigError, "out-of-range", "epochs"):
        ct.Solver(epochs=0)

"""The table `[local]`: optimisers, their options and schedules, refused in one clear line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.config.identity import config_hash, relevant
from coterie.config.local_problems import optimizer_classes
from coterie.errors import Code
from coterie.experiment import check
from tests.refusals import refuses


def test_a_table_makes_the_solver_that_python_writes(tables: dict[str, Any]) -> None:
    tables["local"] = {
        "epochs": 2,
        "lr": 0.001,
        "optimizer": "adamw",
        "optimizer_options": {"betas": [0.9, 0.99]},
        "weight_decay": 0.05,
        "clip_norm": 1.0,
        "label_smoothing": 0.1,
        "precision": "bfloat16",
        "step_schedule": {"kind": "step", "every": 3},
        "round_schedule": {"kind": "cosine", "warmup": 2},
    }
    made = check(tables).solver
    assert made == ct.Solver(
        epochs=2,
        lr=0.001,
        optimizer="adamw",
        optimizer_options={"betas": (0.9, 0.99)},
        weight_decay=0.05,
        clip_norm=1.0,
        label_smoothing=0.1,
        precision="bfloat16",
        step_schedule=ct.LrSchedule("step", every=3),
        round_schedule=ct.LrSchedule("cosine", warmup=2, over=300),
    )
    # A table that was written out and read again makes the same.
    assert check(check(tables).resolved()).solver == made
    assert hash(made) == hash(check(tables).solver)


def test_plain_sgd_is_the_run_that_it_was(tables: dict[str, Any]) -> None:
    resolved = check(tables).resolved()
    local = {key for key in relevant(resolved) if key.startswith("local.")}
    assert local == {f"local.{key}" for key in ("epochs", "batch_size", "lr", "momentum", "l2")}
    tables["local"]["optimizer"] = "adam"
    assert config_hash(check(tables).resolved()) != config_hash(resolved)


@pytest.mark.parametrize(
    ("local", "code", "key", "hint"),
    [
        ({"optimizer": "AdamW"}, "unknown-choice", "optimizer", "adamw"),
        ({"optimizer": "lbfgs"}, "unknown-choice", "optimizer", None),
        (
            {"optimizer": "adam", "optimizer_options": {"beta": [0.9, 0.99]}},
            "unknown-key",
            "optimizer_options.beta",
            "betas",
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"betas": [1.5, 0.9]}},
            "out-of-range",
            "optimizer_options.betas",
            None,
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"betas": 0.9}},
            "wrong-type",
            "optimizer_options.betas",
            None,
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"amsgrad": 1}},
            "wrong-type",
            "optimizer_options.amsgrad",
            None,
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"weight_decay": 0.1}},
            "unknown-key",
            "optimizer_options.weight_decay",
            None,
        ),
        ({"optimizer_options": {"nesterov": True}}, "in-conflict", "momentum", None),
        ({"optimizer": "adam", "momentum": 0.9}, "in-conflict", "momentum", None),
        ({"clip_norm": 0.0}, "out-of-range", "clip_norm", None),
        ({"precision": "float16"}, "unknown-choice", "precision", "bfloat16"),
    ],
)
def test_a_mistake_is_one_line_in_a_table_and_in_python(
    tables: dict[str, Any], local: dict[str, Any], code: Code, key: str, hint: str | None
) -> None:
    tables["local"] = local
    with refuses(ct.ConfigError, code, f"local.{key}") as caught:
        check(tables)
    assert "\n" not in str(caught.value)
    with refuses(ct.ConfigError, code, key) as caught:
        ct.Solver(**local)
    assert "\n" not in str(caught.value)
    assert caught.value.problems[0].hint == hint


@pytest.mark.parametrize(
    ("schedule", "code", "key"),
    [
        ({"kind": "step"}, "missing", "every"),
        ({"kind": "cosine", "gamma": 0.5}, "in-conflict", "gamma"),
        ({"kind": "cosin"}, "unknown-choice", "kind"),
        ({"warmup": -1}, "out-of-range", "warmup"),
    ],
)
def test_a_mistake_in_a_schedule(
    tables: dict[str, Any], schedule: dict[str, Any], code: Code, key: str
) -> None:
    tables["local"] = {"step_schedule": schedule}
    with refuses(ct.ConfigError, code, f"local.step_schedule.{key}"):
        check(tables)
    with refuses(ct.ConfigError, code, key):
        ct.LrSchedule(**schedule)


def test_a_cosine_over_rounds_needs_their_number() -> None:
    solver = ct.Solver(round_schedule=ct.LrSchedule("cosine"))
    with refuses(ct.ConfigError, "missing", "round_schedule.over"):
        solver.in_round(1)
    long = ct.Solver(round_schedule=ct.LrSchedule("cosine", over=4))
    assert long.over_rounds(9).in_round(4).lr < 1e-20


@pytest.mark.parametrize("optimizer", sorted(optimizer_classes()))
def test_every_optimiser_is_a_solver(optimizer: str) -> None:
    assert ct.Solver(optimizer=optimizer).optimizer == optimizer


@pytest.mark.parametrize("optimizer", sorted(optimizer_classes()))
def test_every_optimiser_steps_as_that_of_torch_without_its_compiler(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kind,) = [one for name, one in vars(torch.optim).items() if name.lower() == optimizer]
    expected = _stepped(kind)
    # An import of it would take a second, in each process.
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    assert torch.equal(_stepped(optimizer_classes()[optimizer]), expected)


@torch.no_grad()
def _stepped(kind: Callable[..., torch.optim.Optimizer]) -> torch.Tensor:
    """A parameter after four steps."""
    rng = torch.Generator().manual_seed(0)
    param = torch.randn(3, 5, generator=rng)
    optimizer = kind([param], lr=0.1)
    for _ in range(4):
        param.grad = torch.randn(3, 5, generator=rng)
        optimizer.step()
    return param

"""The table `[local]`: optimisers, their options and schedules, refused in one clear line."""

from __future__ import annotations

from typing import Any

import pytest

import coterie as ct
from coterie.config.identity import config_hash, relevant
from coterie.config.local_problems import optimizer_classes
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
    ("local", "line"),
    [
        ({"optimizer": "AdamW"}, "optimizer: unknown choice, got 'AdamW'; .*'adamw'\\?"),
        ({"optimizer": "lbfgs"}, "optimizer: unknown choice, got 'lbfgs'; "),
        (
            {"optimizer": "adam", "optimizer_options": {"beta": [0.9, 0.99]}},
            r"optimizer_options\.beta: unknown key, got \[0.9, 0.99\]; .*'betas'\?",
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"betas": [1.5, 0.9]}},
            r"optimizer_options\.betas: out of range, got \[1.5, 0.9\]; .*Invalid beta",
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"betas": 0.9}},
            r"optimizer_options\.betas: wrong type, got 0.9; expected a list of 2 numbers",
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"amsgrad": 1}},
            r"optimizer_options\.amsgrad: wrong type, got 1; expected true or false",
        ),
        (
            {"optimizer": "adam", "optimizer_options": {"weight_decay": 0.1}},
            r"optimizer_options\.weight_decay: has its own key",
        ),
        (
            {"optimizer_options": {"nesterov": True}},
            "momentum: none for nesterov, got 0; expected a number > 0",
        ),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum: adam has none, got 0.9; expected 0"),
        ({"clip_norm": 0.0}, "clip_norm: out of range, got 0.0; expected a number > 0"),
        ({"precision": "float16"}, "precision: unknown choice, got 'float16'; .*'bfloat16'\\?"),
    ],
)
def test_a_mistake_is_one_line_in_a_table_and_in_python(
    tables: dict[str, Any], local: dict[str, Any], line: str
) -> None:
    tables["local"] = local
    with pytest.raises(ct.ConfigError, match=rf"^configuration: local\.{line}") as caught:
        check(tables)
    assert "\n" not in str(caught.value)
    with pytest.raises(ct.ConfigError, match=f"^{line}") as caught:
        ct.Solver(**local)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schedule", "line"),
    [
        ({"kind": "step"}, "every: missing; expected an integer >= 1"),
        ({"kind": "cosine", "gamma": 0.5}, "gamma: an option of kind 'step', got 0.5"),
        ({"kind": "cosin"}, "kind: unknown choice, got 'cosin'; .*'cosine'\\?"),
        ({"warmup": -1}, "warmup: out of range, got -1; expected an integer >= 0"),
    ],
)
def test_a_mistake_in_a_schedule(
    tables: dict[str, Any], schedule: dict[str, Any], line: str
) -> None:
    tables["local"] = {"step_schedule": schedule}
    with pytest.raises(ct.ConfigError, match=rf"^configuration: local\.step_schedule\.{line}"):
        check(tables)
    with pytest.raises(ct.ConfigError, match=f"^{line}"):
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

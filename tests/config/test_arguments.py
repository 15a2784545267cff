"""Arguments of Python calls are held to their annotations, and say so in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import numpy as np
import pytest
from torch import nn

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.core import Describe
from coterie.data.population import Population
from coterie.data.shifts import SHIFTS
from coterie.errors import Code
from coterie.measures.own_models import Adaptation
from coterie.methods.buffered import Buffering
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (
            lambda: ct.fedgroup(measure="edk"),
            ("unknown-choice", "measure"),
        ),
        (
            lambda: ct.fedgroup(ablation="RCC"),
            ("unknown-choice", "ablation"),
        ),
        (lambda: ct.fedgrouprox(mu=-1), ("out-of-range", "mu")),
        (lambda: ct.flexcfl(0), ("out-of-range", "groups")),
        (lambda: ct.ifca(groups=2.5), ("wrong-type", "groups")),
        (lambda: ct.fesem(groups=True), ("wrong-type", "groups")),
        (lambda: ct.fedprox(mu=float("nan")), ("not-finite", "mu")),
        (
            lambda: SHIFTS["swap_all"](p=1.5),
            ("out-of-range", "p"),
        ),
        (
            lambda: SHIFTS["swap_part"](pool="cold"),
            ("unknown-choice", "pool"),
        ),
        (lambda: SHIFTS["incremental"](share=0), ("out-of-range", "share")),
        (lambda: SHIFTS["arrivals"](count=2.5), ("wrong-type", "count")),
        (
            lambda: SHIFTS["departures"](round=-1),
            ("out-of-range", "round"),
        ),
        (lambda: SHIFTS["rotate_labels"](fraction="x"), ("wrong-type", "fraction")),
        (
            lambda: ct.Solver(batch_size=0),
            ("out-of-range", "batch_size"),
        ),
        (lambda: ct.Solver(lr="fast"), ("wrong-type", "lr")),
        # Every field of a record, and not only those that it has in a list.
        (lambda: Describe(labelled="no"), ("wrong-type", "labelled")),
        (lambda: Adaptation(layers="head"), ("wrong-type", "layers")),
        (lambda: Buffering(exponent=-1), ("out-of-range", "exponent")),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], refusal: tuple[Code, str]) -> None:
    with refuses(ct.ConfigError, *refusal) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value", "refusal"),
    [
        (
            "train",
            {"sampler": "cover"},
            ("unknown-choice", "train.sampler"),
        ),
        (
            "engine",
            "sreial",
            ("unknown-choice", "engine.name"),
        ),
        ("rounds", 0, ("out-of-range", "rounds")),
        ("engine", {"name": "pool", "workers": 0}, ("out-of-range", "engine.workers")),
        ("local", {"epochs": 0}, ("out-of-range", "local.epochs")),
    ],
)
def test_a_wrong_argument_of_run_is_named(
    population: Population, net: nn.Module, argument: str, value: Any, refusal: tuple[Code, str]
) -> None:
    with refuses(ct.ConfigError, *refusal):
        ct.run(ct.fedavg(), data=population, model=net, **{argument: value})


def test_l2_of_ones_own_network_is_on_all_its_kernels(
    population: Population, net: nn.Module
) -> None:
    def after(l2: float) -> ct.Result:
        local = ct.Solver(epochs=1, l2=l2)
        return ct.run(
            ct.fedavg(), data=population, model=net, local=local, rounds=1, engine="serial"
        )

    assert after(0.3).state.models.norm() < after(0.0).state.models.norm()


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(ct.ConfigError) as caught:
        ct.fedgroup(groups=0, alpha=0)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["groups", "alpha"]


def test_numbers_of_numpy_are_numbers() -> None:
    assert ct.fedgroup(groups=np.int64(4)).groups == 4
    assert ct.Solver(lr=np.float32(0.5)).lr == 0.5


@pytest.mark.parametrize("name", ALGORITHMS)
def test_factories_can_still_be_looked_at(name: str) -> None:
    factory = ALGORITHMS[name]
    parameters = inspect.signature(factory, eval_str=True).parameters
    assert set(get_type_hints(factory, include_extras=True)) == {*parameters, "return"}
    assert factory.__name__ == name
    assert factory.__doc__

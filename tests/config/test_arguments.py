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
from coterie.measures.own_models import Adaptation
from coterie.methods.buffered import Buffering


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda: ct.fedgroup(measure="edk"),
            "measure: unknown choice, got 'edk'; expected one of 'edc', 'madc'",
        ),
        (
            lambda: ct.fedgroup(ablation="RCC"),
            "ablation: unknown choice, got 'RCC'; .*did you mean 'rcc'",
        ),
        (lambda: ct.fedgrouprox(mu=-1), "mu: out of range, got -1; expected a number >= 0"),
        (lambda: ct.flexcfl(0), "groups: out of range, got 0; expected an integer >= 1"),
        (lambda: ct.ifca(groups=2.5), "groups: wrong type, got 2.5; expected an integer >= 1"),
        (lambda: ct.fesem(groups=True), "groups: wrong type, got true"),
        (lambda: ct.fedprox(mu=float("nan")), "mu: not finite"),
        (
            lambda: SHIFTS["swap_all"](p=1.5),
            "p: out of range, got 1.5; expected a number >= 0 and <= 1",
        ),
        (
            lambda: SHIFTS["swap_part"](pool="cold"),
            "pool: unknown choice, got 'cold'; expected one of 'warm', 'all'",
        ),
        (lambda: SHIFTS["incremental"](share=0), "share: out of range, got 0; expected a number"),
        (lambda: SHIFTS["arrivals"](count=2.5), "count: wrong type, got 2.5"),
        (
            lambda: SHIFTS["departures"](round=-1),
            "round: out of range, got -1; expected an integer >= 0",
        ),
        (lambda: SHIFTS["rotate_labels"](fraction="x"), "fraction: wrong type, got 'x'"),
        (
            lambda: ct.Solver(batch_size=0),
            "batch_size: out of range, got 0; expected an integer >= 1",
        ),
        (lambda: ct.Solver(lr="fast"), "lr: wrong type, got 'fast'; expected a number > 0"),
        # Every field of a record, and not only those that it has in a list.
        (lambda: Describe(labelled="no"), "labelled: wrong type, got 'no'; expected true or false"),
        (lambda: Adaptation(layers="head"), "layers: wrong type, got 'head'"),
        (lambda: Buffering(exponent=-1), "exponent: out of range, got -1"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], line: str) -> None:
    with pytest.raises(ct.ConfigError, match=f"^{line}") as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value", "line"),
    [
        (
            "train",
            {"sampler": "cover"},
            "train.sampler: unknown choice, got 'cover'; expected one of 'cover_then_uniform'",
        ),
        (
            "engine",
            "sreial",
            "engine.name: unknown choice, got 'sreial'; expected one of 'pool', 'serial'",
        ),
        ("rounds", 0, "train.rounds: out of range, got 0; expected an integer >= 1"),
        ("engine", {"name": "pool", "workers": 0}, "engine.workers: out of range, got 0"),
        ("local", ct.Solver(epochs=0), "local.epochs: out of range, got 0"),
    ],
)
def test_a_wrong_argument_of_run_is_named(
    population: Population, net: nn.Module, argument: str, value: Any, line: str
) -> None:
    with pytest.raises(ct.ConfigError, match=f"^{line}"):
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

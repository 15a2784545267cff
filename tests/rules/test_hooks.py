"""What a rule of the user's own may return: anything else is one line with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core import Served
from coterie.errors import ConfigError
from coterie.rules.weighing import Aggregate, Aggregated, by_size
from tests.conftest import blobs

NAN = float("nan")


def zeros(round: Any) -> np.ndarray:
    return np.zeros(len(round.cohort), np.int64)


def planned(groups: ct.Groups, round: Any) -> tuple[ct.Groups, ct.Plan]:
    """A right answer."""
    return groups.with_members(round.cohort, 0), ct.Plan(round.cohort, zeros(round))


def plan(**wrong: Callable[[Any], Any]) -> dict[str, Any]:
    """An assign rule whose plan has a wrong part."""

    def assign(groups: Any, round: Any) -> Any:
        groups, found = planned(groups, round)
        return groups, replace(found, **{name: make(round) for name, make in wrong.items()})

    return {"assign": assign}


def groups(**wrong: Callable[[ct.Groups], Any]) -> dict[str, Any]:
    """An assign rule whose groups have a wrong part."""

    def assign(groups: Any, round: Any) -> Any:
        groups, found = planned(groups, round)
        return replace(groups, **{name: make(groups) for name, make in wrong.items()}), found

    return {"assign": assign}


def combined(make: Callable[..., Any]) -> dict[str, Any]:
    def combine(groups: Any, updates: Any, weights: Any, plan: Any, round: Any) -> Any:
        return make(groups, updates.delta.mean(0)[None])

    return {"aggregate": Aggregate(combine)}


def served(make: Callable[[ct.Groups], Any]) -> dict[str, Any]:
    return {"serve": lambda groups: make(groups)}


# The slot, what of its value is wrong, and the method's slots.
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("assign", "value", {"assign": lambda groups, round: None}),
    ("assign", "value", {"assign": lambda groups, round: planned(groups, round)[1]}),
    ("assign", "plan.ids", plan(ids=lambda round: list(round.cohort))),
    ("assign", "plan.ids", plan(ids=lambda round: round.cohort + 100)),
    ("assign", "plan.ids", plan(ids=lambda round: round.cohort - 100)),
    ("assign", "plan.ids", plan(ids=lambda round: round.cohort * 0)),
    ("assign", "plan.ids", plan(ids=lambda round: None)),
    ("assign", "plan.row", plan(row=lambda round: [0] * len(round.cohort))),
    ("assign", "plan.row", plan(row=lambda round: zeros(round).astype(float))),
    ("assign", "plan.row", plan(row=lambda round: zeros(round)[:1])),
    ("assign", "plan.row", plan(row=lambda round: zeros(round)[:, None])),
    ("assign", "plan.row", plan(row=lambda round: zeros(round) - 1)),
    ("assign", "plan.row", plan(row=lambda round: zeros(round) + 1)),
    ("assign", "plan.chain", plan(chain=lambda round: zeros(round)[:1])),
    ("assign", "plan.mixtures", plan(mixtures=lambda round: np.full((1, 1), NAN))),
    ("assign", "plan.notes", plan(notes=lambda round: None)),
    ("assign", "groups.member", groups(member=lambda groups: list(groups.member))),
    ("assign", "groups.member", groups(member=lambda groups: groups.member[:2])),
    ("assign", "groups.member", groups(member=lambda groups: groups.member * 0 + 7)),
    ("assign", "groups.member", groups(member=lambda groups: groups.member * 0 - 3)),
    ("assign", "groups.models", groups(models=lambda groups: groups.models.double())),
    ("assign", "groups.models", groups(models=lambda groups: groups.models.numpy())),
    ("assign", "groups.models", groups(models=lambda groups: groups.models[0])),
    ("assign", "groups.models", groups(models=lambda groups: groups.models * NAN)),
    ("assign", "groups.models", groups(models=lambda groups: groups.models[:, :3])),
    ("weigh", "W", {"weigh": lambda *given: list(by_size(*given))}),
    ("weigh", "W", {"weigh": lambda *given: by_size(*given)[0]}),
    ("weigh", "W", {"weigh": lambda *given: by_size(*given) * NAN}),
    ("aggregate", "value", combined(lambda groups, mean: None)),
    ("aggregate", "total", combined(lambda groups, mean: Aggregated(groups, mean[0], np.ones(1)))),
    ("aggregate", "trained", combined(lambda groups, mean: Aggregated(groups, mean, np.ones(1)))),
    ("server", "value", {"server": lambda groups, total, trained: total}),
    (
        "server",
        "groups.models",
        {"server": lambda groups, total, trained: replace(groups, models=groups.models + total)},
    ),
    ("recluster", "value", {"recluster": lambda groups, updates, round: groups}),
    (
        "recluster",
        "updates.row",
        {
            "recluster": lambda groups, updates, round: (
                groups,
                replace(updates, row=updates.row + 4),
            )
        },
    ),
    ("inter_group", "value", {"inter_group": lambda groups: groups.models}),
    ("serve", "value", served(lambda groups: groups.member)),
    ("serve", "served.row", served(lambda groups: Served(groups.models, [0] * len(groups.member)))),
    ("serve", "served.row", served(lambda groups: Served(groups.models, groups.member * 0 - 1))),
    ("serve", "served.row", served(lambda groups: Served(groups.models, groups.member[:2]))),
]


def run(method: Any, **more: Any) -> ct.Result:
    solver = ct.Solver(epochs=1, lr=0.05)
    settings = {"data": blobs(), "model": "mclr", "rounds": 2, "engine": "serial", "local": solver}
    return ct.run(method, **{**settings, **more})


@pytest.mark.parametrize(("slot", "part", "slots"), WRONG)
def test_a_wrong_value_is_one_line_with_its_place(
    slot: str, part: str, slots: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        run(ct.Method(**{"assign": planned, **slots}))
    (problem,) = caught.value.problems
    assert problem.path == slot
    assert f"returned an invalid {part}" in problem.what
    assert f" at {Path(__file__)}, line " in problem.what
    assert problem.got
    assert problem.allowed


def test_right_values_are_those_of_fedavg() -> None:
    ours = run(ct.Method(assign=planned, weigh=lambda *given: by_size(*given)))
    assert torch.equal(ours.state.models, run(ct.fedavg()).state.models)


class Own:
    """An algorithm of the user's own."""

    def init(self, initial_models: Any, clients: int) -> Any:
        return ct.Groups(initial_models(0)[None], np.zeros(clients, np.int64))

    def step(self, state: Any, round: Any) -> Any:
        return state, {}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("init", lambda self, initial_models, clients: None),
        ("init", lambda self, initial_models, clients: ct.Groups(initial_models(0), [0])),
        ("step", lambda self, state, round: state),
        ("step", lambda self, state, round: (replace(state, models=state.models.double()), {})),
        ("step", lambda self, state, round: (state.with_members(round.cohort, 9), {})),
        ("serve", lambda self, state: None),
    ],
)
def test_so_is_one_of_an_algorithm_with_its_own_step(name: str, wrong: Any) -> None:
    own = type("Wrong", (Own,), {name: wrong})()
    with pytest.raises(ConfigError) as caught:
        run(own)
    assert caught.value.problems[0].path == name
    assert __file__ in caught.value.problems[0].what
    assert len(run(Own()).rows) == 2


@pytest.mark.parametrize(
    ("slot", "value"),
    [
        ("local", ct.Train),
        ("aggregate", lambda *given: None),
        ("first", 2),
        ("server", 3),
        ("inter_group", lambda groups, more: groups),
        ("serve", lambda: None),
    ],
)
def test_a_slot_that_holds_something_else_is_named(slot: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        run(ct.Method(**{"assign": planned, slot: value}))
    assert caught.value.problems[0].path == slot


@pytest.mark.parametrize("more", [{"server": "fedadam"}, {"personal": {"layers": ["0"]}}, {}])
def test_rules_inside_of_other_rules_are_named_too(more: dict[str, Any]) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(blobs().shape[0], 4), torch.nn.BatchNorm1d(4))
    network.append(torch.nn.Linear(4, blobs().classes))
    slots: dict[str, Any] = {"server": lambda groups, total, trained: total}
    if more:
        slots = {"inter_group": lambda groups: groups.models}
    with pytest.raises(ConfigError) as caught:
        run(ct.Method(assign=planned, **slots), model=network, **more)
    assert __file__ in caught.value.problems[0].what


@dataclass(frozen=True)
class Kept:
    record_name = "kept"
    value: Any


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, "text"])
def test_a_record_that_no_checkpoint_can_hold_is_refused(value: Any) -> None:
    state = ct.Groups(torch.zeros(1, 2), np.zeros(3, np.int64))
    with pytest.raises(TypeError, match=r"Kept\.value"):
        state.remember(Kept(value))


@pytest.mark.parametrize(
    "asked",
    [
        lambda models: {"models": models.numpy()},
        lambda models: {"models": models.double()},
        lambda models: {"models": models, "which": np.full(3, 1)},
        lambda models: {"models": models, "which": np.full(3, -1)},
    ],
)
def test_a_wrong_request_is_refused_before_it_is_sent(asked: Any) -> None:
    network = torch.nn.Linear(blobs().shape[0], blobs().classes)
    with ct.make_clients(blobs(), network, ct.Solver(), "serial") as clients:
        given = asked(ct.flatten(network)[None])
        with pytest.raises((TypeError, ValueError), match="models"):
            clients.run(ct.Score("train"), np.arange(3), key=ct.Key(0).at(0).of("a"), **given)

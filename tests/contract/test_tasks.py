"""Every method on every task that it allows; what it does not allow is refused in one line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

import coterie as ct
from coterie.data.shifts import rotate_labels, swap_all, swap_part
from coterie.engines.attacks import label_flip, sign_flip
from coterie.methods.algorithm import method_of
from coterie.rules.migration import Migrating
from coterie.tasks import TASKS, fit_task
from tests.contract.cases import ASK_EVERYTHING, Make, contract_cases
from tests.refusals import check_together, refuses

# Methods that migrate by default, or in their case: without it they train every task.
WITHOUT_MIGRATION: dict[str, Make] = {
    "flexcfl-still": lambda m: ct.flexcfl(groups=m, alpha=3, migration="none"),
    "fedclust-still": lambda m: ct.fedclust(groups=m, linkage="ward"),
    "flhc-still": lambda m: ct.flhc(warmup_rounds=0, metric="l2", groups=m),
}
CASES = contract_cases() | WITHOUT_MIGRATION
NOT_OF_CLASSES = ["multilabel", "regression", "next_token"]
SOLVER = ct.Solver(epochs=1, batch_size=8, lr=0.05)


class Places(nn.Module):
    """Logits of three tokens at each of two places."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.dense(x)
        return made.reshape(len(x), 2, 3)


def targets_of(task: str, x: Tensor, sign: Tensor) -> tuple[Tensor, int]:
    """Targets of a task that follow from inputs, another way for each planted group."""
    z = x * sign[:, None]
    match task:
        case "classification":
            return (z[:, 0] > 0).long() + 2 * (z[:, 1] > 0).long(), 4
        case "binary":
            return (z[:, 0] > 0).long(), 2
        case "multilabel":
            return (z[:, :3] > 0).float(), 0
        case "regression":
            return z[:, :2] + 0.1, 0
    return torch.stack([(z[:, 0] > 0).long(), 1 + (z[:, 1] > 0).long()], dim=1), 3


def data_of(task: str) -> ct.Population:
    """Twelve clients of two planted groups."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(12 * 24, 6)), dtype=torch.float32)
    planted = np.arange(12) % 2
    sign = torch.from_numpy(1 - 2 * np.repeat(planted, 24)).float()
    y, classes = targets_of(task, x, sign)
    parts = np.arange(len(x)).reshape(12, 24)
    return ct.Population(x, y, tuple(parts[:, :16]), tuple(parts[:, 16:]), classes, planted=planted)


def network_of(task: str) -> nn.Module:
    """A network of a task; fusion needs layers in a row."""
    torch_state = torch.random.get_rng_state()
    torch.random.default_generator.manual_seed(5)
    outputs = {"classification": 4, "binary": 1, "multilabel": 3, "regression": 2}
    if task == "next_token":
        net: nn.Module = Places()
    else:
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs[task]))
    torch.random.set_rng_state(torch_state)
    return net


def run(make: Make, task: str, **options: Any) -> ct.Result:
    given: dict[str, Any] = {"engine": "serial", "clients_per_round": 8, "rounds": 2, **options}
    return ct.run(
        make(2), data=data_of(task), model=network_of(task), local=SOLVER, task=task, **given
    )


def counts_classes(make: Make) -> bool:
    method = method_of(make(2))
    assert method is not None
    return "class_labels" in (method.needs or ()) or isinstance(method.assign, Migrating)


def mixes_predictions(make: Make) -> bool:
    method = method_of(make(2))
    assert method is not None
    return method.local.mixture is not None


def fuses(case: str) -> bool:
    return case.startswith("fedfusion")


def pairs() -> list[Any]:
    """Each method on each task. What is asked of clients trains all of them, and what the server does
    with the replies one without classes, which has several targets; the rest is `slow`.

    `test_algorithms` has each method on classes.
    """
    found = []
    for case in CASES:
        for task in TASKS:
            quick = case in (*ASK_EVERYTHING, *WITHOUT_MIGRATION) or task == "regression"
            found.append(pytest.param(case, task, marks=[] if quick else [pytest.mark.slow]))
    return found


@pytest.mark.parametrize(("case", "task"), pairs())
def test_a_method_trains_every_task_that_it_allows(case: str, task: str) -> None:
    make = CASES[case]
    if task in NOT_OF_CLASSES and counts_classes(make):
        with refuses(ct.ConfigError, "does-not-fit", "task.kind") as e:
            run(make, task)
        # One line, which says why: what of the method reads classes, and which task has none.
        assert re.search(rf"(counts|compares) the classes of .*'{task}'", str(e.value))
        assert "\n" not in str(e.value)
        return
    if task == "next_token" and fuses(case):
        with refuses(ct.ConfigError, "does-not-fit", "model.name"):
            run(make, task)
        return
    if task != "classification" and mixes_predictions(make):
        with refuses(ct.ConfigError, "does-not-fit", "task.kind"):
            run(make, task)
        return
    try:
        result = run(make, task)
    except Exception as error:
        error.add_note(f"{task}: a method that needs classes has 'class_labels' in its needs")
        raise
    assert torch.isfinite(result.state.models).all()
    row = result.rows[-1]
    name = result.headline.name
    assert row[name] is None or np.isfinite(row[name])
    assert row["clients_assigned"] == 0 or row[name] is not None
    assert not row["refused"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("case", ["fedgroup", "flexcfl-still", "flhc"])
def test_planted_groups_are_found_on_every_task(case: str, task: str) -> None:
    found = run(CASES[case], task, clients_per_round=12, rounds=3).groups
    # Whatever is learned: clients of a group learn it another way than those of the other one.
    assert adjusted_rand_score(np.arange(12) % 2, found) > 0.8


def pairs_on_workers() -> list[Any]:
    """Methods whose requests differ, on each task. Workers are given targets with the data and
    requests with the models, whichever the others are: one method has all tasks, and each other
    method the next task in turn; the rest is `slow`."""
    found = [pytest.param("fedavg", task) for task in TASKS]
    for turn, case in enumerate(["fedgroup", "ifca", "fedfusion", "local", "fesem"]):
        for at, task in enumerate(TASKS):
            marks = [] if at == turn % len(TASKS) else [pytest.mark.slow]
            found.append(pytest.param(case, task, marks=marks))
    return found


@pytest.mark.parametrize(("case", "task"), pairs_on_workers())
def test_engines_agree_on_every_task(case: str, task: str) -> None:
    make = CASES[case]
    if task == "next_token" and fuses(case):
        return
    serial = run(make, task)
    pool = run(make, task, engine={"name": "pool", "workers": 2})
    assert torch.equal(serial.state.models, pool.state.models)
    for one, other in zip(serial.rows, pool.rows, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_what_needs_classes_is_refused() -> None:
    def line(**options: Any) -> str:
        with pytest.raises(ct.CoterieError) as error:
            run(CASES["fedavg"], "regression", **options)
        return str(error.value)

    assert "rotate_labels changes class labels" in line(shift=rotate_labels(0, count=1))
    assert "swap_part changes class labels" in line(shift=swap_part(1.0, pool="all"))
    assert "attack.kind: changes labels of classes" in line(attack=label_flip(share=0.2))
    task = fit_task(TASKS["regression"](), data_of("regression"))
    task = fit_task(TASKS["regression"](), data_of("regression"))
    with refuses(ct.ConfigError, "does-not-fit", "train.measures"):
        check_together(ct.fedavg(), task=task, train={"rounds": 1, "measures": ["cpd", "balance"]})
    with refuses(ct.ConfigError, "does-not-fit", "task.kind"):
        check_together(ct.flexcfl(), task=task)
    check_together(ct.flexcfl(migration="none"), task=task)


def test_what_needs_no_classes_is_allowed() -> None:
    for options in ({"shift": swap_all(1.0, "all")}, {"attack": sign_flip(share=0.2)}):
        result = run(CASES["fedavg"], "regression", **options)
        assert np.isfinite(result.scores[-1])

"""Replies that are refused, and how they are counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.cohort import Sampler
from coterie.clients.validation import Expected, ReplyValidator
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.task import Binned, KnowsPossibleSums, Task
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import SerialEngine, make_clients
from coterie.local import LocalRunner
from coterie.methods.algorithm import as_algorithm
from coterie.models import initial_models
from coterie.runs.loop import simulate
from coterie.runs.schedule import Schedule
from coterie.tasks import TASKS
from tests.conftest import blobs, small_net
from tests.faults import CORRUPTIONS, corrupted

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)


def good(ids: list[int], round: int = 3) -> Reply:
    n = len(ids)
    fields = {"delta": np.ones((n, 5), np.float32), "size": np.full(n, 4.0), "loss": np.ones(n)}
    return Reply(round, np.array(ids), fields)


def validated(*replies: Reply) -> tuple[Reply, dict[str, int]]:
    expected = Expected(Train(), np.array([1, 2, 3]), round=3, d=5)
    reply, refused = ReplyValidator(cap=100).validate(expected, replies)
    return reply, dict(refused)


@pytest.mark.parametrize("how", [how for how in CORRUPTIONS if how != "zeros"])
def test_spoilt_replies_are_refused(how: str) -> None:
    reply, refused = validated(good([1]), corrupted(good([2]), how), good([3]))
    assert reply.ids.tolist() == [1, 3]
    assert sum(refused.values()) == 1


def test_late_strange_and_double_replies_are_refused() -> None:
    reply, refused = validated(good([3]), good([2], round=2), good([9]), good([3]), good([1]))
    assert reply.ids.tolist() == [1, 3]
    assert refused == {"late": 1, "stranger": 1, "duplicate": 1}


def test_refusals_at_an_evaluation_count_in_its_round() -> None:
    population = blobs()
    clients = Clients(
        SerialEngine(LocalRunner(population, small_net(), SOLVER)),
        ReplyValidator(cap=100, tested=1),
    )
    start = flatten(small_net())
    sampler = Sampler("uniform", np.arange(12), 4, Key(0))
    row = next(
        simulate(
            as_algorithm(ct.fedavg()),
            clients,
            population,
            start,
            Schedule(sampler, ct.Training(1), Key(0)),
        )
    ).row
    assert row["refused"] == {"size": 12}
    assert row["accuracy"] is None


def test_clients_with_more_test_than_training_samples_are_scored() -> None:
    some = blobs()
    population = some.with_parts(some.test, some.train)
    result = ct.run(
        ct.fedavg(),
        data=population,
        model=small_net(),
        local=SOLVER,
        rounds=2,
        clients_per_round=12,
    )
    everyone = LocalRunner(population, result.module, SOLVER).answer(
        Score("test"), np.arange(12), result.state.models[:1], np.zeros(12, int), Key(0)
    )
    assert result.accuracy[-1] == everyone.fields["correct"].sum() / population.sizes("test").sum()
    assert not any(row["refused"] for row in result.rows)


def test_a_client_that_grows_is_not_refused() -> None:
    population = blobs()
    clients = make_clients(population, small_net(population.classes), SOLVER, "serial")
    one = np.concatenate(population.train)
    grown = population.with_parts((one, *population.train[1:]), population.test)
    clients = clients.holding(grown)
    w = initial_models(small_net(population.classes), Key(0))(0)[None]
    reply = clients.run(Train(), np.array([0]), w, np.array([0]), key=Key(0))
    assert reply.fields["size"].tolist() == [len(one)]
    assert not clients.ledger.refused


@pytest.mark.parametrize("wins", [[3.0, 2.0], [-1.0, 5.0], [1.5, 2.5], [np.nan, 4.0]])
def test_wins_that_do_not_add_up_to_the_samples_are_refused(wins: list[float]) -> None:
    expected = Expected(Score("train", per="sample_winner"), np.array([1, 2]), round=3, r=2)
    fields = {"wins": np.array([[3.0, 1.0], wins]), "size": np.full(2, 4.0)}
    reply, refused = ReplyValidator(cap=100).validate(
        expected, [Reply(3, np.array([1, 2]), fields)]
    )
    assert reply.ids.tolist() == [1]
    assert sum(refused.values()) == 1


def task_sums(name: str) -> tuple[Task, dict[str, np.ndarray]]:
    """A task, and the sums of one client with 40 samples under one model."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(40, 2, generator=generator)
    outputs = torch.randn(40, 2, generator=generator)
    if name == "regression":
        task: Task = TASKS[name]().fitted(targets, 0)
    elif name == "multilabel":
        targets = (targets > 0).long()
        task = TASKS[name]().fitted(targets, 0)
    elif name == "binary":
        targets = (targets[:, 0] > 0).long()
        outputs = outputs[:, :1]
        task = TASKS[name]().fitted(targets, 2)
    elif name == "classification":
        targets = torch.randint(3, (40,), generator=generator)
        outputs = torch.randn(40, 3, generator=generator)
        task = TASKS[name](headline="macro_f1").fitted(targets, 3)
    else:
        targets = torch.randint(3, (40, 5), generator=generator)
        outputs = torch.randn(40, 5, 3, generator=generator)
        task = TASKS[name]().fitted(targets, 3)
    sums = {"size": np.array([40.0])}
    for field, added in task.added(outputs, targets).items():
        if isinstance(added, Binned):
            weight = None if added.weight is None else added.weight.numpy()
            found = np.bincount(added.place.numpy(), weight, minlength=added.bins)
        else:
            found = added.double().sum(dim=0).numpy()
        sums[field] = found[None, None].astype(np.float64)
    return task, sums


IMPOSSIBLE = [
    ("classification", "held", 1e9),
    ("classification", "hits", 41.0),
    ("classification", "predicted", 41.0),
    ("classification", "correct", 0.0),
    ("binary", "squared", -1.0),
    ("binary", "squared", 41.0),
    ("binary", "scores", 1e9),
    ("binary", "answers", 1e9),
    ("binary", "correct", 0.0),
    ("binary", "calibration", 1e9),
    ("binary", "log_loss", -1.0),
    ("multilabel", "right", 1e9),
    ("multilabel", "hits", 41.0),
    ("multilabel", "called", 41.0),
    ("multilabel", "exact", 41.0),
    ("regression", "squared", -1.0),
    ("regression", "squared", 0.0),
    ("regression", "absolute", 1e9),
    ("regression", "target", 1e9),
    ("next_token", "right", 1e9),
    ("next_token", "surprise", -1.0),
]


@pytest.mark.parametrize(("name", "field", "value"), IMPOSSIBLE)
def test_sums_that_no_samples_have_are_refused(name: str, field: str, value: float) -> None:
    task, sums = task_sums(name)
    work = Score("test", loss=False, sums=task.sums)
    expected = Expected(work, np.array([1]), round=3, d=5)
    assert isinstance(task, KnowsPossibleSums)
    validator = ReplyValidator(task=task)
    reply, refused = validator.validate(expected, [Reply(3, np.array([1]), sums)])
    assert len(reply) == 1
    assert not refused
    spoilt = {**sums, field: np.full_like(sums[field], value)}
    reply, refused = validator.validate(expected, [Reply(3, np.array([1]), spoilt)])
    assert len(reply) == 0
    assert set(refused) <= {"sums", "correct"}
    assert sum(refused.values()) == 1

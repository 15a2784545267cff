"""Workers of the pool that share the scoring of networks for which there is no compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.task import Task
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import PoolEngine, SerialEngine
from coterie.local import LocalRunner
from coterie.local.scoring.network import NetworkScorer
from coterie.tasks import CLASSIFICATION
from coterie.tasks.binary import Binary
from coterie.tasks.regression import Regression

SOLVER = ct.Solver(epochs=1, batch_size=8, lr=0.01)
CLIENTS = 9


class Residual(nn.Module):
    """No chain of layers, so that it has no compiled code."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.last = nn.Linear(6, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(x + torch.tanh(self.first(x)))
        return out


class Convolution(nn.Module):
    """Of images: they are scored in smaller batches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.GroupNorm(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


def population(shape: tuple[int, ...] = (6,), *, numbers: bool = False) -> ct.Population:
    """Nine clients with some hundred test samples each; one has none."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(60, 400, CLIENTS)
    sizes[4] = 0
    x = torch.from_numpy(rng.standard_normal((int(sizes.sum()), *shape), np.float32))
    y = torch.from_numpy(rng.integers(3, size=len(x)))
    if numbers:
        y = torch.from_numpy(rng.standard_normal((len(x), 1), np.float32))
    parts = tuple(np.split(np.arange(len(x)), np.cumsum(sizes)[:-1]))
    train = tuple(np.arange(10 * client, 10 * client + 10) for client in range(CLIENTS))
    return ct.Population(x, y, train, parts, 0 if numbers else 3)


@contextmanager
def pool(
    data: ct.Population,
    net: nn.Module,
    task: Task = CLASSIFICATION,
    workers: int = 2,
    start: str | None = None,
) -> Iterator[PoolEngine]:
    """A pool whose workers run: they trained a client."""
    engine = PoolEngine(LocalRunner(data, net, SOLVER, task=task), workers, start=start)
    one = np.zeros(1, np.int64)
    try:
        engine.run(Train(), one, flatten(net)[None], one, key=Key(1))
        yield engine
    finally:
        engine.close()


def serial(data: ct.Population, net: nn.Module, task: Task = CLASSIFICATION) -> SerialEngine:
    return SerialEngine(LocalRunner(data, net, SOLVER, task=task))


def scores(
    engine: Any, net: nn.Module, work: Score, which: IntArray, scale: float = 1.0
) -> dict[str, Any]:
    """What an engine finds of all clients, each under some of nine models. With another scale they
    are others, since what is known is not scored again."""
    models = scale * flatten(net) * torch.linspace(-0.5, 1.5, CLIENTS)[:, None]
    [reply] = engine.run(work, np.arange(CLIENTS), models, which, key=Key(1))
    return dict(reply.fields)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert np.array_equal(found[name], values), name


@pytest.fixture
def by_workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """When called, this process can no longer score by itself. Workers run already: they can."""

    def refuse(*_: Any) -> None:
        raise AssertionError("this process scores, and no worker")

    return lambda: monkeypatch.setattr(NetworkScorer, "per_sample", refuse)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "work",
    [
        Score("test"),
        Score("test", loss=False),
        Score("test", sums=()),
        Score("test", per="sample_winner", sums=()),
    ],
    ids=["all", "no loss", "only the loss", "winners"],
)
def test_workers_find_the_bits_of_one_process(
    workers: int, work: Score, by_workers: Callable[[], None]
) -> None:
    torch.manual_seed(0)
    data, net = population(), Residual()
    which = np.random.default_rng(1).integers(3, size=(CLIENTS, 2))
    if work.per == "sample_winner":
        which = np.tile([0, 2], (CLIENTS, 1))  # as methods ask: everybody's samples, all models
    expected = scores(serial(data, net), net, work, which)
    with pool(data, net, workers=workers) as engine:
        by_workers()
        assert_same(scores(engine, net, work, which), expected)


@pytest.mark.parametrize("shape", [(6,), (1, 5, 5)])
def test_samples_that_clients_share_are_scored_once(
    shape: tuple[int, ...], by_workers: Callable[[], None]
) -> None:
    torch.manual_seed(0)
    data, net = population(shape), Residual() if shape == (6,) else Convolution()
    everything = np.arange(len(data.y))
    data = replace(data, test=tuple(everything[client:] for client in range(CLIENTS)))
    which = np.arange(CLIENTS) % 3
    expected = scores(serial(data, net), net, Score("test"), which)
    with pool(data, net) as engine:
        by_workers()
        assert_same(scores(engine, net, Score("test"), which), expected)


def test_workers_that_were_spawned_have_networks_of_their_own(
    by_workers: Callable[[], None],
) -> None:
    """What is sent to them lies in memory that they share."""
    torch.manual_seed(0)
    data, net = population(), Residual()
    which = np.tile([0, 1, 2], (CLIENTS, 1))
    scales = (1.0, 1.1, 1.2, 1.3)
    alone = serial(data, net)
    expected = [scores(alone, net, Score("test"), which, scale) for scale in scales]
    with pool(data, net, start="spawn") as engine:
        by_workers()
        for scale, known in zip(scales, expected, strict=True):
            assert_same(scores(engine, net, Score("test"), which, scale), known)


def test_each_client_has_a_model_of_its_own(by_workers: Callable[[], None]) -> None:
    torch.manual_seed(0)
    data, net = population(), Residual()
    expected = scores(serial(data, net), net, Score("test"), np.arange(CLIENTS))
    with pool(data, net) as engine:
        # So many models want more room than there is, for which workers are started anew.
        scores(engine, net, Score("test"), np.arange(CLIENTS), scale=0.5)
        by_workers()
        assert_same(scores(engine, net, Score("test"), np.arange(CLIENTS)), expected)


def test_histograms_are_those_of_one_process(by_workers: Callable[[], None]) -> None:
    """Sums that each sample adds a place to, and not numbers."""
    torch.manual_seed(0)
    data, net = population(), Residual(1)
    data = replace(data, y=data.y % 2, classes=2)
    task = Binary()
    work = Score("test", sums=task.sums)
    which = np.arange(CLIENTS) % 3
    expected = scores(serial(data, net, task), net, work, which)
    with pool(data, net, task) as engine:
        by_workers()
        assert_same(scores(engine, net, work, which), expected)


def test_numbers_are_scored_by_workers(by_workers: Callable[[], None]) -> None:
    torch.manual_seed(0)
    data, net = population(numbers=True), Residual(1)
    task = Regression()
    work = Score("test", sums=task.sums)
    which = np.zeros(CLIENTS, np.int64)
    expected = scores(serial(data, net, task), net, work, which)
    with pool(data, net, task) as engine:
        by_workers()
        assert_same(scores(engine, net, work, which), expected)


def test_a_few_samples_are_scored_by_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    data, net = population(), Residual()
    data = replace(data, test=tuple(part[:5] for part in data.test))
    with pool(data, net) as engine:
        monkeypatch.setattr(engine.pool, "ask", lambda *_: pytest.fail("workers were asked"))
        found = scores(engine, net, Score("test"), np.zeros(CLIENTS, np.int64))
        monkeypatch.undo()
    assert found["size"].sum() == 40


@pytest.mark.parametrize("what", ["samples", "labels"])
def test_workers_score_what_changed_hands(what: str, by_workers: Callable[[], None]) -> None:
    torch.manual_seed(0)
    data, net = population(), Residual()
    later = replace(data, test=(*data.test[1:], data.test[0]))
    if what == "labels":
        later = replace(data, y=(data.y + 1) % 3)
    which = np.arange(CLIENTS) % 3
    alone = serial(later, net)
    expected = scores(alone, net, Score("test"), which)
    trained = training(alone, net)
    with pool(data, net) as engine:
        before = scores(engine, net, Score("test"), which)
        engine.set_population(later)
        assert engine.processes, "samples changed hands, and workers stay"
        by_workers()
        found = scores(engine, net, Score("test"), which)
        assert_same(found, expected)
        assert not np.array_equal(found["loss"], before["loss"])
        # What scoring took over is known to training, too.
        assert np.array_equal(training(engine, net), trained)


def training(engine: Any, net: nn.Module) -> Any:
    """What all clients' updates are."""
    ids = np.arange(CLIENTS)
    [reply] = engine.run(Train(), ids, flatten(net)[None], np.zeros_like(ids), key=Key(2))
    return reply.fields["delta"]


def test_this_process_scores_when_a_worker_died() -> None:
    torch.manual_seed(0)
    data, net = population(), Residual()
    which = np.arange(CLIENTS) % 3
    expected = scores(serial(data, net), net, Score("test"), which)
    with pool(data, net) as engine:
        engine.processes[0].kill()
        engine.processes[0].join()
        assert_same(scores(engine, net, Score("test"), which), expected)
        assert not engine.processes, "the pool is made anew"


class Fails(Residual):
    """Trains, and cannot be scored."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            raise ValueError("no score today")
        return super().forward(x)


def test_a_network_that_fails_says_so() -> None:
    data, net = population(), Fails()
    with pool(data, net) as engine, pytest.raises(ValueError, match="no score today"):
        scores(engine, net, Score("test"), np.zeros(CLIENTS, np.int64))

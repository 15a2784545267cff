"""Threads of a client's training: who takes them, and that engines agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Evaluate, Train
from coterie.engines import PoolEngine, SerialEngine, worker_pool
from coterie.local import LocalRunner
from coterie.objectives import plain
from tests.conftest import blobs

SOLVER = ct.Solver(epochs=1, batch_size=20, lr=0.1)


class OnThreads(nn.Module):
    """Layers that check on how many threads they train, and on how many they are scored."""

    def __init__(self, threads: int, scored: int | None = None) -> None:
        super().__init__()
        self.threads = threads
        self.scored = scored
        self.body = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 4))

    def forward(self, x: Tensor) -> Tensor:
        expected = self.threads if self.training else self.scored
        if expected is not None and torch.get_num_threads() != expected:
            raise RuntimeError(f"{torch.get_num_threads()} threads in place of {expected}")
        return self.body(x)


def trained(engine: Any, population: ct.Population, net: nn.Module) -> Reply:
    ids = np.arange(population.clients)
    key = Key(1).at(0)
    with Clients(engine) as clients:
        reply = clients.run(Train(plain), ids, flatten(net)[None], np.zeros_like(ids), key=key)
        if isinstance(engine, PoolEngine):
            clients.run(Evaluate(), ids, flatten(net)[None], np.zeros_like(ids), key=key)
        return reply


def test_a_pool_trains_on_two_threads_as_serial_does() -> None:
    population = blobs(clients=6, size=300)
    net = OnThreads(2, scored=1)
    before = torch.get_num_threads()
    alone = trained(SerialEngine(LocalRunner(population, net, SOLVER), threads=2), population, net)
    assert torch.get_num_threads() == before
    pool = PoolEngine(LocalRunner(population, net, SOLVER), 2, threads=2)
    together = trained(pool, population, net)
    assert np.array_equal(together.fields["delta"], alone.fields["delta"])
    assert np.array_equal(together.fields["loss"], alone.fields["loss"])


def test_workers_are_as_many_as_there_are_cores_for_their_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.engines.pool.cores", lambda: 8)
    runner = LocalRunner(blobs(), OnThreads(3), SOLVER)
    assert [PoolEngine(runner, threads=n).pool.workers for n in (1, 3, 8, 9)] == [8, 2, 1, 1]
    # A fork would wait for the threads of its parent, which it does not have.
    assert worker_pool.start_method(2) == "spawn"


def test_a_run_in_python_takes_them() -> None:
    result = ct.run(
        ct.fedavg(), data=blobs(), model=OnThreads(2), rounds=1, engine="serial", threads=2
    )
    assert len(result.rows) == 1

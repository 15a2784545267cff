"""Threads of a client's training: who takes them, and that engines agree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Score, SelectGroup, Train
from coterie.engines import PoolEngine, SerialEngine
from coterie.engines.pool import processes
from coterie.errors import ConfigError
from coterie.local import LocalRunner
from tests.conftest import PATIENCE, assert_near, blobs
from tests.refusals import refuses

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


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """This process uses two threads, whatever the machine has: more than workers score on."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def trained(engine: Any, population: ct.Population, net: nn.Module) -> Reply:
    ids = np.arange(population.clients)
    key = Key(1).at(0)
    with Clients(engine) as clients:
        reply = clients.run(Train(), ids, flatten(net)[None], np.zeros_like(ids), key=key)
        if isinstance(engine, PoolEngine):
            # Where a worker fails the main process scores, and this network fails there.
            clients.run(Score(), ids, flatten(net)[None], np.zeros_like(ids), key=key)
        return reply


def test_a_pool_trains_on_three_threads_as_serial_does() -> None:
    population = blobs(clients=6, size=300)
    net = OnThreads(3, scored=1)
    alone = trained(SerialEngine(LocalRunner(population, net, SOLVER), threads=3), population, net)
    assert torch.get_num_threads() == 2
    pool = PoolEngine(LocalRunner(population, net, SOLVER), 1, threads=3)
    together = trained(pool, population, net)
    # Up to rounding: on several threads MKL promises no order of sums from one process to the next
    # (Developer Guide, "Reproducibility Conditions"). Twenty steps round weights of 0.4 and less.
    for name in ("delta", "loss"):
        assert_near(together.fields[name], alone.fields[name], within=2e-5)


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_selects_its_group_trains_on_as_many(count: int) -> None:
    population = blobs(clients=2)
    net = OnThreads(count)
    ids = np.arange(2)
    models = torch.stack([flatten(net), torch.ones(Layout.of(net).d)])
    work = SelectGroup(Train())
    engine = SerialEngine(LocalRunner(population, net, SOLVER), threads=count)
    reply = Clients(engine).run(work, ids, models, np.array([[0, 1], [0, 1]]), key=Key(1).at(0))
    assert len(reply) == 2


def test_workers_are_as_many_as_there_are_cores_for_their_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.engines.pool.engine.cores", lambda: 8)
    runner = LocalRunner(blobs(), OnThreads(3), SOLVER)
    assert [PoolEngine(runner, threads=n).pool.workers for n in (1, 3, 8, 9)] == [8, 2, 1, 1]
    # A fork would wait for the threads of its parent, which it does not have.
    assert processes.start_method(2) == "spawn"
    with pytest.raises(ValueError, match="a fork trains on one thread"):
        PoolEngine(runner, start="fork", threads=2)


def test_samples_on_disk_need_a_fork() -> None:
    population = replace(blobs(), on_disk=True)
    runner = LocalRunner(population, OnThreads(2), SOLVER)
    with refuses(ConfigError, "does-not-fit", "engine.name"):
        PoolEngine(runner, threads=2)
    with refuses(ConfigError, "does-not-fit", "engine.name"):
        PoolEngine(runner, start="spawn")
    PoolEngine(runner, start="fork")


WITHOUT_A_GUARD = """
import torch
import coterie as ct
# More than fits a pipe that nobody reads.
size = 20_000
rows = (range(size),)
data = ct.Population(torch.ones(size, 6), torch.zeros(size, dtype=torch.int64), rows, rows, 2)
ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine={"name": "pool", "threads": 2, "workers": 1})
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_A_GUARD)
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=place,
        check=False,
        timeout=PATIENCE,
    )
    assert "engine.name: all processes of the pool ended at startup" in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("coterie.errors.ConfigError")


def test_a_run_in_python_takes_them() -> None:
    result = ct.run(
        ct.fedavg(),
        data=blobs(),
        model=OnThreads(3),
        rounds=1,
        engine={"name": "serial", "threads": 3},
    )
    assert len(result.rows) == 1
    with refuses(ConfigError, "in-conflict", "engine.threads"):
        ct.run(
            ct.fedavg(),
            data=blobs(),
            model=OnThreads(3),
            rounds=1,
            engine={"name": "vmap", "threads": 3},
        )

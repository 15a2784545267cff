"""Workers of the pool that score the clients they keep, and that die meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import PoolEngine, SerialEngine
from coterie.engines.pool.engine import shared_out
from coterie.local import LocalRunner
from tests.conftest import PATIENCE
from tests.lazy_federations import SOLVER, clients_made, federation, run_small, score, small_clients


def test_workers_score_what_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clients_made(monkeypatch)
    pooled = run_small(federation(60, lazy=True), engine={"name": "pool", "workers": 2})
    assert not made, "workers make samples, this process does not"
    single = run_small(federation(60, lazy=True), engine="serial")
    assert [row["accuracy_all"] for row in pooled.rows] == [
        row["accuracy_all"] for row in single.rows
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_worker_that_dies_or_hangs_while_it_scores(number: int | None) -> None:
    data = small_clients(60_000)
    net = nn.Sequential(nn.Linear(4, 2))
    expected = score(SerialEngine(LocalRunner(data, net, SOLVER)), data, net)
    engine = PoolEngine(
        LocalRunner(data, net, SOLVER), workers=2, round_timeout=None if number else 5.0
    )
    few = np.arange(4)
    try:
        engine.run(Train(), few, flatten(net)[None], np.zeros(4, np.int64), key=Key(1))
        stuck = engine.processes[1].pid
        os.kill(stuck, signal.SIGSTOP)
        if number:
            threading.Timer(0.5, os.kill, (stuck, number)).start()
        found = score(engine, data, net)
        assert not engine.processes, "the pool is made anew"
    finally:
        engine.close()
    for name, values in expected.items():
        assert np.array_equal(found[name], values)


ORPHANS = """
import os, signal, sys, threading
import numpy as np
from torch import nn
from coterie.local.runner import LocalRunner
from coterie.engines import PoolEngine
from coterie.core.keys import Key
from coterie.objectives import plain
from coterie.core.work import Score, Train
from coterie.core.vectors import flatten
from tests.lazy_federations import SOLVER, small_clients, score

data, net = small_clients(60_000), nn.Sequential(nn.Linear(4, 2))
engine = PoolEngine(LocalRunner(data, net, SOLVER), workers=2)
engine.run(Train(), np.arange(4), flatten(net)[None], np.zeros(4, np.int64), key=Key(1))
print(*(process.pid for process in engine.processes), flush=True)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    score(engine, data, net)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_workers_end_with_a_parent_that_is_killed_while_they_score() -> None:
    def lives(pid: str) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    process = subprocess.run(
        [sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=PATIENCE
    )
    pids = process.stdout.split()
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(pids) == 2
    end = time.monotonic() + PATIENCE
    while any(map(lives, pids)) and time.monotonic() < end:
        time.sleep(0.2)
    assert not any(map(lives, pids))


def test_scores_of_a_worker_that_was_killed_are_made_in_this_process() -> None:
    data = federation(9, lazy=True)
    net = nn.Sequential(nn.Linear(60, 10))
    models = flatten(net)[None]
    ids = np.arange(9)
    zero = np.zeros(9, np.int64)
    engine = PoolEngine(LocalRunner(data, net, SOLVER), workers=2)
    try:
        engine.run(Train(), ids, models, zero, key=Key(1))
        both = engine.run(Score("test"), ids, models, zero, key=Key(1))
        by = shared_out(data.sizes("test"), 2)
        assert [reply.ids.tolist() for reply in both] == [
            np.flatnonzero(by == w).tolist() for w in (0, 1)
        ]
        engine.processes[0].kill()
        engine.processes[0].join()
        (alone,) = engine.run(Score("test"), ids, models, zero, key=Key(1))
    finally:
        engine.close()
    for reply in both:
        for name, values in reply.fields.items():
            assert np.array_equal(alone.fields[name][reply.ids], values)


@given(sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=50), workers=st.integers(1, 7))
def test_workers_score_as_many_samples_each(sizes: list[int], workers: int) -> None:
    by = shared_out(np.array(sizes), workers)
    loads = [np.array(sizes)[by == worker].sum() for worker in range(workers)]
    assert by.min() >= 0
    assert max(loads) - min(loads) <= max(sizes)

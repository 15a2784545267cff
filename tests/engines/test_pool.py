"""The pool: workers that die, raise or hang, and what they score."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.process import cores
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import PoolEngine, SerialEngine, silence
from coterie.engines.pool import stopped
from coterie.engines.pool.processes import cores_of_workers
from coterie.engines.pool.sharing import pack_arguments, unpack_arguments
from coterie.engines.pool.worker import PartJob
from coterie.engines.simulation import ClientError
from coterie.errors import ConfigError, CoterieError
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net
from tests.refusals import refuses

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)


class Troubled(nn.Module):
    """Sleeps, raises, or kills its own process, once per mark on the disk or always."""

    def __init__(self, mark: Any, trouble: str) -> None:
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.mark = mark
        self.trouble = trouble

    def forward(self, x: Tensor) -> Tensor:
        if self.trouble == "raise":
            raise RuntimeError("no such layer")
        if self.trouble == "sleep":
            time.sleep(0.2)
        if self.trouble == "die" and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "die always":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.body(x)


def ask(engine: Any, population: ct.Population, net: nn.Module, round: int = 0) -> Reply:
    with Clients(engine) as clients:
        return asked(clients, population, net, round)


def asked(clients: Clients, population: ct.Population, net: nn.Module, round: int = 0) -> Reply:
    ids = np.arange(population.clients)
    return clients.run(Train(), ids, flatten(net)[None], np.zeros_like(ids), key=Key(1).at(round))


# By default a spawned worker is killed at its start and between rounds, in tests of their own below.
@pytest.mark.parametrize(
    ("start", "workers"),
    [("fork", 2), ("fork", 1), pytest.param("spawn", 1, marks=pytest.mark.slow)],
)
def test_a_worker_that_dies_is_replaced_and_nothing_changes(
    tmp_path: Any, start: str, workers: int
) -> None:
    population = blobs()
    net = Troubled(tmp_path / "died", "die")
    engine = PoolEngine(LocalRunner(population, net, SOLVER), workers, start=start)
    replies = ask(engine, population, net)
    assert (tmp_path / "died").exists()
    expected = ask(SerialEngine(LocalRunner(population, net, SOLVER)), population, net)
    assert np.array_equal(replies.ids, expected.ids)
    assert np.array_equal(replies.fields["delta"], expected.fields["delta"])


def test_workers_that_died_between_rounds_are_replaced() -> None:
    population = blobs()
    net = small_net()
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 1, start="fork")
    with Clients(engine) as clients:
        before = asked(clients, population, net)
        kill_the_worker(engine)
        after = asked(clients, population, net)
    assert np.array_equal(before.fields["delta"], after.fields["delta"])


def kill_the_worker(engine: PoolEngine) -> None:
    (process,) = engine.processes
    process.kill()
    process.join()


def test_a_worker_that_stays_stopped_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lives and answers nothing: the run was silent for ever."""
    monkeypatch.setattr(stopped, "LOOK", 0.05)
    monkeypatch.setattr(stopped, "KILLED", 20)
    population = blobs()
    net = small_net()
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    with Clients(engine) as clients:
        asked(clients, population, net)
        before = engine.processes[1].pid
        os.kill(before, signal.SIGSTOP)
        found = asked(clients, population, net, 1)
        assert before not in [process.pid for process in engine.processes]
        after = asked(clients, population, net, 2)
    with Clients(SerialEngine(LocalRunner(population, net, SOLVER))) as serial:
        for round, reply in ((1, found), (2, after)):
            expected = asked(serial, population, net, round)
            assert np.array_equal(reply.fields["delta"], expected.fields["delta"])
    assert capsys.readouterr().err.count(f"worker process {before} is stopped") == 1


def test_a_worker_that_is_continued_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    population = blobs()
    net = small_net()
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    lines = []

    def continue_it(line: str) -> None:
        lines.append(line)
        os.kill(before[1], signal.SIGCONT)

    monkeypatch.setattr(stopped, "LOOK", 0.05)
    monkeypatch.setattr(stopped, "warn", continue_it)
    with Clients(engine) as clients:
        asked(clients, population, net)
        before = [process.pid for process in engine.processes]
        os.kill(before[1], signal.SIGSTOP)
        asked(clients, population, net, 1)
        assert [process.pid for process in engine.processes] == before
    assert len(lines) == 1


def test_a_job_larger_than_the_pipe_for_a_worker_that_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopped, "KILLED", 1)
    population = blobs()
    net = small_net()
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    with Clients(engine) as clients:
        asked(clients, population, net)
        os.kill(engine.processes[1].pid, signal.SIGSTOP)
        jobs = [PartJob(Score(), [np.arange(10**5)], 0, 2, 0, [])] * 2
        assert engine.pool.ask(jobs, None) is None


@pytest.mark.slow
def test_a_spawned_worker_that_is_killed_at_its_start_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no fault of the user's script."""
    population = blobs()
    net = small_net()
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 1, start="spawn")
    wait_until_they_listen = engine.pool._wait_until_they_listen
    killed = []

    def kill_the_first() -> None:
        if not killed:
            killed.extend(process.pid for process in engine.processes)
            kill_the_worker(engine)
        wait_until_they_listen()

    monkeypatch.setattr(engine.pool, "_wait_until_they_listen", kill_the_first)
    found = ask(engine, population, net)
    assert killed
    expected = ask(SerialEngine(LocalRunner(population, net, SOLVER)), population, net)
    assert np.array_equal(found.fields["delta"], expected.fields["delta"])


def test_workers_that_always_die_say_how() -> None:
    population = blobs()
    net = Troubled(None, "die always")
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 1, retries=1, start="fork")
    with refuses(CoterieError, "failed", "engine"):
        ask(engine, population, net)


def test_shared_memory_that_is_too_small_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("unable to allocate shared memory (shm): No space left on device (28)")

    population = blobs()
    net = small_net()
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 1, start="spawn")
    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with refuses(ConfigError, "failed", "engine.name"):
        ask(engine, population, net)


def test_a_network_that_cannot_be_sent_is_one_line() -> None:
    population = blobs()
    net = small_net()
    net.rule = lambda x: x
    engine = PoolEngine(LocalRunner(population, net, SOLVER), 2, start="spawn")
    with refuses(ConfigError, "failed", "engine.name"):
        ask(engine, population, net)
    assert not engine.processes


def test_workers_killed_from_outside_change_nothing() -> None:
    population = blobs(clients=60, size=120)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    runner = LocalRunner(population, net, ct.Solver(epochs=5, batch_size=5))
    expected = ask(SerialEngine(runner), population, net)
    engine = PoolEngine(runner, 2)

    def kill() -> None:
        # In the midst of the work, however fast this machine is now.
        while not engine.processes or not engine.pool.done.any():
            time.sleep(0.001)
        os.kill(engine.processes[1].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    replies = ask(engine, population, net)
    killer.join()
    assert np.array_equal(replies.fields["delta"], expected.fields["delta"])


@pytest.mark.parametrize("kind", [SerialEngine, PoolEngine])
def test_a_client_that_raises_is_named(kind: Any) -> None:
    population = blobs()
    net = Troubled(None, "raise")
    with pytest.raises(ClientError) as caught:
        ask(kind(LocalRunner(population, net, SOLVER)), population, net, round=7)
    assert caught.value.problems[0].path.startswith("client ")
    assert "no such layer" in str(caught.value)


@pytest.mark.parametrize("kind", [SerialEngine, partial(PoolEngine, workers=1)])
def test_a_round_timeout_leaves_stragglers_out(
    kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """One client after another, which together sleep for longer than the round lasts. Nothing said
    that clients were left out."""
    population = blobs(clients=4)
    net = Troubled(None, "sleep")
    engine = kind(
        LocalRunner(population, net, ct.Solver(epochs=1, batch_size=10)), round_timeout=1.0
    )
    left = 4 - len(ask(engine, population, net))
    assert left > 0
    assert f"round 1: {left} of 4 clients " in capsys.readouterr().err


def test_a_wait_for_workers_that_may_hang_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client's own code that hangs is no process that is stopped: the run was silent for ever."""
    monkeypatch.setattr(stopped, "LOOK", 0.02)
    monkeypatch.setattr(silence, "SILENT", 0.1)
    population = blobs(clients=4)
    net = Troubled(None, "sleep")
    engine = PoolEngine(
        LocalRunner(population, net, ct.Solver(epochs=1, batch_size=10)), 1, round_timeout=1.0
    )
    ask(engine, population, net)
    assert capsys.readouterr().err.count("set `round_timeout` in [engine] to limit the wait") == 1


def test_labels_are_right_after_a_spawned_process_took_them() -> None:
    """Torch moves what it sends to shared memory, and frees the memory of before."""
    population = blobs()
    before = population.labels.copy()
    population.y.share_memory_()
    assert population.labels.ctypes.data == population.y.data_ptr()
    assert np.array_equal(population.labels, before)


def test_spawned_workers_give_the_same_and_begin_before_the_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They import for longer than a round may take. One that died between rounds is replaced."""
    population = blobs()
    net = small_net()
    runner = LocalRunner(population, net, SOLVER)
    engine = PoolEngine(runner, 1, round_timeout=600, start="spawn")
    sent: list[bytes] = []
    steps: list[str] = []
    send = engine.pool._send
    listen = engine.pool._wait_until_they_listen
    deadline = engine.deadline
    monkeypatch.setattr(engine.pool, "_send", lambda packed: (sent.append(packed), send(packed)))
    monkeypatch.setattr(
        engine.pool, "_wait_until_they_listen", lambda: (listen(), steps.append("they listen"))
    )
    monkeypatch.setattr(
        engine, "deadline", lambda: (steps.append("the round begins"), deadline())[1]
    )
    with Clients(engine) as clients:
        before = asked(clients, population, net)
        assert steps == ["they listen", "the round begins"]
        # They load compiled code from disk: what is sent of it they would compile for seconds.
        assert len(sent) == 1
        assert b"numba" not in sent[0]
        kill_the_worker(engine)
        after = asked(clients, population, net)
    expected = ask(SerialEngine(runner), population, net)
    for found in (before, after):
        assert np.array_equal(found.fields["delta"], expected.fields["delta"])


def test_dropout_follows_the_key_and_leaves_the_global_generator_alone() -> None:
    population = blobs()
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4))
    before = torch.random.get_rng_state()
    a = ask(SerialEngine(LocalRunner(population, net, SOLVER)), population, net)
    b = ask(PoolEngine(LocalRunner(population, net, SOLVER), 2), population, net)
    assert np.array_equal(a.fields["delta"], b.fields["delta"])
    assert torch.equal(before, torch.random.get_rng_state())


@given(
    moves=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.booleans()), min_size=1, max_size=4
    ),
    split=st.sampled_from(["test", "train"]),
    keep=st.sampled_from([2**27, 0]),
    seed=st.integers(0, 9),
)
@settings(max_examples=12, deadline=None)
def test_workers_score_what_clients_hold_now(
    moves: list[tuple[int, int, bool]], split: Any, keep: int, seed: int
) -> None:
    population = blobs()
    net = small_net()
    rng = np.random.default_rng(seed)
    none = np.empty(0, np.int64)
    population = population.with_parts(population.train, (none, *population.test[1:]))
    models = torch.stack([flatten(net), -flatten(net), 2 * flatten(net)])
    pool = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    with mock.patch("coterie.local.scoring.samples.KEEP", keep), Clients(pool) as clients:
        clients.run(Train(), np.arange(12), models, np.arange(12) % 2, key=Key(0))
        for a, b, score in moves:
            test = list(population.test)
            train = list(population.train)
            y = population.y.clone()
            test[a], test[b] = (
                test[b],
                np.concatenate([test[a], test[(a + 1) % 12]]),
            )  # some samples are shared
            train[a], train[b] = train[b], train[a]
            if rng.integers(2):
                some = rng.integers(len(y), size=20)
                y[some] = (y[some] + 1) % 4
                population = replace(population, y=y)
            population = population.with_parts(tuple(train), tuple(test))
            pool.set_population(population)
            if not score:
                continue
            ids = np.sort(rng.permutation(12)[: rng.integers(1, 13)])
            which = rng.integers(1, 3, size=(len(ids), 2))
            alone = LocalRunner(population, net, SOLVER).answer(
                Score(split), ids, models, which, Key(0)
            )
            with mock.patch.object(
                pool.runner, "answer", side_effect=AssertionError("scored in this process")
            ):
                replies = pool.run(Score(split), ids, models, which, key=Key(0))
            order = np.argsort(np.concatenate([reply.ids for reply in replies]))
            for field in ("correct", "size", "loss"):
                found = np.concatenate([reply.fields[field] for reply in replies])[order]
                assert np.array_equal(found, alone.fields[field]), field


@pytest.mark.parametrize("engine", [SerialEngine, PoolEngine])
def test_clients_without_test_samples_are_scored_first_and_other_samples_are_followed(
    engine: Any,
) -> None:
    population = blobs()
    net = small_net()
    models = flatten(net)[None]
    none = np.empty(0, np.int64)
    bare = population.with_parts(population.train, (none, *population.test[1:]))
    running = engine(LocalRunner(bare, net, SOLVER))
    with Clients(running) as clients:
        clients.run(Train(), np.arange(12), models, np.zeros(12, np.int64), key=Key(0))
        (reply,) = running.run(Score("test"), np.array([0]), models, np.array([0]), key=Key(0))
        assert reply.fields["correct"].tolist() == [[0.0]]
        clients.run(Score("test"), np.arange(12), models, np.zeros(12, np.int64), key=Key(0))
        other = replace(population, x=-population.x)
        running.set_population(other)
        expected_scores = LocalRunner(other, net, SOLVER).answer(
            Score("test"), np.arange(12), models, np.zeros(12, np.int64), Key(0)
        )
        for _ in range(2):
            scored = clients.run(
                Score("test"), np.arange(12), models, np.zeros(12, np.int64), key=Key(0)
            )
            assert np.array_equal(scored.fields["loss"], expected_scores.fields["loss"])
            expected = ask(SerialEngine(LocalRunner(other, net, SOLVER)), other, net)
            assert np.array_equal(
                asked(clients, other, net).fields["delta"], expected.fields["delta"]
            )


def test_a_round_timeout_is_for_clients_and_not_for_scoring() -> None:
    population = blobs()
    net = small_net()
    ids = np.arange(12)
    models = flatten(net)[None]
    pool = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    with Clients(pool) as clients:
        clients.run(Train(), ids, models, 0 * ids, key=Key(0))
        pool.round_timeout = 0.0
        with mock.patch.object(
            pool.runner, "answer", side_effect=AssertionError("scored in this process")
        ):
            assert len(clients.run(Score("test"), ids, models, 0 * ids, key=Key(0))) == 12


class OnAllCores(nn.Module):
    """A layer that checks that it may be computed on each of these cores."""

    def __init__(self, cores: set[int]) -> None:
        super().__init__()
        self.cores = cores
        self.body = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if os.sched_getaffinity(0) != self.cores:
            raise RuntimeError(f"on {os.sched_getaffinity(0)} alone")
        return self.body(x)


@pytest.mark.skipif(cores() < 2, reason="one core")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_workers_begin_on_cores_of_their_own_and_may_leave_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = os.sched_getaffinity(0)
    told: list[tuple[int, set[int]]] = []
    begin_on = os.sched_setaffinity
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, to: told.append((pid, set(to))) or begin_on(pid, to)
    )
    population = blobs()
    engine = PoolEngine(LocalRunner(population, OnAllCores(allowed), SOLVER), len(allowed))
    ask(engine, population, OnAllCores(allowed))
    assert [to for _, to in told] == [{core} for core in sorted(allowed)]
    assert len({pid for pid, _ in told}) == len(allowed)
    # Another run may have the other cores, or all of them have several workers.
    assert not cores_of_workers(len(allowed) - 1)
    assert not cores_of_workers(len(allowed) + 1)


def test_a_runner_is_sent_as_what_it_is_made_of() -> None:
    """What it makes of the network holds views of whole models: each was sent with all of its own."""
    data = blobs()
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))
    runner = LocalRunner(data, net, SOLVER)
    packed, _ = pack_arguments(runner)
    parts, _ = pack_arguments((data, net, SOLVER))
    assert len(packed) < len(parts) + 2000
    again = unpack_arguments(*pack_arguments(runner))
    assert torch.equal(flatten(again.module), flatten(net))

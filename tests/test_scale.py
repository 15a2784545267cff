"""Federations larger than memory: samples made client by client, evaluation by a sample of the
clients."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.quorum import Quorum
from coterie.config import check
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Evaluate, Train
from coterie.data import load_partition, save_partition
from coterie.data.lazy import lazy_columns, ranges
from coterie.data.partitions import Partition, predefined
from coterie.data.shifts import swap_all
from coterie.data.sources.synthetic import SyntheticClient
from coterie.engines import Faults, FaultyEngine, PoolEngine, SerialEngine
from coterie.errors import ConfigError, CoterieError, DataError
from coterie.local import LocalRunner
from coterie.measures.sampling import (
    EvaluationSample,
    Stratum,
    mean_estimate,
    ratio_estimate,
    sampling_errors,
)
from coterie.methods.algorithm import as_algorithm
from coterie.objectives import plain
from coterie.runs.prepare import prepare
from coterie.runs.run import execute, make_folder, run_config
from coterie.runs.store import RunFolder
from tests.conftest import blobs, round_of, small_net

SOLVER = ct.Solver(epochs=1, batch_size=20, lr=0.01)


def federation(clients: int = 12, *, lazy: bool) -> ct.Population:
    return ct.load("synthetic", partition={"kind": "given"}, clients=clients, lazy=lazy)


def go(data: ct.Population, method: Any = None, rounds: int = 2, **options: Any) -> Any:
    method = method or ct.fedgroup(groups=2, alpha=3)
    defaults = {"model": "mclr", "local": SOLVER, "clients_per_round": 4, "engine": "serial"}
    return ct.run(method, data=data, rounds=rounds, **{**defaults, **options})


def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clients that are made from now on, one entry each time."""
    clients: list[int] = []
    make = SyntheticClient.__call__
    monkeypatch.setattr(
        SyntheticClient, "__call__", lambda self, k: clients.append(k) or make(self, k)
    )  # type: ignore[func-returns-value]
    return clients


@pytest.mark.parametrize(
    "method", [ct.fedgroup(groups=2, alpha=3), ct.flexcfl(groups=2, alpha=3), ct.ifca(groups=2)]
)
def test_a_lazy_federation_is_the_same_federation(method: ct.Method) -> None:
    lazy, whole = (go(federation(lazy=lazy), method) for lazy in (True, False))
    assert torch.equal(lazy.state.models, whole.state.models)
    assert np.array_equal(lazy.groups, whole.groups)
    told = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in result.rows]
        for result in (lazy, whole)
    ]
    assert told[0] == told[1]


def test_a_source_that_is_a_table_has_a_seed_of_its_own() -> None:
    def sizes(data_seed: int, seed: int) -> list[int]:
        source = {"kind": "synthetic", "seed": data_seed}
        return (
            ct.load(source, partition={"kind": "given"}, seed=seed, clients=3, lazy=True)
            .sizes("train")
            .tolist()
        )

    assert sizes(0, 0) == sizes(0, 1) != sizes(1, 0)


def test_what_a_lazy_federation_tells_of_its_data() -> None:
    lazy, whole = federation(lazy=True), federation(lazy=False)
    assert lazy.lazy
    assert not whole.lazy
    for split in ("train", "test"):
        assert np.array_equal(lazy.sizes(split), whole.sizes(split))
        assert np.array_equal(lazy.histograms(split), whole.histograms(split))
    some = np.array([7, 2, 7])
    assert np.array_equal(
        federation(lazy=True).histograms_of(some), whole.histograms("train")[some]
    )
    rows = torch.tensor([900, 3, 5, 901, 4])
    assert torch.equal(lazy.x[rows], whole.x[rows])
    assert torch.equal(lazy.y[rows], whole.y[rows])
    assert lazy.x[rows[:0]].shape == (0, 60)
    again = pickle.loads(pickle.dumps(lazy.x))
    assert torch.equal(again[rows], whole.x[rows])


def test_only_the_clients_that_are_asked_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation(100_000, lazy=True)
    clients = made(monkeypatch)
    result = go(data, rounds=3, evaluate_clients=10)
    assert len(set(clients)) <= 6 + 3 * 4 + 3 * 10, "cold start, cohorts, panels"
    assert len(clients) <= 2 * 6 + 2 * 3 * 4 + 2 * 3 * 10, "training and test rows once each"
    assert result.rows[-1]["evaluated"] == 10
    assert result.groups.shape == (100_000,)


def test_what_was_asked_for_is_kept_only_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.data.lazy.KEEP", 3 * (8 * 4 + 8))  # three clients of one row
    calls: list[int] = []

    def make(k: int) -> tuple[Any, Any]:
        calls.append(k)
        return np.full((1, 8), k, np.float32), np.zeros(1, np.int64)

    x, y = lazy_columns(make, np.arange(11), (8,))
    for i in (0, 1, 2, 0, 1, 2):
        assert float(x[torch.tensor([i])][0, 0]) == i
        assert int(y[torch.tensor([i])][0]) == 0
    assert calls == [0, 1, 2]
    assert x[torch.arange(10)][:, 0].tolist() == list(range(10))
    assert len(calls) == 3 + 7
    x[torch.tensor([0])]
    assert len(calls) == 3 + 7 + 1, "the oldest had to go"


def test_the_smaller_rest_of_a_client_is_kept_with_it() -> None:
    calls: list[int] = []

    def make(k: int) -> tuple[Any, Any]:
        calls.append(k)
        return np.full((5, 8), k, np.float32), np.zeros(5, np.int64)

    x, y = lazy_columns(make, np.array([0, 5, 10]), (8,))
    assert x[torch.arange(4)].shape == (4, 8)  # training rows
    assert y[torch.tensor([4])].tolist() == [0]
    assert calls == [0]
    assert x[torch.tensor([9])].tolist() == [[1.0] * 8]  # a client that is only scored
    x[torch.arange(5, 9)]
    assert calls == [0, 1, 1]


def test_workers_score_what_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    here = made(monkeypatch)
    pooled = go(federation(60, lazy=True), engine="pool", workers=2)
    assert not here, "workers make samples, this process does not"
    single = go(federation(60, lazy=True), engine="serial")
    assert [row["accuracy_all"] for row in pooled.rows] == [
        row["accuracy_all"] for row in single.rows
    ]


def tiny(client: int) -> tuple[Any, Any]:
    return np.full((2, 4), client % 7 - 3, np.float32), np.array([0, client % 2])


def crowd(clients: int) -> ct.Population:
    """Clients of one training and one test sample that are made when they are asked for."""
    x, y = lazy_columns(tiny, np.arange(0, 2 * clients + 1, 2), (4,))
    first = np.arange(0, 2 * clients, 2)
    one = np.ones(clients, np.int64)
    return ct.Population(
        x, y, ranges(first, one), ranges(first + 1, one), 2, tuple(map(str, range(clients)))
    )


def score(engine: Any, data: ct.Population, net: nn.Module) -> dict[str, Any]:
    ids = np.arange(data.clients)
    replies = engine.run(
        Evaluate("test"), ids, flatten(net)[None], np.zeros(len(ids), np.int64), key=Key(1)
    )
    order = np.argsort(np.concatenate([reply.ids for reply in replies]))
    return {
        name: np.concatenate([reply.fields[name] for reply in replies])[order]
        for name in replies[0].fields
    }


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_worker_that_dies_or_hangs_while_it_scores(number: int | None) -> None:
    data = crowd(60_000)
    net = nn.Sequential(nn.Linear(4, 2))
    expected = score(SerialEngine(LocalRunner(data, net, SOLVER)), data, net)
    engine = PoolEngine(
        LocalRunner(data, net, SOLVER), workers=2, round_timeout=None if number else 2.0
    )
    few = np.arange(4)
    try:
        engine.run(Train(plain), few, flatten(net)[None], np.zeros(4, np.int64), key=Key(1))
        stuck = engine.processes[1].pid
        os.kill(stuck, signal.SIGSTOP)
        if number:
            threading.Timer(0.5, os.kill, (stuck, number)).start()
        begun = time.monotonic()
        found = score(engine, data, net)
        assert not engine.processes, "the pool is made anew"
        assert time.monotonic() - begun < 60
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
from coterie.core.work import Evaluate, Train
from coterie.core.vectors import flatten
from tests.test_scale import SOLVER, crowd, score

data, net = crowd(60_000), nn.Sequential(nn.Linear(4, 2))
engine = PoolEngine(LocalRunner(data, net, SOLVER), workers=2)
engine.run(Train(plain), np.arange(4), flatten(net)[None], np.zeros(4, np.int64), key=Key(1))
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
        [sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=120
    )
    pids = process.stdout.split()
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(pids) == 2
    end = time.monotonic() + 30
    while any(map(lives, pids)) and time.monotonic() < end:
        time.sleep(0.2)
    assert not any(map(lives, pids))


def test_clients_that_share_made_samples_are_scored() -> None:
    x, y = lazy_columns(tiny, np.array([0, 2, 4]), (4,))
    shared = (np.array([1, 3]),) * 2
    made = ct.Population(x, y, (np.array([0]), np.array([2])), shared, 2, ("a", "b"))
    rows = torch.arange(4)
    whole = ct.Population(x[rows], y[rows], made.train, shared, 2, ("a", "b"))
    net = nn.Sequential(nn.Linear(4, 2))
    found, expected = (
        score(SerialEngine(LocalRunner(data, net, SOLVER)), data, net) for data in (made, whole)
    )
    assert {name: values.tolist() for name, values in found.items()} == {
        n: v.tolist() for n, v in expected.items()
    }


def test_a_loss_has_the_same_bits_whoever_is_scored_beside() -> None:
    data = federation(30, lazy=True)
    net = nn.Sequential(nn.Linear(60, 10))
    with torch.no_grad():
        net[0].weight.mul_(50)  # losses of very different sizes
    runner = LocalRunner(data, net, SOLVER)
    models = flatten(net)[None]
    together = runner.answer(
        Evaluate("test"), np.arange(30), models, np.zeros(30, np.int64), Key(1)
    ).fields["loss"]
    for i in range(30):
        alone = runner.answer(
            Evaluate("test"), np.array([i]), models, np.zeros(1, np.int64), Key(1)
        ).fields["loss"]
        assert alone[0] == together[i]


def test_scores_of_a_worker_that_was_killed_are_made_here() -> None:
    data = federation(9, lazy=True)
    net = nn.Sequential(nn.Linear(60, 10))
    models = flatten(net)[None]
    ids = np.arange(9)
    zero = np.zeros(9, np.int64)
    engine = PoolEngine(LocalRunner(data, net, SOLVER), workers=2)
    try:
        engine.run(Train(plain), ids, models, zero, key=Key(1))
        both = engine.run(Evaluate("test"), ids, models, zero, key=Key(1))
        assert [reply.ids.tolist() for reply in both] == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]
        engine.processes[0].kill()
        engine.processes[0].join()
        (alone,) = engine.run(Evaluate("test"), ids, models, zero, key=Key(1))
    finally:
        engine.close()
    for reply in both:
        for name, values in reply.fields.items():
            assert np.array_equal(alone.fields[name][reply.ids], values)


def test_a_maker_that_breaks_its_promise_is_named() -> None:
    x, _ = lazy_columns(
        lambda k: (np.zeros((2, 3), np.float32), np.zeros(2, np.int64)), np.array([0, 2, 5]), (3,)
    )
    with pytest.raises(DataError, match="client 1 was made with 2 samples; expected 3"):
        x[torch.tensor([2])]
    x, _ = lazy_columns(
        lambda k: (np.zeros((2, 1), np.float32), np.zeros(2, np.int64)), np.array([0, 2]), (4,)
    )
    with pytest.raises(
        DataError, match=r"client 0 was made with inputs of shape \[1\]; expected \[4\]"
    ):
        x[torch.tensor([0])]


def test_what_needs_all_samples_says_so() -> None:
    data = federation(lazy=True)
    uses: list[Any] = [
        lambda: data.labels,
        lambda: data.x.reshape(1, -1),
        lambda: data.y.clone(),
        lambda: data.x.contiguous(),
        lambda: go(data, shift=swap_all()),
        lambda: ct.load("synthetic", partition={"kind": "iid", "clients": 3}, clients=9, lazy=True),
        lambda: ct.load("digits", partition={"kind": "given"}),
    ]
    for use in uses:
        with pytest.raises(CoterieError, match="expected") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_ranges_round_trip_and_damage_is_refused(tmp_path: Path) -> None:
    parts = predefined(np.empty(0, np.int64), Key(0), offsets=np.array([0, 10, 11, 13]))
    assert [len(rows) for rows in parts.train] == [9, 1, 1]
    assert [len(rows) for rows in parts.test] == [1, 0, 1]
    assert parts.samples == 13
    save_partition(tmp_path / "p.npz", parts)
    read = load_partition(tmp_path / "p.npz")
    for split in ("train", "test"):
        pairs = zip(getattr(read, split), getattr(parts, split), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    save_partition(
        tmp_path / "p.npz",
        Partition(ranges(np.array([-1]), np.array([2])), ranges(np.array([0]), np.array([0]))),
    )
    with pytest.raises(DataError, match="not a partition"):
        load_partition(tmp_path / "p.npz")
    assert (tmp_path / "p.npz").stat().st_size < 4096


def test_ranges_stand_in_for_index_arrays() -> None:
    whole = blobs(4)
    x = whole.x[:20]
    y = whole.y[:20]
    held = ranges(np.array([0, 5]), np.array([5, 5]))
    tests = ranges(np.array([10, 12]), np.array([2, 0]))
    one = ct.Population(x, y, held, tests, 4)
    other = ct.Population(x, y, tuple(held), tuple(tests), 4)
    assert np.array_equal(one.histograms("train"), other.histograms("train"))
    assert one.sizes("test").tolist() == [2, 0]
    assert held[-1].tolist() == [5, 6, 7, 8, 9]
    assert [len(rows) for rows in held[:1]] == [5]
    with pytest.raises(DataError, match="out of range"):
        ct.Population(
            x, y, ranges(np.array([18]), np.array([3])), ranges(np.array([0]), np.array([0])), 4
        )
    with pytest.raises(DataError, match="no client has a training sample"):
        ct.Population(
            x, y, ranges(np.array([0]), np.array([0])), ranges(np.array([0]), np.array([3])), 4
        )


# --- evaluation of a sample -----------------------------------------------------------------------


def scored(panel: EvaluationSample, correct: Any, size: Any, known: Any) -> dict[str, Any]:
    ids = panel.draw(size > 0, known)
    inside = int(((size > 0) & known).sum())
    found = sampling_errors(
        correct[ids], size[ids], known[ids], (inside, int((size > 0).sum()) - inside)
    )
    mine = ids[known[ids]]
    each = correct[mine] / size[mine]
    return {
        **found,
        "accuracy": correct[mine].sum() / size[mine].sum(),
        "accuracy_mean": each.mean(),
    }


def test_the_stated_error_is_the_error() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    size = np.where(rng.random(n) < 0.1, 0, 5 + rng.lognormal(3, 1, n).astype(np.int64)).astype(
        float
    )
    known = np.arange(n) < 1000
    correct = rng.binomial(
        size.astype(np.int64), np.where(known, 0.9, 0.5) * rng.beta(8, 2, n)
    ).astype(float)
    draws = [
        scored(EvaluationSample.of(300, n, Key(seed)), correct, size, known) for seed in range(400)
    ]
    has = size > 0
    truth = {
        "accuracy": correct[known].sum() / size[known].sum(),
        "accuracy_all": correct.sum() / size.sum(),
        "accuracy_mean": (correct[known & has] / size[known & has]).mean(),
    }
    for name, true in truth.items():
        found = np.array([draw[name] for draw in draws])
        stated = np.array([draw[f"{name}_error"] for draw in draws])
        assert abs(found.mean() - true) < 4 * found.std() / math.sqrt(len(draws)) + 1e-3, name
        assert 0.85 < math.sqrt((stated**2).mean()) / found.std() < 1.15, name
    assert {draw["evaluated"] for draw in draws} == {300}


def test_a_panel_of_everybody_has_no_error_and_changes_nothing() -> None:
    whole, panel = (go(blobs(), evaluate_clients=size) for size in (None, 100))
    assert torch.equal(whole.state.models, panel.state.models)
    for one, other in zip(whole.rows, panel.rows, strict=True):
        assert other["evaluated"] == 12
        assert {
            other[name] for name in ("accuracy_error", "accuracy_all_error", "accuracy_mean_error")
        } == {0.0}
        for name in ("accuracy", "accuracy_all", "accuracy_mean", "accuracy_groups"):
            assert one[name] == pytest.approx(other[name], abs=1e-12)
        assert "accuracy_error" not in one


def test_panels_are_drawn_in_one_order_and_fill_up_where_a_kind_is_short() -> None:
    panel = EvaluationSample.of(40, 1000, Key(3))
    there = np.ones(1000, bool)
    few = np.arange(1000) < 5
    many = np.arange(1000) < 990
    assert len(panel.draw(there, few)) == len(panel.draw(there, many)) == 40
    assert (panel.draw(there, few) < 5).sum() == 5, "all of the few"
    assert (panel.draw(there, many) >= 990).sum() == 10
    assert (panel.draw(there, ~there) >= 0).sum() == 40
    assert np.array_equal(
        panel.draw(there, few), EvaluationSample.of(40, 1000, Key(3)).draw(there, few)
    )
    assert not np.array_equal(
        panel.draw(there, few), EvaluationSample.of(40, 1000, Key(4)).draw(there, few)
    )
    assert len(panel.draw(~there, few)) == 0
    larger = EvaluationSample(80, panel.order).draw(there, few)
    assert np.isin(panel.draw(there, few), larger).all(), (
        "more clients are asked besides the same ones"
    )


def test_scored_samples_that_were_made_are_kept_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.local.scored_rows.KEEP", 4 * 60 * 300)
    data = federation(60, lazy=True)
    runner = LocalRunner(data, torch.nn.Linear(60, 10), SOLVER)
    each = data.sizes("test").reshape(10, 6).sum(axis=1)
    for at in range(10):
        rows_of = runner.scorer.rows
        rows_of.gathered(np.arange(6 * at, 6 * at + 6), "test")
        assert sum(len(rows.y) for rows in rows_of.kept["test"].values()) <= max(300, each[at])


def test_an_error_that_cannot_be_known_is_none() -> None:
    alone = Stratum(7, np.array([1.0]), np.array([2.0]))
    assert ratio_estimate([alone]) == (0.5, None)
    assert mean_estimate(alone) == (0.5, None)
    assert ratio_estimate([]) == (None, None)
    one = sampling_errors(
        np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([True, True]), (5, 7)
    )
    assert one["accuracy_error"] is not None
    assert one["accuracy_all_error"] is None, "nothing is known of those without a group"
    found = sampling_errors(np.empty(0), np.empty(0), np.empty(0, bool), (0, 0))
    assert found == {
        "evaluated": 0,
        "accuracy_all": None,
        "accuracy_error": None,
        "accuracy_all_error": None,
        "accuracy_mean_error": None,
    }


# --- as a run -------------------------------------------------------------------------------------


def tables(**train: Any) -> dict[str, Any]:
    return {
        "data": {
            "source": "synthetic",
            "clients": 200,
            "lazy": True,
            "partition": {"kind": "given"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "batch_size": 20},
        "train": {"rounds": 4, "clients_per_round": 6, "evaluate_clients": 20, **train},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 4},
        "engine": {"name": "serial"},
        "checkpoint": {"seconds": 0.0},
    }


def test_a_lazy_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    summary = run_config(check(tables()), tmp_path / "straight")
    assert summary["clients"] == 200
    assert not (tmp_path / "straight" / "clients.csv").exists(), "nobody scores everybody here"
    prepared = prepare(check(tables()))
    folder = make_folder(prepared, tmp_path / "torn")
    stops = iter([0, 15])
    with pytest.raises(CoterieError, match="stopped after 2"):
        execute(prepared, folder, stop=lambda: next(stops))
    folder = RunFolder.open(tmp_path / "torn")
    checkpoint = folder.latest_checkpoint()
    assert checkpoint is not None
    assert checkpoint.extra["since"].dtype == np.int64
    again = prepare(check(tables()), folder.path / "partition.npz")
    execute(again, folder, checkpoint=checkpoint, resume=True)
    one, other = (sorted((tmp_path / name / "models").iterdir()) for name in ("straight", "torn"))
    assert [a.read_bytes() for a in one] == [b.read_bytes() for b in other]
    same = [(tmp_path / name / "groups.csv").read_text() for name in ("straight", "torn")]
    assert same[0] == same[1]
    row = json.loads((tmp_path / "torn" / "rounds.jsonl").read_text().splitlines()[-1])
    assert row["evaluated"] == 20
    assert row["accuracy_error"] > 0


def test_a_shift_of_a_lazy_run_and_theory_are_refused_in_one_line(tmp_path: Path) -> None:
    moved = tables() | {"shift": {"kind": "swap_all"}}
    with pytest.raises(ConfigError, match=r"shift\.kind") as caught:
        run_config(check(moved), tmp_path / "shift")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"train\.measures: theory"):
        run_config(check(tables(measures=["theory"])), tmp_path / "theory")
    with pytest.raises(ConfigError, match=r"train\.evaluate_clients"):
        check(tables(evaluate_clients=0))


# --- updates that never stand side by side --------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        ct.fedavg(),
        ct.fedprox(mu=0.1),
        ct.fedgroup(groups=2, alpha=3, eta_g=0.1),
        ct.flexcfl(groups=2, alpha=3),
        ct.ifca(groups=2),
        ct.fedyogi(),
    ],
    ids=["fedavg", "fedprox", "fedgroup", "flexcfl", "ifca", "fedyogi"],
)
def test_folded_rounds_are_whole_rounds(method: ct.Method, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = go(blobs(), method, rounds=3)
    monkeypatch.setattr("coterie.methods.streaming.LARGE", 0)
    d = whole.state.models.shape[1]
    monkeypatch.setattr("coterie.methods.streaming.BLOCK", 3 * 4 * d)
    folded = go(blobs(), method, rounds=3)
    assert [row["discrepancy"] for row in folded.rows] == [None] * 3, "so it did fold"
    assert float((whole.state.models - folded.state.models).abs().max()) <= 1e-7
    assert np.array_equal(whole.groups, folded.groups)
    for one, other in zip(whole.rows, folded.rows, strict=True):
        for name in ("accuracy", "sizes", "transfers", "refused", "newcomers"):
            assert one[name] == other[name]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)


def test_no_more_than_a_block_of_updates_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs(12)
    most = []
    monkeypatch.setattr("coterie.methods.streaming.LARGE", 0)
    monkeypatch.setattr("coterie.methods.streaming.BLOCK", 5 * 4 * 28)
    run = SerialEngine.run

    def watched(self: Any, work: Any, ids: Any, *rest: Any, **named: Any) -> Any:
        most.extend([len(ids)] if isinstance(work, Train) else [])
        return run(self, work, ids, *rest, **named)

    monkeypatch.setattr(SerialEngine, "run", watched)
    go(data, ct.fedavg(), rounds=1, clients_per_round=12)
    assert most == [5, 5, 2]


def test_the_updates_of_a_block_are_let_go_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs(12)
    alive = []
    held = []
    monkeypatch.setattr("coterie.methods.streaming.LARGE", 0)
    monkeypatch.setattr("coterie.methods.streaming.BLOCK", 5 * 4 * 28)
    run = SerialEngine.run

    def watched(self: Any, work: Any, *rest: Any, **named: Any) -> Any:
        held.append(sum(block() is not None for block in alive))
        replies = run(self, work, *rest, **named)
        alive.extend(
            weakref.ref(reply.fields["delta"]) for reply in replies if isinstance(work, Train)
        )
        return replies

    monkeypatch.setattr(SerialEngine, "run", watched)
    go(data, ct.fedavg(), rounds=1, clients_per_round=12)
    assert len(alive) == 3
    assert not any(held)


def test_lost_replies_and_a_missed_quorum_of_a_folded_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.methods.streaming.BLOCK", 1)
    data = blobs()
    net = small_net()
    states = []
    for large in (2**29, 0):
        monkeypatch.setattr("coterie.methods.streaming.LARGE", large)
        engine = FaultyEngine(SerialEngine(LocalRunner(data, net, SOLVER)), Faults(lose=0.5))
        algorithm = as_algorithm(ct.fedavg())
        with Clients(engine) as door:
            start = algorithm.init(lambda j: flatten(net), data.clients)
            state, notes = algorithm.step(start, round_of(door, np.arange(12), Key(1).at(0)))
            assert 0 < notes["replies"] < 12
            states.append(state.models)
            door.quorum = Quorum(min_replies=12)
            skipped, notes = algorithm.step(start, round_of(door, np.arange(12), Key(1).at(0)))
            assert notes["skipped"]
            assert torch.equal(skipped.models, start.models)
    assert float((states[0] - states[1]).abs().max()) <= 1e-7

"""Asynchronous rounds: a vector by hand, and what every method with them must fulfil."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.reply_times import ReplyTimes
from coterie.core.updates import Updates
from coterie.core.work import Work
from coterie.errors import Code, ConfigError
from coterie.experiment import check
from coterie.methods.algorithm import as_algorithm
from coterie.methods.buffered import Buffering, InFlight
from coterie.methods.override import with_buffer
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.conftest import blobs, small_net
from tests.faults import Faults
from tests.refusals import check_together, refuses
from tests.simulations import ONE_EPOCH, serial_engine, simulated, uniform

EQUAL_TIMES = {"spread": 0.0, "noise": 0.0}
OPTIONS: dict[str, dict[str, Any]] = {"fedgroup": {"groups": 2, "alpha": 2}, "ifca": {"groups": 2}}
METHODS = ("fedavg", "fedgroup", "ifca")


# --- by hand --------------------------------------------------------------------------------------


class FixedTimes(ReplyTimes):
    """Clients 0, 1 and 2 take 1, 2 and 3.5."""

    def draw(self, clients: int, key: Key) -> FloatArray:
        return np.array([1.0, 2.0, 3.5])


class Targets:
    """Clients that end at 1, 3 and 10, wherever they begin."""

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        target = np.array([1.0, 3.0, 10.0], np.float32)[ids]
        delta = target[:, None] - models.numpy()[which]
        fields = {"delta": delta, "size": np.ones(len(ids)), "loss": np.zeros(len(ids))}
        return [Reply(key.round, ids, fields, key.purpose)]

    def set_population(self, population: Any) -> None: ...

    def close(self) -> None: ...


def test_three_steps_by_hand() -> None:
    """K = 2 and three clients at a time. What comes in, and the model after it:

    | step | began with version | updates | weights | model |
    |---|---|---|---|---|
    | 0 | 0, 0 | 1, 3 | 1, 1 | 2 |
    | 1 | 1, 0 | 1 - 2, 10 | 1, 1 / sqrt(2) | 2 + (-1 + 7.0710678) / 2 = 5.0355339 |
    | 2 | 2, 1 | 1 - 5.0355339, 3 - 2 | 1, 1 / sqrt(2) | 5.0355339 - 1.6642136 = 3.3713203 |
    """
    rule = Buffering(buffer=2, concurrency=3, times=FixedTimes())
    algorithm = as_algorithm(with_buffer(ALGORITHMS["fedavg"](), rule))
    clients = Clients(Targets(), bounds=Bounds(enabled=False))
    groups = algorithm.init(lambda j: torch.zeros(1), 3)
    seen = []
    for number in range(3):
        round = Round(number, Key(0).at(number), np.arange(3), clients)
        groups, notes = algorithm.step(groups, round)
        told = notes["asynchronous"]
        seen.append((groups.models.item(), told["clock"], told["staleness"], told["training"]))
    models, clock, staleness, training = zip(*seen, strict=True)
    assert models == pytest.approx((2.0, 5.0355339, 3.3713203), abs=1e-6)
    assert clock == (2.0, 3.5, 4.5)
    assert staleness == (0.0, 0.5, 0.5)
    assert training == (1, 1, 1)


def test_the_buffers_of_groups_are_apart() -> None:
    flight = InFlight.none(2, 1)
    updates = Updates(
        np.arange(4), np.array([0, 1, 0, 1]), torch.arange(4.0)[:, None], np.ones(4), np.ones(4)
    )
    flight = flight.with_updates(updates, np.array([1.0, 2.0, 4.0, 3.0]))
    flight, came, group = flight.until_full(2)
    assert (came.tolist(), group, flight.clock) == ([0, 1, 3], 1, 3.0)
    flight, taken, staleness = flight.take(1)
    assert (taken.ids.tolist(), staleness.tolist()) == ([1, 3], [0, 0])
    # The update of group 0 stays in its buffer, and client 2 still trains.
    assert (flight.ids.tolist(), flight.arrived.tolist()) == ([0, 2], [True, False])
    assert flight.version.tolist() == [0, 1]


# --- runs -----------------------------------------------------------------------------------------


def tables(name: str, rounds: int = 4, **changes: Any) -> dict[str, Any]:
    partition = {"kind": "planted", "clients": 8, "groups": 2}
    return {
        "seed": 3,
        "data": {"source": "digits", "partition": partition},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "engine": {"name": "serial"},
        "train": {"rounds": rounds, "clients_per_round": 4, "sampler": "uniform"},
        "algorithm": {"name": name, **OPTIONS.get(name, {})},
        **changes,
    }


def state(run: Path) -> tuple[Groups, list[dict[str, Any]]]:
    folder = RunFolder(run)
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    rows = [
        {name: value for name, value in row.items() if name not in ("seconds", "chain")}
        for row in folder.rows()
    ]
    return checkpoint.groups, rows


def test_a_full_cohort_without_delays_is_fedavg_to_the_bit(tmp_path: Path) -> None:
    run_config(check(tables("fedavg")), tmp_path / "a")
    buffered = tables("fedavg", asynchronous={"buffer": 4}, reply_times=EQUAL_TIMES)
    run_config(check(buffered), tmp_path / "b")
    plain, rows = state(tmp_path / "a")
    other, other_rows = state(tmp_path / "b")
    assert torch.equal(plain.models, other.models)
    assert [row["accuracy"] for row in rows] == [row["accuracy"] for row in other_rows]


@pytest.mark.parametrize("name", METHODS)
def test_engines_agree_and_a_resumed_run_is_that_of_one_that_went_on(
    name: str, tmp_path: Path
) -> None:
    config = tables(name, asynchronous={"buffer": 2})
    run_config(check(config), tmp_path / "serial")
    whole, rows = state(tmp_path / "serial")
    assert max(row["notes"]["asynchronous"].get("oldest", 0) for row in rows) > 0
    pool = {**config, "engine": {"name": "pool", "workers": 2}}
    run_config(check(pool), tmp_path / "pool")
    shorter = {**config, "train": {**config["train"], "rounds": 2}}
    run_config(check(shorter), tmp_path / "resumed")
    ct.resume(tmp_path / "resumed", rounds=4)
    for other in ("pool", "resumed"):
        groups, other_rows = state(tmp_path / other)
        assert torch.equal(groups.models, whole.models), other
        assert np.array_equal(groups.member, whole.member), other
        assert other_rows == rows, other


def test_old_updates_count_less() -> None:
    scale = Buffering(exponent=0.5).scale(np.array([0, 1, 3, 8]))
    assert scale == pytest.approx([1.0, 2**-0.5, 0.5, 1 / 3])
    assert (Buffering(exponent=0.0).scale(np.arange(5)) == 1).all()


def test_methods_that_need_a_round_together_say_so() -> None:
    able = []
    for name, factory in ALGORITHMS.items():
        with suppress(ConfigError):
            check_together(factory(), asynchronous=Buffering())
            able.append(name)
    assert {"fedavg", "fedgroup", "flexcfl", "ifca", "fedclust", "pacfl", "ditto"} <= set(able)
    assert not {"cfl", "fesem", "fedem", "rfedavg", "fedgsp", "scaffold", "pooled"} & set(able)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"asynchronous": {"buffer": 5}}, ("out-of-range", "asynchronous.buffer")),
        (
            {"asynchronous": {}, "reply_times": {"deadline": 2.0}},
            ("in-conflict", "reply_times.deadline"),
        ),
        ({"asynchronous": {"buffer": 0}}, ("out-of-range", "asynchronous.buffer")),
    ],
)
def test_what_does_not_go_together_is_refused(
    changes: dict[str, Any], refusal: tuple[Code, str], tmp_path: Path
) -> None:
    with refuses(ConfigError, *refusal):
        run_config(check(tables("fedavg", **changes)), tmp_path / "run")


def test_a_round_in_which_no_buffer_is_full_moves_no_model() -> None:
    rule = Buffering(buffer=4, concurrency=4, times=FixedTimes())
    algorithm = as_algorithm(with_buffer(ALGORITHMS["fedavg"](), rule))
    clients = Clients(Targets(), bounds=Bounds(enabled=False))
    before = algorithm.init(lambda j: torch.zeros(1), 3)
    key = Key(0)
    groups, notes = algorithm.step(before, Round(0, key.at(0), np.arange(3), clients))
    assert torch.equal(groups.models, before.models)
    assert not notes["skipped"]
    assert notes["asynchronous"] == {"clock": 3.5, "training": 0, "arrived": 3}
    # Its three updates wait for the fourth. Those of the next round are not older.
    groups, notes = algorithm.step(groups, Round(1, key.at(1), np.arange(3), clients))
    assert groups.models.item() == pytest.approx((1 + 3 + 10 + 1) / 4)
    # Nobody may begin, and nobody trains: nothing happens.
    idle = InFlight.none(1, 1)
    groups, notes = algorithm.step(
        groups.remember(idle), Round(2, key.at(2), np.arange(0), clients)
    )
    assert notes["skipped"]


@pytest.mark.parametrize("name", METHODS)
def test_replies_that_come_again_or_too_late_move_no_buffer(name: str) -> None:
    """What is in flight is the server's own record: a client adds one update for each request."""

    def models(faults: Faults | None) -> list[Tensor]:
        rule = Buffering(buffer=2, concurrency=4, times=ReplyTimes(spread=1.0))
        method = with_buffer(ALGORITHMS[name](**OPTIONS.get(name, {})), rule)
        engine = serial_engine(blobs(), small_net(), ONE_EPOCH, faults)
        rows = simulated(method, blobs(), Clients(engine), uniform(blobs(), 6), 8)
        oldest.append(max(row.row["notes"]["asynchronous"].get("oldest", 0) for row in rows))
        return [one.groups.models for one in rows]

    oldest: list[int] = []
    straight = models(None)
    again = models(Faults(duplicate=1.0, shuffle=True))
    late = models(Faults(delay=0.4))
    lost = models(Faults(delay=0.4, forget=True))
    assert min(oldest) > 0, "some update is older than a model"
    assert all(torch.equal(*pair) for pair in zip(straight, again, strict=True))
    assert all(torch.equal(*pair) for pair in zip(late, lost, strict=True))

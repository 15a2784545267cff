"""Rounds that fold updates block by block."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.methods.algorithm import as_algorithm
from tests.conftest import assert_near, blobs, round_of, small_net
from tests.faults import Faults, FaultyEngine
from tests.lazy_federations import SOLVER, run_small


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
    whole = run_small(blobs(), method, rounds=3)
    monkeypatch.setattr("coterie.rules.training.LARGE", 0)
    d = whole.state.models.shape[1]
    monkeypatch.setattr("coterie.rules.training.BLOCK", 3 * 4 * d)
    folded = run_small(blobs(), method, rounds=3)
    assert [row["discrepancy"] for row in folded.rows] == [None] * 3, "so it did fold"
    assert_near(folded.state.models, whole.state.models, 1e-6)
    assert np.array_equal(whole.groups, folded.groups)
    for one, other in zip(whole.rows, folded.rows, strict=True):
        for name in ("accuracy", "sizes", "transfers", "refused", "newcomers"):
            assert one[name] == other[name]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)


def test_no_more_than_a_block_of_updates_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs(12)
    most = []
    monkeypatch.setattr("coterie.rules.training.LARGE", 0)
    monkeypatch.setattr("coterie.rules.training.BLOCK", 5 * 4 * 28)
    run = SerialEngine.run

    def watched(self: Any, work: Any, ids: Any, *rest: Any, **named: Any) -> Any:
        most.extend([len(ids)] if isinstance(work, Train) else [])
        return run(self, work, ids, *rest, **named)

    monkeypatch.setattr(SerialEngine, "run", watched)
    run_small(data, ct.fedavg(), rounds=1, clients_per_round=12)
    assert most == [5, 5, 2]


def test_rounds_of_adapters_are_folded_by_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        frozen = torch.nn.Linear(6, 50).requires_grad_(False)
        return torch.nn.Sequential(frozen, torch.nn.ReLU(), torch.nn.Linear(50, 4))

    most = []
    run = SerialEngine.run

    def watched(self: Any, work: Any, ids: Any, *rest: Any, **named: Any) -> Any:
        most.extend([len(ids)] if isinstance(work, Train) else [])
        return run(self, work, ids, *rest, **named)

    monkeypatch.setattr(SerialEngine, "run", watched)
    options = {"model": network(), "rounds": 2, "clients_per_round": 12}
    whole = run_small(blobs(), ct.fedavg(), **options)
    trained = 50 * 4 + 4
    monkeypatch.setattr("coterie.rules.training.LARGE", 0)
    monkeypatch.setattr("coterie.rules.training.BLOCK", 5 * 4 * trained)
    folded = run_small(blobs(), ct.fedavg(), **options)
    assert most == [12, 12, 5, 5, 2, 5, 5, 2]
    assert folded.state.models.shape == (1, trained)
    assert_near(folded.state.models, whole.state.models, 1e-6)


def test_the_updates_of_a_block_are_let_go_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs(12)
    alive = []
    held = []
    monkeypatch.setattr("coterie.rules.training.LARGE", 0)
    monkeypatch.setattr("coterie.rules.training.BLOCK", 5 * 4 * 28)
    run = SerialEngine.run

    def watched(self: Any, work: Any, *rest: Any, **named: Any) -> Any:
        held.append(sum(block() is not None for block in alive))
        replies = run(self, work, *rest, **named)
        alive.extend(
            weakref.ref(reply.fields["delta"]) for reply in replies if isinstance(work, Train)
        )
        return replies

    monkeypatch.setattr(SerialEngine, "run", watched)
    run_small(data, ct.fedavg(), rounds=1, clients_per_round=12)
    assert len(alive) == 3
    assert not any(held)


def test_lost_replies_and_a_missed_quorum_of_a_folded_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coterie.rules.training.BLOCK", 1)
    data = blobs()
    net = small_net()
    states = []
    for large in (2**29, 0):
        monkeypatch.setattr("coterie.rules.training.LARGE", large)
        engine = FaultyEngine(SerialEngine(LocalRunner(data, net, SOLVER)), Faults(lose=0.5))
        algorithm = as_algorithm(ct.fedavg())
        with Clients(engine) as clients:
            start = algorithm.init(lambda j: flatten(net), data.clients)
            state, notes = algorithm.step(start, round_of(clients, np.arange(12), Key(1).at(0)))
            assert 0 < notes["replies"] < 12
            states.append(state.models)
            strict = replace(round_of(clients, np.arange(12), Key(1).at(0)), least_replies=12)
            skipped, notes = algorithm.step(start, strict)
            assert notes["skipped"]
            assert torch.equal(skipped.models, start.models)
    assert_near(states[1], states[0], 1e-6)

"""The network that each client trained last."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.core.keep import ClientStore, layers_to_keep
from coterie.core.keys import Key
from coterie.core.training import FullGradient
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Score, Train
from coterie.engines import (
    KeepingEngine,
    PoolEngine,
    RememberingEngine,
    SerialEngine,
    VmapEngine,
    make_clients,
)
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)
NET = small_net()
LAYOUT = Layout.of(NET)
START = flatten(NET)[None]
KEY = Key(3).of("train")
IDS = np.arange(4)


def runner() -> LocalRunner:
    return LocalRunner(blobs(), NET, SOLVER)


def zeros(n: int) -> IntArray:
    return np.zeros(n, np.int64)


def whole_updates() -> np.ndarray[Any, Any]:
    (reply,) = SerialEngine(runner()).run(Train(), IDS, START, zeros(4), key=KEY)
    return reply.fields["delta"]


@pytest.mark.parametrize("kind", [SerialEngine, PoolEngine, VmapEngine])
def test_a_network_is_the_model_that_was_sent_and_the_update(kind: Any) -> None:
    networks = ClientStore()
    with closing(RememberingEngine(kind(runner()), networks)) as engine:
        replies = engine.run(Train(), IDS, START, zeros(4), key=KEY)
    deltas = {int(i): d for r in replies for i, d in zip(r.ids, r.fields["delta"], strict=True)}
    expected = START.numpy() + np.stack([deltas[client] for client in IDS.tolist()])
    np.testing.assert_array_equal(networks.get(IDS), expected)


def test_a_later_training_replaces_the_network_of_those_who_trained() -> None:
    networks = ClientStore()
    engine = RememberingEngine(SerialEngine(runner()), networks)
    engine.run(Train(), IDS, START, zeros(4), key=KEY)
    first = networks.get(IDS)
    moved = START + 0.5
    (reply,) = engine.run(Train(), IDS[:1], moved, zeros(1), key=KEY.at(1))
    np.testing.assert_array_equal(networks.get(IDS[:1]), moved.numpy() + reply.fields["delta"])
    np.testing.assert_array_equal(networks.get(IDS[1:]), first[1:])
    # Of twelve clients four were met: the others cost no memory.
    assert networks.ids().tolist() == [0, 1, 2, 3]


def test_a_client_that_sends_a_slice_remembers_the_whole_network() -> None:
    networks = ClientStore()
    engine = RememberingEngine(SerialEngine(runner()), networks)
    work = Train(upload=(0, 5))
    (reply,) = engine.run(work, IDS, START, zeros(4), key=KEY)
    whole = whole_updates()
    np.testing.assert_array_equal(reply.fields["delta"], whole[:, :5])
    np.testing.assert_array_equal(networks.get(IDS), START.numpy() + whole)


def test_a_client_that_chose_remembers_what_became_of_its_choice() -> None:
    networks = ClientStore()
    engine = RememberingEngine(SerialEngine(runner()), networks)
    models = torch.cat([START + 3.0, START])
    both = np.tile([0, 1], (4, 1))
    (reply,) = engine.run(Train(choose="least_loss"), IDS, models, both, key=KEY)
    chosen = reply.fields["choice"].astype(int)
    assert chosen.any()
    expected = models.numpy()[chosen] + reply.fields["delta"]
    np.testing.assert_array_equal(networks.get(IDS), expected)


def test_what_a_client_keeps_is_in_its_network() -> None:
    networks = ClientStore()
    head = layers_to_keep(NET, ["2"])
    engine = KeepingEngine(RememberingEngine(SerialEngine(runner()), networks))
    engine.run(Train(keep=head), IDS, START, zeros(4), key=KEY)
    np.testing.assert_array_equal(networks.get(IDS), START.numpy() + whole_updates())


def test_neither_an_evaluation_nor_a_gradient_is_a_training() -> None:
    networks = ClientStore()
    engine = RememberingEngine(SerialEngine(runner()), networks)
    engine.run(Score("test"), IDS, START, zeros(4), key=KEY)
    engine.run(Train(how=FullGradient()), IDS, START, zeros(4), key=KEY)
    assert not len(networks.ids())


def test_a_client_whose_training_diverged_keeps_the_network_of_before() -> None:
    networks = ClientStore()
    RememberingEngine(SerialEngine(runner()), networks).run(Train(), IDS, START, zeros(4), key=KEY)
    before = networks.get(IDS)
    wild = LocalRunner(blobs(), NET, replace(SOLVER, lr=1e30))
    (reply,) = RememberingEngine(SerialEngine(wild), networks).run(
        Train(), IDS, START, zeros(4), key=KEY
    )
    assert not np.isfinite(reply.fields["delta"]).all(axis=1).any()
    np.testing.assert_array_equal(networks.get(IDS), before)


def test_clients_remember_only_if_they_are_asked_to() -> None:
    with make_clients(blobs(), NET, SOLVER, "serial") as clients:
        assert clients.stores.networks is None
    with make_clients(blobs(), NET, SOLVER, "serial", remember_networks=True) as clients:
        clients.run(Train(), IDS, START, zeros(4), key=KEY)
        assert clients.stores.networks is not None
        assert clients.stores.networks.ids().tolist() == IDS.tolist()


def test_l2_is_on_the_weights_of_a_network_as_in_a_run() -> None:
    """It was on none of them, and nothing said so."""
    solver = replace(SOLVER, epochs=1, batch_size=64, l2=0.25)
    with make_clients(blobs(), NET, solver, "serial") as clients:
        (reply,) = clients.engine.run(Train(), IDS[:1], START, zeros(1), key=KEY)
    with make_clients(blobs(), NET, solver, "serial", decay=()) as clients:
        (plain,) = clients.engine.run(Train(), IDS[:1], START, zeros(1), key=KEY)
    penalised = torch.cat(
        [torch.full((value.numel(),), float(value.ndim >= 2)) for value in NET.parameters()]
    )
    # A step of SGD on all samples: the gradient of 0.25 sum w^2 is 0.5 w.
    moved = torch.from_numpy(reply.fields["delta"] - plain.fields["delta"])[0]
    expected = -SOLVER.lr * 0.5 * START[0] * penalised
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6 * float(START.abs().max()))

"""A client that is sent several models chooses one, trains it, and says which: one exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.clients import wire
from coterie.clients.clients import Clients
from coterie.clients.validation import validator_for
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import PoolEngine, SerialEngine, VmapEngine
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net
from tests.faults import Faults, FaultyEngine

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)
CHOOSE = Train(choose="least_loss")
KEY = Key(3, round=4).of("train")


def three_models(net: nn.Module) -> Tensor:
    """Models that differ enough for clients to disagree."""
    start = flatten(net)
    noise = torch.randn(3, len(start), generator=torch.Generator().manual_seed(1))
    return start + noise


def ask(engine: Any, models: Tensor, clients: int, work: Train = CHOOSE) -> Reply:
    ids = np.arange(clients)
    which = np.tile(np.arange(len(models)), (clients, 1))
    with Clients(engine) as federation:
        return federation.run(work, ids, models, which, key=KEY)


@pytest.mark.parametrize("kind", [SerialEngine, PoolEngine, VmapEngine])
@pytest.mark.parametrize("closed", [True, False])
def test_one_exchange_is_the_same_as_two(kind: Any, closed: bool) -> None:
    population = blobs()
    net = small_net() if closed else nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    models = three_models(net)
    ids = np.arange(population.clients)
    engine = kind(LocalRunner(population, net, SOLVER))
    which = np.tile(np.arange(3), (len(ids), 1))
    with Clients(engine) as clients:
        scores = clients.run(Score("train"), ids, models, which, key=KEY.of("choose"))
        choice = scores.fields["loss"].argmin(axis=1)
        expected = clients.run(Train(), ids, models, choice, key=KEY)
        found = clients.run(CHOOSE, ids, models, which, key=KEY)
    assert len(set(choice.tolist())) > 1
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.fields["choice"], choice)
    for name in ("delta", "size", "loss"):
        np.testing.assert_array_equal(found.fields[name], expected.fields[name])


def test_ties_go_to_the_lowest_column() -> None:
    population = blobs()
    net = small_net()
    models = flatten(net)[None].repeat(3, 1)
    reply = ask(SerialEngine(LocalRunner(population, net, SOLVER)), models, 4)
    assert reply.fields["choice"].tolist() == [0, 0, 0, 0]


def test_a_client_is_lost_once_and_trains_once() -> None:
    population = blobs()
    net = small_net()
    engine = FaultyEngine(SerialEngine(LocalRunner(population, net, SOLVER)), Faults(lose=0.5))
    models = three_models(net)
    ids = np.arange(population.clients)
    which = np.tile(np.arange(3), (len(ids), 1))
    (some, *_) = replies = engine.run(CHOOSE, ids, models, which, key=KEY)
    assert 0 < len(replies) < len(ids)
    assert set(some.fields) == {"delta", "size", "loss", "choice"}


class Forging:
    """Says that its clients chose what they were not sent."""

    def __init__(self, engine: Any, choice: float) -> None:
        self.engine = engine
        self.choice = choice

    def run(self, work: Any, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Any:
        (reply,) = self.engine.run(work, ids, models, which, key=key)
        reply.fields["choice"][1] = self.choice
        return [reply]

    def close(self) -> None: ...


@pytest.mark.parametrize("choice", [-1.0, 3.0, 0.5, 1e9])
def test_a_choice_that_is_none_is_refused_and_counted(choice: float) -> None:
    population = blobs()
    net = small_net()
    engine = Forging(SerialEngine(LocalRunner(population, net, SOLVER)), choice)
    with Clients(engine, validator_for(population)) as clients:
        ids = np.arange(3)
        which = np.tile(np.arange(3), (3, 1))
        reply = clients.run(CHOOSE, ids, three_models(net), which, key=KEY)
        assert reply.ids.tolist() == [0, 2]
        assert dict(clients.ledger.refused) == {"choice": 1}


def test_the_ledger_has_the_models_down_and_an_update_and_a_number_up() -> None:
    population = blobs()
    net = small_net()
    models = three_models(net)
    d = models.shape[1]
    with Clients(SerialEngine(LocalRunner(population, net, SOLVER))) as clients:
        ids = np.arange(5)
        clients.run(CHOOSE, ids, models, np.tile(np.arange(3), (5, 1)), key=KEY)
        down, up = clients.ledger.blocks
    assert down.models.tolist() == [3] * 5
    assert down.bytes.tolist() == [3 * 4 * d] * 5
    assert up.models.tolist() == [1] * 5
    assert up.bytes.tolist() == [4 * d + 3 * 4] * 5
    assert set(up.fields) == {"delta", "size", "loss", "choice"}


def test_the_work_record_travels() -> None:
    local = Train()
    assert wire.loads(wire.dumps(CHOOSE, local), wire.Known(local)) == CHOOSE
    with pytest.raises(ValueError, match="no work record"):
        wire.loads(wire.dumps(CHOOSE, local).replace("least_loss", "best"), wire.Known(local))

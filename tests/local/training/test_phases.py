"""A local training in parts, each of which moves some coordinates."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.keep import Keep, layers_to_keep
from coterie.core.keys import Key
from coterie.core.training import Phase, Phases
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Train
from coterie.engines import PoolEngine, SerialEngine, VmapEngine
from coterie.local import LocalRunner
from coterie.local.training.batches import TrainingSamples, batches
from coterie.local.training.sgd import Autograd
from coterie.objectives import plain
from tests.conftest import assert_near, blobs, small_net

SOLVER = ct.Solver(epochs=9, batch_size=5, lr=0.1)
NET = small_net()
D = Layout.of(NET).d
HEAD = layers_to_keep(NET, ["head"])
BODY = layers_to_keep(NET, ["body"])
ALL = Keep(((0, D),))
START = flatten(NET)
IDS = np.arange(3)
KEY = Key(3).of("train")


def update(
    work: Train, engine: Any = SerialEngine, net: nn.Module = NET, solver: ct.Solver = SOLVER
) -> Any:
    made = engine(LocalRunner(blobs(), net, solver))
    with closing(made):
        (reply,) = made.run(work, IDS, flatten(net)[None], np.zeros(3, np.int64), key=KEY)
    return reply.fields["delta"]


def by_hand(head_epochs: int, body_epochs: int, client: int) -> Tensor:
    """FedRep's Alg. 1 for the small network, with the gradients written out."""
    w1, b1, w2, b2 = (p.detach().clone() for p in small_net().parameters())
    data = blobs()
    rows = torch.from_numpy(data.train[client])
    stream = KEY.client(client)
    for epochs, trains_head, key in (
        (head_epochs, True, stream),
        (body_epochs, False, stream.of("phase1")),
    ):
        solver = ct.Solver(epochs=epochs, batch_size=5, lr=0.1)
        for part in batches(len(rows), solver, key.of("shuffle").generator()):
            for at in range(0, len(rows), 5):
                batch = rows[torch.from_numpy(part.order[at : at + 5])]
                x = data.x[batch]
                y = data.y[batch]
                hidden = torch.relu(x @ w1.T + b1)
                error = torch.softmax(hidden @ w2.T + b2, 1) - torch.eye(4)[y]
                error = error / len(batch)
                below = (error @ w2) * (hidden > 0)
                if trains_head:
                    w2 = w2 - 0.1 * error.T @ hidden
                    b2 = b2 - 0.1 * error.sum(0)
                else:
                    w1 = w1 - 0.1 * below.T @ x
                    b1 = b1 - 0.1 * below.sum(0)
    return torch.cat([w1.reshape(-1), b1, w2.reshape(-1), b2]) - START


def test_fedrep_is_its_algorithm_by_hand() -> None:
    phases = (Phase(HEAD, 2), Phase(BODY, 1))
    found = update(Train(how=Phases(phases)))
    for client in IDS.tolist():
        expected = by_hand(2, 1, client).numpy()
        assert_near(found[client], expected)
    assert (abs(found[:, HEAD.kept()]) > 0.01).any()
    assert (abs(found[:, BODY.kept()]) > 0.01).any()


def test_one_phase_of_everything_is_the_training_by_autograd() -> None:
    """To the bit; and only the coordinates of a phase move."""
    runner = LocalRunner(blobs(), NET, SOLVER)
    trainer = Autograd(small_net(), plain)
    found = update(Train(how=Phases((Phase(ALL, 9),))))
    out = torch.empty(D)
    rows = torch.from_numpy(runner.population.train[1])
    data = runner.population
    trainer.train(TrainingSamples(data.x[rows], data.y[rows]), START, out, SOLVER, KEY.client(1))
    vector = START + out  # as the end of a phase is kept
    np.testing.assert_array_equal(found[1], (vector - START).numpy())
    head = update(Train(how=Phases((Phase(HEAD, 1),))))
    assert (head[:, BODY.kept()] == 0).all()
    assert (head[:, HEAD.kept()] != 0).any()


@pytest.mark.parametrize("engine", [PoolEngine, VmapEngine])
def test_every_engine_has_the_bits_of_serial(engine: Any) -> None:
    work = Train(how=Phases((Phase(HEAD, 1), Phase(BODY, 1))))
    np.testing.assert_array_equal(update(work, engine), update(work))


def test_running_statistics_of_fixed_layers_stay() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    # A batch of one sample has no variance.
    solver = ct.Solver(batch_size=99, lr=0.1)
    head = layers_to_keep(net, ["head"])
    body = layers_to_keep(net, ["body"])
    of_head = update(Train(how=Phases((Phase(head, 1),))), net=net, solver=solver)
    assert (of_head[:, body.kept()] == 0).all()
    of_body = update(Train(how=Phases((Phase(body, 1),))), net=net, solver=solver)
    assert (of_body[:, Layout.of(net).span("1.running_mean")] != 0).any()


def test_phases_have_budgets_of_their_own() -> None:
    work = Train(how=Phases((Phase(HEAD, 1),)))
    assert work.after(0) == work
    with pytest.raises(ValueError, match="phases have their own budgets"):
        work.after(1)


def test_fedrep_keeps_its_heads() -> None:
    options: dict[str, Any] = {"data": blobs(), "model": NET, "engine": "serial", "rounds": 2}
    result = ct.run(ct.fedrep(head_epochs=2), **options)
    assert torch.equal(result.state.models[0][HEAD.kept()], START[HEAD.kept()])
    assert not torch.equal(result.state.models[0][BODY.kept()], START[BODY.kept()])
    heads = result.kept.vectors
    assert len(np.unique(heads, axis=0)) == len(heads) == 12


def test_an_objective_of_a_later_phase_compares_with_the_model_that_was_sent() -> None:
    class Seen:
        mu = 0.0

        def __init__(self) -> None:
            self.received: list[Tensor] = []

        def loss(self, module: nn.Module, x: Tensor, y: Tensor, received: Any) -> Tensor:
            self.received.append(torch.cat([p.flatten() for p in received().parameters()]).clone())
            return nn.functional.cross_entropy(module(x), y)

    seen = Seen()
    update(Train(seen, Phases((Phase(HEAD, 1), Phase(BODY, 1)))))
    assert len(seen.received) > 2
    assert all(torch.equal(received, START) for received in seen.received)

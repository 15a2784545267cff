"""The bounds of the theory, and that measuring changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.measures.optional import MEASURES
from coterie.measures.scoring import Evaluation
from coterie.measures.theory import Constants, bound, gradient_divergence
from tests.conftest import blobs, disjoint_neighbours
from tests.simulations import play_covering

SOLVER = ct.Solver(epochs=1, batch_size=10, lr=0.1)


def test_the_gradient_divergence_falls_when_clients_are_grouped() -> None:
    """Definition 2 against gradients by hand, and one group against the planted two."""
    population = disjoint_neighbours()
    net = nn.Linear(6, 4)
    clients = Clients(SerialEngine(LocalRunner(population, net, SOLVER)), shape=ModelShape(4))
    w = torch.cat([net.weight.detach().reshape(-1), net.bias.detach()])
    together = Groups(w[None], np.zeros(12, np.int64))
    apart = Groups(torch.stack([w, w]), np.arange(12) % 2)
    one, two = (gradient_divergence(clients, groups, Key(0)) for groups in (together, apart))
    grads = []
    for held in population.train:
        net.zero_grad()
        nn.functional.cross_entropy(net(population.x[held]), population.y[held]).backward()
        grads.append(torch.cat([p.grad.reshape(-1) for p in net.parameters()]))
    stacked = torch.stack(grads)
    assert one == pytest.approx(float((stacked - stacked.mean(0)).norm(dim=1).mean()), rel=1e-4)
    assert two < 0.7 * one
    constants = Constants.of(population)
    assert bound(two, constants, SOLVER) < bound(one, constants, SOLVER)
    assert bound(one, constants, SOLVER, shift=0.1) > bound(one, constants, SOLVER)


def test_the_theory_is_an_option_of_a_run() -> None:
    measures = (MEASURES["theory"](SOLVER, ct.fedgroup(eta_g=0.1)),)
    rows = ct.run(
        ct.flexcfl(groups=2, alpha=3, eta_g=0.1),
        data=disjoint_neighbours(),
        model=nn.Linear(6, 4),
        local=SOLVER,
        rounds=3,
        clients_per_round=4,
        engine="serial",
        train={"measures": measures},
    ).rows
    last = rows[-1]["theory"]
    assert 0 < last["divergence"] < last["divergence_one"]
    assert last["bound"] > 0
    assert last["bound_one"] > 0
    deep = ct.run(
        ct.fedavg(),
        data=disjoint_neighbours(),
        model=nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)),
        local=SOLVER,
        rounds=1,
        engine="serial",
        train={"measures": measures},
    )
    assert deep.rows[0]["theory"]["bound"] is None


def test_logistic_regression_may_have_more_outputs_than_the_data_have_classes() -> None:
    """As FEMNIST's 26 for ten. An output that no sample has makes no difference to the constants."""
    measures = (MEASURES["theory"](SOLVER, ct.fedavg()),)
    wide = ct.run(
        ct.fedavg(),
        data=disjoint_neighbours(),
        model=nn.Linear(6, 9),
        local=SOLVER,
        rounds=1,
        engine="serial",
        train={"measures": measures},
    )
    assert wide.rows[0]["theory"]["bound"] > 0


def test_measuring_changes_nothing() -> None:
    measures = (MEASURES["theory"](SOLVER, ct.fedavg()),)
    plain, measured = (
        play_covering(ct.flexcfl(groups=2, alpha=2), blobs(), 3, evaluation=Evaluation(measures=m))
        for m in ((), measures)
    )
    assert torch.equal(plain[-1].groups.models, measured[-1].groups.models)
    assert plain[-1].row["transfers"] == measured[-1].row["transfers"]

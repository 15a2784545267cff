"""Layers that stay with their client, for any method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.algorithms import OWN_MODELS
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keep import Keep, layers_to_keep
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.core.work import SelectGroup, Train, Work
from coterie.engines import make_clients
from coterie.methods.algorithm import as_algorithm
from coterie.methods.fit_to_model import fit_to_model
from coterie.methods.override import override
from coterie.models import initial_models
from coterie.rules.cold_start import DirectionMemory, Pretraining
from tests.conftest import blobs, config_errors, remembered, round_of, small_net
from tests.contract.cases import Make, contract_cases

# Two epochs: of one, FedGroup's pretraining can leave nothing for the round.
SOLVER = ct.Solver(epochs=2, batch_size=8, lr=0.1)
NET = small_net()
D = Layout.of(NET).d
HEAD = layers_to_keep(NET, ["head"])
STAYS = HEAD.kept()
OPTIONS: dict[str, Any] = {
    "data": blobs(),
    "model": NET,
    "local": SOLVER,
    "rounds": 3,
    "clients_per_round": 6,
    "engine": "serial",
    "seed": 1,
}

# What cannot leave a layer with its clients, and the reason that a user reads.
REFUSED = {
    "local": "itself sets what stays",
    "fedper": "itself sets what stays",
    "lg_fedavg": "itself sets what stays",
    "fedrep": "itself sets what stays",
    "fedbn": "itself sets what stays",
    **dict.fromkeys(
        (*OWN_MODELS, "scaffold", "stocfl", "lcfed", "lcfed-one"), "itself sets what stays"
    ),
    **dict.fromkeys(("fedem", "fedrc"), "so they cannot keep layers"),
    "pooled": "all data are pooled",
    "rfedavg-one": "clients send a gradient",
    "fedclust": "grouped by a layer that stays",
    "fedclust-ward": "grouped by a layer that stays",
}
CASES = contract_cases()
WORKING = {name: make for name, make in CASES.items() if name not in REFUSED}


@dataclass
class Wire:
    """An engine that reads every message between server and clients.

    Args:
        engine: the clients, who keep what stays.
        keep: what stays.
        first: float32 ``[kept]``, the first values of what stays, which everybody knows.
    """

    engine: Engine
    keep: Keep
    first: Tensor
    trainings: int = field(default=0, init=False)

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        # The server has no other values of it than the first ones; a direction has zeros.
        if which.size:
            sent = models[torch.from_numpy(np.unique(which))]
            sent = sent[:, torch.from_numpy(self.keep.kept())]
            assert ((sent == self.first) | (sent == 0)).all(), key
        replies = self.engine.run(work, ids, models, which, key=key)
        if isinstance(work, SelectGroup):
            work = work.train
        if isinstance(work, Train):
            assert work.stays == self.keep, key
            self.trainings += len(ids)
            moves = models.shape[1] - self.keep.size
            if work.upload is not None:
                moves = work.upload[1] - work.upload[0]
                assert not self.keep.overlaps(*work.upload)
            assert all(reply.fields["delta"].shape[1] == moves for reply in replies), key
        return replies

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


@pytest.mark.parametrize("make", WORKING.values(), ids=WORKING.keys())
def test_no_message_of_any_method_has_what_stays(make: Make) -> None:
    method, net = fit_to_model(override(make(2), personal=["head"]), small_net(), Key(3))
    population = blobs()
    algorithm = as_algorithm(method)
    keep = layers_to_keep(net, ["head"])
    kept = torch.from_numpy(keep.kept())
    with make_clients(population, net, SOLVER, "serial") as made:
        wire = Wire(made.engine, keep, flatten(net)[kept])
        clients = replace(made, engine=wire)
        groups = algorithm.init(initial_models(net, Key(2)), population.clients)
        for number in range(3):
            key = Key(1, number)
            cohort = np.arange(number, 12, 2)
            if algorithm.samples_cohort:
                cohort = np.arange(12)
            groups, _ = algorithm.step(groups, round_of(clients, cohort, key))
        assert wire.trainings
        # Every client that trained for the method, and none besides, keeps a head of its own.
        heads = clients.stores.parts.state().vectors
        assert len(np.unique(heads, axis=0)) == len(heads) > 0
        assert ((groups.models[:, kept] - flatten(net)[kept]).abs() < 1e-6).all()


def test_what_cannot_leave_a_layer_with_its_clients_says_why() -> None:
    for name, reason in REFUSED.items():
        (line,) = config_errors(
            lambda name=name: ct.run(CASES[name](2), personal={"layers": ["head"]}, **OPTIONS)
        )
        assert line.startswith("personal.layers: "), line
        assert reason in line, line
    (line,) = config_errors(
        lambda: ct.run(
            ct.fedavg(),
            personal={"layers": ["head"]},
            privacy=ct.Privacy(epsilon=8.0, clip=1.0),
            **OPTIONS,
        )
    )
    assert line.startswith("privacy: clips whole updates")
    (line,) = config_errors(lambda: ct.run(ct.fedavg(), personal={"layers": ["fc9"]}, **OPTIONS))
    assert line.startswith("personal.layers: the model has no layer 'fc9'")
    (line,) = config_errors(lambda: ct.run(ct.fedavg(), personal={"layers": "head"}, **OPTIONS))
    assert line.startswith("personal.layers: wrong type, got 'head'")


def test_no_layers_is_the_method() -> None:
    method = ct.fedgroup(groups=2, alpha=3)
    assert override(method, personal=[]) is method


def test_the_ledger_falls_by_what_stays() -> None:
    """FedGroup: cold start, newcomers and rounds; each model and each update is shorter."""
    method = ct.fedgroup(groups=2, alpha=2, pretrain_steps=3)
    whole = ct.run(method, **OPTIONS).rows
    shared = ct.run(method, personal={"layers": ["head"]}, **OPTIONS).rows
    for before, after in zip(whole, shared, strict=True):
        assert after["transfers"]["models"] == before["transfers"]["models"]
        moved = before["transfers"]["models"] * 4 * HEAD.size
        fell = sum(
            before["transfers"][way] - after["transfers"][way] for way in ("down_bytes", "up_bytes")
        )
        assert fell == moved > 0


def test_directions_are_compared_over_what_is_shared() -> None:
    """The cold start sees the updates of whole trainings, without the kept coordinates."""
    method, _ = fit_to_model(
        override(ct.fedgroup(groups=2, alpha=6, pretrain_steps=9), personal=["head"]), NET, Key(3)
    )
    algorithm = as_algorithm(method)
    population = blobs()
    everybody = np.arange(12)
    with make_clients(population, NET, SOLVER, "serial") as clients:
        groups = algorithm.init(initial_models(NET, Key(2)), 12)
        groups, _ = algorithm.step(groups, round_of(clients, everybody, Key(1)))
        directions = remembered(groups, DirectionMemory).direction
        key = round_of(clients, everybody, Key(1)).of("assign").of("cold_start").key
        work = Pretraining(steps=9).work(round_of(clients, everybody, Key(1)))
        start = groups.first_model[None]
        alone = clients.run(work, everybody, start, np.zeros(12, np.int64), key=key)
    delta = alone.fields["delta"].copy()
    delta[:, STAYS] = 0
    labels = groups.member
    for j in range(2):
        expected = delta[labels == j].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(directions[j].numpy(), expected, atol=1e-7)
    assert (directions[:, STAYS] == 0).all()


def test_who_kept_nothing_is_served_the_first_head() -> None:
    """A newcomer has the body of its group's model, and the head that the server began with."""
    options = OPTIONS | {"rounds": 1, "clients_per_round": 4}
    result = ct.run(ct.fedavg(), personal={"layers": ["head"]}, **options)
    met = set(result.kept.ids.tolist())
    assert 0 < len(met) < 12
    first = flatten(NET)[STAYS]
    for client in range(12):
        same = torch.equal(result.vector_for(client)[STAYS], first)
        assert same == (client not in met)


def test_groups_of_other_first_models_begin_with_one_head() -> None:
    """A client of IFCA takes its head along when it chooses another group."""
    method, _ = fit_to_model(override(ct.ifca(groups=3), personal=["head"]), NET, Key(3))
    groups = as_algorithm(method).init(initial_models(NET, Key(2)), 12)
    body = HEAD.shared(D)
    assert (groups.models[:, STAYS] == groups.models[0, STAYS]).all()
    assert not torch.equal(groups.models[0, body], groups.models[1, body])


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_gives_the_same_bits(workers: int) -> None:
    method = ct.fedgroup(groups=2, alpha=3, pretrain_steps=5)
    alone = ct.run(method, personal={"layers": ["head"]}, **OPTIONS)
    options = OPTIONS | {"engine": {"name": "pool", "workers": workers}}
    pooled = ct.run(method, personal={"layers": ["head"]}, **options)
    assert torch.equal(alone.state.models, pooled.state.models)
    np.testing.assert_array_equal(alone.kept.vectors, pooled.kept.vectors)


class Normed(torch.nn.Sequential):
    """A network with a normalisation."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.random.default_generator.manual_seed(2)
            super().__init__(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))


def test_ifca_with_personal_normalisation() -> None:
    """FedBN inside the groups: running statistics and scales differ from client to client."""
    net = Normed()
    # A batch of one sample has no variance.
    solver = ct.Solver(epochs=2, batch_size=99, lr=0.1)
    options = OPTIONS | {"model": net, "local": solver}
    result = ct.run(ct.ifca(groups=2), personal={"layers": ["norm"]}, **options)
    keep = layers_to_keep(net, ["norm"])
    assert keep.size == 32
    assert result.kept.vectors.shape[1] == 32
    mean = Layout.of(net).span("1.running_mean")
    statistics = {tuple(result.vector_for(int(i))[mean].tolist()) for i in result.kept.ids}
    assert len(statistics) == len(result.kept.ids)
    assert (result.state.models[:, mean] == 0).all()

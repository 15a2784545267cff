"""Another server, objective or migration for any method, from Python."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.clients.clients import Clients, ClientStores, ModelShape
from coterie.config.registry import build
from coterie.core.groups import Groups
from coterie.core.vectors import Layout, flatten
from coterie.engines import KeepingEngine, OwnModelEngine, SerialEngine
from coterie.local.runner import LocalRunner
from coterie.methods.algorithm import as_algorithm
from coterie.methods.fit_to_model import fit_to_model
from coterie.methods.override import override
from coterie.objectives import proximal
from coterie.rules.migration import Migrating, Migration
from coterie.rules.server import yogi
from tests.conftest import blobs, config_errors, round_of, small_net
from tests.refusals import check_together, refuses
from tests.simulations import RecordingEngine

LOCAL = ct.Solver(epochs=1, lr=0.1)


def test_names_stand_for_the_defaults() -> None:
    for option, name, rule in (
        ("server", "fedyogi", yogi()),
        ("objective", "proximal", proximal()),
    ):
        named, given = (
            ct.run(
                ct.fedavg(),
                data=blobs(),
                model=small_net(),
                local=LOCAL,
                rounds=2,
                engine="serial",
                **{option: value},
            )
            for value in (name, rule)
        )
        assert torch.equal(named.state.models, given.state.models)
    (line,) = config_errors(
        lambda: ct.run(ct.fedavg(), data=blobs(), model=small_net(), server="fedyogy")
    )
    assert line == (
        "server.name: unknown choice, got 'fedyogy'; expected one of 'fedadagrad', 'fedadam', "
        "'fedavgm', 'fedyogi', 'sgd'; did you mean 'fedyogi'?"
    )


def test_an_algorithm_made_of_a_method_is_unwrapped() -> None:
    method = override(as_algorithm(ct.ifca()), server=yogi(), objective=proximal(0.2))
    assert isinstance(method, ct.Method)
    assert method.local.objective == proximal(0.2)
    untouched = ct.ifca()
    assert override(untouched) is untouched


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_whatever_clients_train_follows_the_objective(name: str) -> None:
    """Training that only places clients (cold starts, signatures, splits) follows ``[objective]``,
    too."""
    method = override(MAKES.get(name, ALGORITHMS[name])(), objective=proximal(0.25))
    assert isinstance(method, ct.Method)
    population = blobs()
    fitted, net = fit_to_model(method, small_net(), ct.Key(0))
    engine = RecordingEngine(SerialEngine(LocalRunner(population, net, ct.Solver(epochs=1))))
    keeping = KeepingEngine(OwnModelEngine(engine))  # type: ignore[arg-type]
    shape = ModelShape(4, 6, Layout.of(net))
    clients = Clients(keeping, shape=shape, stores=ClientStores(keeping.store))
    algorithm = as_algorithm(fitted)
    state = algorithm.init(lambda j: flatten(net) + j, population.clients)
    for number in range(3):
        state, _ = algorithm.step(state, round_of(clients, np.arange(12), ct.Key(0).at(number)))
    trained = [work for work in engine.works if isinstance(work, ct.Train)]
    assert trained
    assert {work.objective for work in trained} == {proximal(0.25)}


# Options with which clients are trained to be placed within three rounds.
MAKES: dict[str, Any] = {
    **{name: partial(getattr(ct, name), groups=2, alpha=3) for name in ("fedgroup", "flexcfl")},
    "fedgrouprox": partial(ct.fedgrouprox, groups=2, alpha=3),
    # The small network has no normalisation.
    "fedbn": partial(ct.fedbn, layers=("0.bias",)),
    "flhc": partial(ct.flhc, warmup_rounds=1),
    "cfl": partial(ct.cfl, eps1=9.0, eps2=0.0, after=1, migration="per_label"),
    "ifca": partial(ct.ifca, groups="auto"),
}


def test_migration_replaces_the_methods_own() -> None:
    method = override(ct.flexcfl(migration="counts"), migration=Migration("ordinal", 0.1))
    assert isinstance(method, ct.Method)
    assert isinstance(method.assign, Migrating)
    assert method.assign.migration == Migration("ordinal", 0.1)
    assert not isinstance(method.assign.assign, Migrating)
    still = override(method, migration=Migration("none"))
    assert isinstance(still, ct.Method)
    assert still.assign == method.assign.assign
    with refuses(ct.ConfigError, "does-not-fit", "migration.detector"):
        check_together(override(ct.fedavg(), migration=Migration("counts")))


def test_without_a_table_nothing_changes() -> None:
    method = ct.fedgroup()
    net = small_net()
    assert override(method) is method
    same, module = fit_to_model(method, net, ct.Key(0))
    assert module is net
    assert isinstance(same, ct.Method)
    assert same.server is method.server

    class Own:
        def init(self, starts: Any, clients: int) -> Any: ...
        def step(self, state: Any, round: Any) -> Any: ...

    own = Own()
    assert fit_to_model(own, net, ct.Key(0)) == (own, net)


def test_buffers_make_the_server_careful() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    method, _ = fit_to_model(ct.fedyogi(), net, ct.Key(0))
    d = sum(p.numel() for p in net.parameters())
    groups = Groups(torch.ones(1, d + 16), np.zeros(2, np.int64))
    assert isinstance(method, ct.Method)
    after = method.server(
        groups, torch.full((1, d + 16), -0.25, dtype=torch.float64), torch.tensor([True])
    )
    assert torch.equal(after.models[0, d:], torch.full((16,), 0.75))
    assert after.optimiser["v"].shape == (1, d)


@pytest.mark.parametrize("name", ["by_size", "evenly"])
def test_weights_of_one_model_are_refused_where_a_reply_counts_for_several(name: str) -> None:
    with refuses(ct.ConfigError, "does-not-fit", "weigh"):
        override(ct.fedsoft(groups=2), weigh=build("weigh", {"name": name}))
    # How the weighted replies are combined is another matter.
    robust = override(ct.fedsoft(groups=2), weigh=build("weigh", {"name": "trimmed_mean"}))
    assert isinstance(robust, ct.Method)
    assert robust.weigh is ct.fedsoft(groups=2).weigh

"""Clients that have a model of their own: what is stored, what is sent, and who is served by what."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.algorithms import OWN_MODELS
from coterie.algorithms.ditto import Ditto
from coterie.algorithms.fedala import FedAla
from coterie.algorithms.perfedavg import PerFedAvg
from coterie.algorithms.pfedme import PFedMe
from coterie.algorithms.scaffold import ControlVariate
from coterie.clients import wire
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keep import Keep
from coterie.core.keys import Key
from coterie.core.own_model import OwnModel
from coterie.core.training import Steps, WithOwnModel
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Score, Train, Work
from coterie.engines import OwnModelEngine, PoolEngine, SerialEngine, VmapEngine, make_clients
from coterie.local import LocalRunner
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.client import train_own_model
from coterie.local.training.trainers import Trainers
from coterie.methods.algorithm import as_algorithm
from coterie.methods.fit_to_model import fit_to_model
from coterie.methods.override import override
from coterie.models import initial_models
from coterie.objectives import proximal
from tests.conftest import assert_near, blobs, config_errors, round_of, small_net
from tests.contract.cases import Make, contract_cases
from tests.faults import Faults, FaultyEngine
from tests.refusals import refuses

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)
NET = small_net()
D = Layout.of(NET).d
START = flatten(NET)[None]
KEY = Key(3, round=0).of("train")
OPTIONS: dict[str, Any] = {
    "data": blobs(),
    "model": NET,
    "local": SOLVER,
    "rounds": 3,
    "clients_per_round": 6,
    "engine": "serial",
    "seed": 1,
}
every = pytest.mark.parametrize("name", OWN_MODELS)


def runner() -> LocalRunner:
    return LocalRunner(blobs(), NET, SOLVER)


def zeros(n: int) -> IntArray:
    return np.zeros(n, np.int64)


def rule_of(name: str) -> OwnModel:
    return OWN_MODELS[name]()


# --- every rule ------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@every
@pytest.mark.parametrize("kind", [PoolEngine, VmapEngine])
def test_engines_agree_to_the_bit(name: str, kind: Any) -> None:
    work = Train(how=WithOwnModel(rule_of(name)))
    score = Score("test", served_by=work)
    ids = np.arange(5)
    found = []
    for made in (SerialEngine, kind):
        with closing(OwnModelEngine(made(runner()))) as engine:
            for number in range(2):
                (reply,) = engine.run(work, ids, START + number, zeros(5), key=KEY.at(number))
            losses = np.zeros(7)
            for scored in engine.run(score, np.arange(7), START, zeros(7), key=KEY.of("score")):
                losses[scored.ids] = scored.fields["loss"][:, 0]
            found.append((reply.fields["delta"], engine.store.state().vectors, losses))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@dataclass
class Messages:
    """An engine that reads every message between server and clients."""

    engine: Engine
    trainings: int = field(default=0, init=False)

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        assert models.shape[1] == D
        replies = self.engine.run(work, ids, models, which, key=key)
        for reply in replies:
            assert set(reply.fields) == set(work.fields(D, which.reshape(len(ids), -1).shape[1]))
            if isinstance(work, Train):
                self.trainings += len(reply)
                delta = reply.fields["delta"]
                assert delta.shape == (len(reply), D) or work.upload is not None
                # Nor is what stays in memory that would be sent along.
                assert delta.base is None or delta.base.size == delta.size
        return replies

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


@pytest.mark.sampled(4)
@every
@pytest.mark.parametrize("method", [ct.fedgroup(groups=2, alpha=3), ct.ifca(groups=2)])
def test_no_message_has_what_a_client_stores(name: str, method: ct.Method) -> None:
    made, net = fit_to_model(override(method, own_model=rule_of(name)), small_net(), Key(3))
    algorithm = as_algorithm(made)
    with make_clients(blobs(), net, SOLVER, "serial") as made_clients:
        messages = Messages(made_clients.engine)
        clients = replace(made_clients, engine=messages)
        groups = algorithm.init(initial_models(net, Key(2)), 12)
        for number in range(2):
            cohort = np.arange(number, 12, 2)
            groups, _ = algorithm.step(groups, round_of(clients, cohort, Key(1, number)))
        assert messages.trainings
        assert len(clients.stores.own_models.ids()) == (12 if rule_of(name).lengths(D) else 0)
        assert not len(clients.stores.parts.ids())


REFUSED = {
    "local": "the method already keeps values on its clients",
    "fedper": "the method already keeps values on its clients",
    "lg_fedavg": "the method already keeps values on its clients",
    "fedrep": "the method already keeps values on its clients",
    "fedbn": "the method already keeps values on its clients",
    "pooled": "all data are pooled",
    "rfedavg-one": "clients send a gradient",
    **dict.fromkeys(("fedem", "fedrc"), "clients train several models"),
    **dict.fromkeys(
        (*OWN_MODELS, "scaffold", "stocfl", "lcfed", "lcfed-one"),
        "the method already keeps values on its clients",
    ),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("case", "make"), contract_cases().items())
def test_ditto_goes_with_every_method_or_says_why_not(case: str, make: Make) -> None:
    """Ditto leaves the shared models as they are, so they have the bits of the method alone."""
    options = OPTIONS | {"rounds": 2}
    if case in REFUSED:
        (line,) = config_errors(lambda: ct.run(make(2), own_model="ditto", **options))
        assert line.startswith("own_model: ")
        assert REFUSED[case] in line
        return
    alone = ct.run(make(2), **options)
    beside = ct.run(make(2), own_model="ditto", **options)
    assert torch.equal(alone.state.models, beside.state.models)
    np.testing.assert_array_equal(alone.groups, beside.groups)
    assert len(beside.own_models.ids)
    for before, after in zip(alone.rows, beside.rows, strict=True):
        assert before["transfers"] == after["transfers"]


# --- the engine -------------------------------------------------------------------------------------


def test_a_trial_leaves_no_trace() -> None:
    engine = OwnModelEngine(SerialEngine(runner()))
    ids = np.arange(3)
    engine.run(Train(how=Steps(5), trial=True), ids, START, zeros(3), key=KEY)
    assert not len(engine.store.ids())


def test_a_client_that_chooses_is_sent_the_models_as_they_are() -> None:
    models = START + torch.randn(3, D, generator=torch.Generator().manual_seed(1))
    ids = np.arange(5)
    which = np.tile(np.arange(3), (5, 1))
    choose = Train(choose="least_loss")
    (alone,) = SerialEngine(runner()).run(choose, ids, models, which, key=KEY)
    beside = Train(how=WithOwnModel(Ditto()), choose="least_loss")
    (reply,) = OwnModelEngine(SerialEngine(runner())).run(beside, ids, models, which, key=KEY)
    for name, values in alone.fields.items():
        np.testing.assert_array_equal(values, reply.fields[name])
    assert len(set(reply.fields["choice"].tolist())) > 1


def test_an_update_that_is_not_finite_is_not_stored() -> None:
    inner = FaultyEngine(SerialEngine(runner()), Faults(hostile={1: "nan"}))
    engine = OwnModelEngine(inner)
    engine.run(Train(how=WithOwnModel(Ditto())), np.arange(3), START, zeros(3), key=KEY)
    assert engine.store.ids().tolist() == [0, 2]


class Counting:
    """An engine of a million clients; it counts the models that it is sent."""

    def __init__(self) -> None:
        self.models = 0

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        self.models += len(models)
        ones = np.ones(len(ids))
        fields = {"correct": ones[:, None], "size": ones, "loss": ones[:, None]}
        if isinstance(work, Train):
            delta = np.ones((len(ids), models.shape[1]), np.float32)
            fields = {"delta": delta, "size": ones, "loss": ones}
        return [Reply(key.round, ids, fields, key.purpose)]

    def close(self) -> None: ...


def test_a_million_clients_of_whom_a_thousand_were_met_cost_a_thousand_vectors() -> None:
    inner = Counting()
    engine = OwnModelEngine(inner)  # type: ignore[arg-type]
    work = Train(how=WithOwnModel(Ditto()))
    some = np.arange(0, 1_000_000, 1000)
    engine.run(work, some, START, zeros(len(some)), key=KEY)
    inner.models = 0
    everybody = np.arange(1_000_000)
    score = Score("test", served_by=work)
    replies = engine.run(score, everybody, START, zeros(len(everybody)), key=KEY)
    assert sum(len(reply) for reply in replies) == 1_000_000
    assert inner.models == 1 + 1000
    assert engine.store.state().vectors.shape == (1000, D)
    engine.store.forget(some[1:])
    assert engine.store.ids().tolist() == [0]


def test_the_last_local_network_is_that_of_the_shared_model() -> None:
    """What a client has of its own is no part of the network that it remembers."""
    found = {}
    for name, method in {"fedavg": ct.fedavg(), "ditto": ct.ditto()}.items():
        rows = ct.run(method, evaluate={"local": True}, **OPTIONS).rows
        found[name] = [row["accuracy_local"] for row in rows]
    assert found["fedavg"] == found["ditto"]


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="own_model"):
        Train(how=WithOwnModel(Ditto()), keep=Keep(((0, 1),)))
    with refuses(ct.ConfigError, "differs", "algorithm.name"):
        wire.dumps(Train(how=WithOwnModel(Ditto())), Train(how=WithOwnModel(Ditto(lam=2.0))))
    (line,) = config_errors(lambda: ct.run(ct.fedavg(), own_model="dito", **OPTIONS))
    assert line.startswith("own_model.name: unknown choice, got 'dito'; expected")
    (line,) = config_errors(lambda: ct.run(ct.ditto(), personal={"layers": ["head"]}, **OPTIONS))
    assert "itself sets what stays" in line
    (line,) = config_errors(lambda: ct.ditto(lam=-1.0))
    assert line.startswith("lam: ")


# --- identities -------------------------------------------------------------------------------------


# All train in the first round, so that own models begin with w_0, as those of local training do.
EVERYONE = OPTIONS | {"clients_per_round": 12}


def test_ditto_without_a_pull_is_local_training_beside_fedavg() -> None:
    alone = ct.run(ct.algorithms.local(), **EVERYONE)
    shared = ct.run(ct.fedavg(), **EVERYONE)
    both = ct.run(ct.ditto(lam=0.0), **EVERYONE)
    assert torch.equal(shared.state.models, both.state.models)
    for client in range(12):
        assert torch.equal(alone.vector_for(client), both.vector_for(client))
    pulled = ct.run(ct.ditto(lam=5.0), **EVERYONE)
    client = int(both.own_models.ids[0])
    near = (pulled.vector_for(client) - shared.vector_for(client)).norm()
    far = (both.vector_for(client) - shared.vector_for(client)).norm()
    assert near < 0.5 * far


class Smooth(torch.nn.Sequential):
    """A network that no compiled step knows, so that all training is by autograd."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.random.default_generator.manual_seed(2)
            super().__init__(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))


def test_apfl_is_fedavg_without_own_models_and_local_training_with_nothing_else() -> None:
    options = EVERYONE | {"model": Smooth(), "train": {"evaluate_loss": True}}
    shared = ct.run(ct.fedavg(), **options)
    alone = ct.run(ct.algorithms.local(), **options)
    nothing = ct.run(ct.apfl(alpha=0.0, adaptive=False), **options)
    everything = ct.run(ct.apfl(alpha=1.0, adaptive=False), **options)
    for both in (nothing, everything, ct.run(ct.apfl(), **options)):
        assert torch.equal(shared.state.models, both.state.models)
    for client in range(12):
        assert torch.equal(shared.vector_for(client), nothing.vector_for(client))
        assert torch.equal(alone.vector_for(client), everything.vector_for(client))
    # Losses of clients that are scored together are summed in another order.
    losses = [[row["test_loss"] for row in result.rows] for result in (shared, nothing)]
    assert losses[0] == pytest.approx(losses[1])
    compiled = ct.run(ct.apfl(alpha=1.0, adaptive=False), **EVERYONE)
    local = ct.run(ct.algorithms.local(), **EVERYONE)
    for client in range(12):
        assert torch.equal(compiled.vector_for(client), local.vector_for(client))


@pytest.mark.parametrize("net", [NET, Smooth()], ids=["compiled", "autograd"])
def test_per_fedavg_without_an_inner_step_is_fedavg_to_the_bit(net: nn.Module) -> None:
    options = OPTIONS | {"model": net, "train": {"evaluate_loss": True}}
    shared = ct.run(ct.fedavg(), **options)
    for order in ("first", "hessian_free"):
        found = ct.run(ct.perfedavg(alpha=0.0, order=order), **options)
        assert torch.equal(shared.state.models, found.state.models)
        # Losses of clients that are scored together are summed in another order.
        assert [row["test_loss"] for row in found.rows] == pytest.approx(
            [row["test_loss"] for row in shared.rows]
        )


@pytest.mark.parametrize("method", [ct.fedprox(mu=2.0), ct.fedsoft(groups=2, mu=2.0)])
def test_rules_that_step_by_themselves_keep_the_proximal_term(method: ct.Method) -> None:
    options = OPTIONS | {"model": Smooth()}
    pulled = ct.run(method, **options).state.models
    stepped = ct.run(method, own_model=PerFedAvg(alpha=0.0), **options).state.models
    torch.testing.assert_close(stepped, pulled)


def test_the_proximal_term_and_that_of_pfedme_pull_together_in_the_first_step() -> None:
    def shared(method: ct.Method, lam: float, lr: float) -> Tensor:
        solver = ct.Solver(epochs=1, batch_size=99, lr=lr)
        options = OPTIONS | {"model": Smooth(), "rounds": 2, "local": solver}
        rule = PFedMe(lam=lam, inner_steps=3, inner_lr=0.05)
        return ct.run(method, own_model=rule, **options).state.models

    # Both terms pull to the model that is sent. The shared model then steps by lr * lam alone.
    together = shared(ct.fedavg(), lam=5.0, lr=0.1)
    torch.testing.assert_close(shared(ct.fedprox(mu=3.0), lam=2.0, lr=0.25), together)


def test_pfedme_with_one_inner_step_of_one_batch_is_a_step_of_fedavg() -> None:
    one = ct.Solver(epochs=1, batch_size=99, lr=0.1)
    options = OPTIONS | {"model": Smooth(), "rounds": 1, "weigh": "evenly"}
    shared = ct.run(ct.fedavg(), **options | {"local": one})
    method = ct.pfedme(lam=2.0, inner_steps=1, inner_lr=0.5)
    found = ct.run(method, **options | {"local": one})
    torch.testing.assert_close(shared.state.models, found.state.models)


def test_rules_that_step_by_themselves_need_plain_sgd() -> None:
    for options in (
        {"optimizer": "adam"},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"clip_norm": 1.0},
        {"precision": "bfloat16"},
        {"step_schedule": ct.LrSchedule("cosine")},
    ):
        (key,) = options
        with refuses(ct.ConfigError, "in-conflict", f"local.{key}"):
            ct.run(ct.apfl(), **OPTIONS | {"local": ct.Solver(**options)})
    ct.run(ct.apfl(), **OPTIONS | {"local": ct.Solver(label_smoothing=0.1, weight_decay=0.0)})
    normed = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))
    with refuses(ct.ConfigError, "does-not-fit", "model.name"):
        ct.run(ct.pfedme(), **OPTIONS | {"model": normed})


def test_moon_without_a_contrast_is_fedavg() -> None:
    shared = ct.run(ct.fedavg(), **OPTIONS)
    found = ct.run(ct.moon(mu=0.0), **OPTIONS)
    assert torch.equal(shared.state.models, found.state.models)
    assert [row["accuracy"] for row in shared.rows] == [row["accuracy"] for row in found.rows]
    contrasted = ct.run(ct.moon(mu=5.0), **OPTIONS)
    assert not torch.equal(shared.state.models, contrasted.state.models)
    # The network that a client trained last is the one that it remembers.
    networks = ct.run(ct.moon(mu=5.0), evaluate={"local": True}, **OPTIONS)
    assert torch.equal(networks.state.models, contrasted.state.models)


@pytest.mark.parametrize("option", [{"adaptive_layers": 0}, {"eta": 0.0}])
def test_fedala_without_adaptive_layers_or_without_learning_is_fedavg(option: Any) -> None:
    shared = ct.run(ct.fedavg(), **OPTIONS)
    found = ct.run(ct.fedala(**option), **OPTIONS)
    assert torch.equal(shared.state.models, found.state.models)
    assert [row["accuracy"] for row in shared.rows] == [row["accuracy"] for row in found.rows]


def test_fedala_is_fedavg_in_the_first_round_alone() -> None:
    for rounds, same in ((1, True), (3, False)):
        options = OPTIONS | {"rounds": rounds}
        found = [ct.run(method, **options).state.models for method in (ct.fedavg(), ct.fedala())]
        assert torch.equal(*found) == same


def test_fedala_mixes_the_last_layers_alone() -> None:
    engine = OwnModelEngine(SerialEngine(runner()))
    work = Train(how=WithOwnModel(FedAla()))
    ids = np.arange(5)
    engine.run(work, ids, START, zeros(5), key=KEY)
    other = START + torch.randn(1, D, generator=torch.Generator().manual_seed(1))
    found = engine.served_models(work, ids, other, zeros(5), KEY.of("score"))
    at = Layout.of(NET).final_layer()
    assert torch.equal(found[:, : at.start], other[:, : at.start].expand(5, -1))
    stored = torch.from_numpy(engine.store.get(ids))[:, :D]
    both = torch.stack([stored, other.expand(5, -1)])[:, :, at]
    assert (found[:, at] >= both.min(dim=0).values).all()
    assert (found[:, at] <= both.max(dim=0).values).all()
    # Each client has weights of its own, and they are neither all nor nothing.
    assert len(found[:, at].unique(dim=0)) == 5
    assert not torch.equal(found[:, at], both[0])


def test_scaffold_is_fedavg_in_its_first_round_and_with_one_client() -> None:
    options = OPTIONS | {"weigh": "evenly"}
    shared = ct.run(ct.fedavg(), **options | {"rounds": 1})
    first = ct.run(ct.scaffold(), **OPTIONS | {"rounds": 1})
    assert torch.equal(shared.state.models, first.state.models)
    one = OPTIONS | {"data": blobs(clients=1), "clients_per_round": 1}
    assert torch.equal(
        ct.run(ct.fedavg(), **one).state.models, ct.run(ct.scaffold(), **one).state.models
    )
    both = [ct.run(method, **options) for method in (ct.fedavg(), ct.scaffold())]
    assert not torch.equal(both[0].state.models, both[1].state.models)


def test_the_servers_variate_is_the_mean_of_those_of_the_clients_and_is_sent_with_the_model() -> (
    None
):
    options = OPTIONS | {"rounds": 4, "bounds": {"enabled": False}}
    result = ct.run(ct.scaffold(), **options)
    variates = np.zeros((12, D), np.float32)
    variates[result.own_models.ids] = result.own_models.vectors
    server = result.state.memory.get(ControlVariate)
    assert server is not None
    assert_near(server.c, variates.mean(axis=0), within=1e-5)
    shared = ct.run(ct.fedavg(), **options)
    for alone, beside in zip(shared.rows, result.rows, strict=True):
        assert beside["transfers"]["down_bytes"] == 2 * alone["transfers"]["down_bytes"]
        assert beside["transfers"]["up_bytes"] == alone["transfers"]["up_bytes"]


def test_the_servers_variate_counts_the_steps_of_a_client_whose_claim_of_samples_was_lowered() -> (
    None
):
    whole = blobs()
    # 12 clients, of whom one has so many samples that the bounds lower what it counts in a mean.
    train = tuple(np.resize(rows, 10) for rows in whole.train)
    many = np.resize(whole.train[0], 40)
    data = whole.with_parts((many, *train[1:]), whole.test)
    options = OPTIONS | {"data": data, "clients_per_round": 12}
    result = ct.run(ct.scaffold(), **options | {"local": replace(SOLVER, lr=0.05), "rounds": 2})
    assert [row["clipped"] for row in result.rows] == [{"size": 1}] * 2
    server = result.state.memory.get(ControlVariate)
    assert server is not None
    variates = result.own_models.vectors.mean(axis=0)
    assert_near(server.c, variates, within=1e-5)


def test_a_client_that_adapts_has_no_model_without_its_samples() -> None:
    result = ct.run(ct.perfedavg(), **OPTIONS)
    with refuses(ct.ConfigError, "does-not-fit", "client"):
        result.vector_for(0)


def test_the_model_of_a_client_is_what_it_is_scored_with() -> None:
    result = ct.run(ct.ditto(lam=0.1), **OPTIONS | {"train": {"evaluate_loss": True}})
    correct = 0
    total = 0
    data = OPTIONS["data"]
    for client in range(12):
        rows = torch.from_numpy(data.test[client])
        right = result.model_for(client)(data.x[rows]).argmax(dim=1) == data.y[rows]
        correct += int(right.sum())
        total += len(rows)
    assert result.rows[-1]["accuracy_all"] == pytest.approx(correct / total)


def test_a_client_without_training_samples_is_served_the_model_as_it_is_sent() -> None:
    whole = blobs()
    train = (np.empty(0, np.int64), *whole.train[1:])
    engine = OwnModelEngine(
        SerialEngine(LocalRunner(whole.with_parts(train, whole.test), NET, SOLVER))
    )
    work = Train(how=WithOwnModel(OWN_MODELS["perfedavg"](alpha=1.0)))
    found = {}
    for served_by in (None, work):
        score = Score("test", served_by=served_by)
        (reply,) = engine.run(score, np.arange(2), START, zeros(2), key=KEY)
        found[served_by] = reply.fields["loss"][:, 0]
    np.testing.assert_allclose(found[None][0], found[work][0], rtol=1e-6)
    assert abs(found[None][1] - found[work][1]) > 0.01


# --- what an objective compares with ----------------------------------------------------------------


class Seen:
    """The cross-entropy of the task, which writes down the model that it is told was received."""

    def __init__(self, mu: float = 0.0) -> None:
        self.mu = mu
        self.received: list[Tensor] = []

    def loss(self, module: nn.Module, x: Tensor, y: Tensor, received: Any) -> Tensor:
        self.received.append(torch.cat([p.flatten() for p in received().parameters()]).clone())
        return nn.functional.cross_entropy(module(x), y)


@pytest.mark.parametrize("name", ["ditto", "fedala", "apfl", "pfedme"])
def test_the_received_model_is_what_the_server_sent(name: str) -> None:
    """Also where a rule trains from a start of its own, as Ditto's v and FedALA's mixture."""
    seen = Seen()
    work = Train(seen, WithOwnModel(rule_of(name)))
    with closing(OwnModelEngine(SerialEngine(runner()))) as engine:
        for number in range(2):
            sent = START + 0.1 * number
            seen.received.clear()
            engine.run(work, np.arange(2), sent, zeros(2), key=KEY.at(number))
            assert seen.received
            assert all(torch.equal(received, sent[0]) for received in seen.received)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_proximal_term_pulls_to_the_model_that_was_sent(momentum: float) -> None:
    """FedALA starts from a mixture; FedProx's term is about the server's model. A pull so strong that
    a step ends at its anchor shows where it leads."""
    solver = ct.Solver(epochs=40, batch_size=100, lr=0.001, momentum=momentum)
    rule = FedAla(adaptive_layers=2)
    work = Train(proximal(900.0), WithOwnModel(rule))
    far = {"v": START[0] + 1.0, "weights": torch.zeros(D), "learned": torch.ones(1)}
    stored = torch.cat([far[key] for key in rule.lengths(D)])
    trainers = Trainers(NET, ())
    population = blobs()
    rows = torch.from_numpy(population.train[0])
    samples = TrainingSamples(population.x[rows], population.y[rows])
    row = torch.cat([START[0], stored])
    out = torch.empty_like(row)
    train_own_model(trainers, work, solver, samples, row, out, KEY.client(0))
    # The start is one away from the sent model in every layer, the end is next to it.
    assert out[:D].abs().max() < 0.01


def test_fedrod_without_class_counts_trains_the_shared_model_of_fedavg() -> None:
    options = OPTIONS | {"model": Smooth()}
    shared = ct.run(ct.fedavg(), **options)
    plainly = ct.run(ct.fedrod(gamma=0.0), **options)
    torch.testing.assert_close(plainly.state.models, shared.state.models)
    balanced = ct.run(ct.fedrod(), **options)
    assert (balanced.state.models - shared.state.models).abs().max() > 1e-3
    # What clients predict by has no part in the training.
    generic = ct.run(ct.fedrod(predict="generic"), **options)
    assert torch.equal(generic.state.models, balanced.state.models)
    client = int(generic.own_models.ids[0])
    assert torch.equal(generic.vector_for(client), generic.state.models[0])
    own = balanced.vector_for(client) - balanced.state.models[0]
    head = Layout.of(Smooth()).final_layer()
    assert not own[: head.start].any()
    assert own[head].any()


def test_the_shared_model_of_fedrod_keeps_the_proximal_term() -> None:
    """With ``lr mu = 1`` a step goes back to the model that was sent, and then along the gradient."""
    solver = ct.Solver(epochs=2, batch_size=99, lr=0.1)
    options = OPTIONS | {"model": Smooth(), "rounds": 1, "local": solver}
    one_step = OPTIONS | {"model": Smooth(), "rounds": 1, "local": replace(solver, epochs=1)}
    pulled = ct.run(ct.fedrod(), objective=proximal(mu=10.0), **options)
    free = ct.run(ct.fedrod(), **options)
    once = ct.run(ct.fedrod(), **one_step)
    near = (pulled.state.models - once.state.models).norm()
    far = (free.state.models - once.state.models).norm()
    assert near < 0.2 * far


def test_fedrod_in_another_method_says_that_it_needs_classes() -> None:
    whole = blobs()
    numbers = ct.Population(whole.x, whole.y.float(), whole.train, whole.test)
    options = OPTIONS | {"data": numbers, "task": "regression", "model": torch.nn.Linear(6, 1)}
    with refuses(ct.CoterieError, "failed", "own_model"):
        ct.run(ct.fedavg(), own_model="fedrod", **options)
    with refuses(ct.ConfigError, "does-not-fit", "task.kind"):
        ct.run(ct.fedrod(), **options)

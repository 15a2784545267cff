"""Only what trains moves: frozen parameters, tied weights, counters and frozen normalisation."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.keys import Key, keyed_torch
from coterie.core.vectors import (
    Layout,
    bind,
    copy_module,
    flatten,
    frozen_digest,
    frozen_parameters,
    whole_state,
)
from coterie.errors import ConfigError
from coterie.local.training.sgd import Autograd
from coterie.models import initial_models
from coterie.objectives import plain
from tests.conftest import assert_near
from tests.refusals import refuses

SOLVER = ct.Solver(epochs=2, batch_size=4, lr=0.1)


class Tied(nn.Module):
    """One matrix as embedding and as classifier, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6, bias=False)
        self.last = nn.Linear(6, 6, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(torch.tanh(self.first(x)))
        return made


class Counts(nn.Module):
    """Adds noise to its outputs by how often it was trained; a buffer of whole numbers counts."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 6)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.ones(6), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps = self.steps + 1
        made: Tensor = self.dense(x * self.scale) / (1 + self.steps)
        return made


def backbone() -> nn.Sequential:
    """Frozen dense layers with normalisation, and a trained head."""
    with keyed_torch(Key(4)):
        net = nn.Sequential(
            nn.Linear(6, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 30), nn.Linear(30, 6)
        )
    net[1].running_mean.fill_(0.25)  # type: ignore[union-attr,operator]
    net.requires_grad_(False)
    net[-1].requires_grad_(True)
    return net


def made(kind: type[nn.Module]) -> nn.Module:
    with keyed_torch(Key(4)):
        return kind()


def population() -> ct.Population:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(12 * 10, 6)), dtype=torch.float32)
    parts = np.arange(120).reshape(12, 10)
    y = x.argmax(dim=1)
    return ct.Population(x, y, tuple(parts[:, :7]), tuple(parts[:, 7:]), 6)


def run(net: nn.Module, **options: Any) -> ct.Result:
    given: dict[str, Any] = {"engine": "serial", "rounds": 1, "clients_per_round": 6, **options}
    method = given.pop("method", None) or ct.fedgroup(groups=2, alpha=2)
    return ct.run(method, data=population(), model=net, local=SOLVER, **given)


def test_frozen_parameters_do_not_move() -> None:
    net = backbone()
    before = copy.deepcopy(net.state_dict())
    head = 30 * 6 + 6
    layout = Layout.of(net)
    assert (layout.d, layout.names) == (head, ("4.weight", "4.bias"))
    assert layout.final_layer() == slice(0, head)
    serial = run(net)
    assert serial.state.models.shape == (2, head)
    assert not torch.equal(serial.state.models[0], flatten(net))
    # Neither the layers nor the statistics of the frozen normalisation changed.
    for client in range(12):
        served = serial.model_for(client).state_dict()
        for name, values in before.items():
            assert name.startswith("4.") or torch.equal(served[name], values), name
    pool = run(net, engine={"name": "pool", "workers": 2})
    assert torch.equal(serial.state.models, pool.state.models)


def test_bytes_are_those_of_what_is_trained() -> None:
    net = backbone()
    row = run(net, method=ct.fedavg()).rows[0]
    assert row["transfers"]["up_bytes"] == 6 * 4 * (Layout.of(net).d + 2)  # size and loss
    assert row["transfers"]["down_bytes"] == 6 * 4 * Layout.of(net).d


def test_vmap_trains_a_frozen_network_as_the_others_do() -> None:
    with keyed_torch(Key(4)):
        net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6))
    net[0].requires_grad_(False)
    alone = run(net).state.models
    together = run(net, engine="vmap").state.models
    assert alone.shape[1] == 60
    assert_near(together, alone, 1e-4)


def test_tied_weights_move_once_and_stay_tied() -> None:
    net = made(Tied)
    assert Layout.of(net).names == ("first.weight",)
    result = run(net)
    assert torch.equal(
        result.state.models, run(net, engine={"name": "pool", "workers": 2}).state.models
    )
    served = result.model_for(0)
    assert served.first.weight is served.last.weight
    assert torch.equal(served.first.weight.flatten(), result.vector_for(0))
    # A file of the model has both names, so that it can be loaded without knowing of the tie.
    state = whole_state(net, result.vector_for(0))
    assert torch.equal(state["first.weight"], state["last.weight"])


def test_counters_begin_every_training_anew_and_are_not_sent() -> None:
    net = made(Counts)
    assert Layout.of(net).names == ("dense.weight", "dense.bias")
    result = run(net)
    # Clients of one worker would otherwise count on where the last one stopped.
    assert torch.equal(
        result.state.models, run(net, engine={"name": "pool", "workers": 2}).state.models
    )
    assert int(net.get_buffer("steps")) == 0


def test_statistics_that_are_trained_still_move() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    layout = Layout.of(net)
    assert layout.names[-2:] == ("1.running_mean", "1.running_var")
    assert layout.trainable == 4


def test_the_received_model_has_the_frozen_parameters() -> None:
    net = backbone()
    trainer = Autograd(copy_module(net), plain)
    start = flatten(net)
    trainer.flat.write(start)
    trainer.sent = start
    received = trainer._received()
    x = torch.randn(5, 6, generator=Key(1).torch())
    assert torch.equal(received(x), net.eval()(x))
    assert received.get_parameter("0.weight") is net.get_parameter("0.weight")  # one copy of it


def test_first_models_differ_in_what_is_trained_alone() -> None:
    net = backbone()
    first = initial_models(net, Key(0))
    assert torch.equal(first(0), flatten(net))
    assert not torch.equal(first(1), first(2))
    assert first(1).shape == (186,)


def test_the_digest_is_of_frozen_values() -> None:
    net = backbone()
    assert frozen_digest(nn.Linear(2, 2)) == ""
    assert frozen_digest(net) == frozen_digest(copy.deepcopy(net))
    other = copy.deepcopy(net)
    with torch.no_grad():
        other[4].weight.add_(1)  # type: ignore[union-attr,operator]
    assert frozen_digest(other) == frozen_digest(net)
    with torch.no_grad():
        other[0].bias.add_(1)  # type: ignore[union-attr,operator]
    assert frozen_digest(other) != frozen_digest(net)


def test_a_whole_state_has_everything() -> None:
    net = backbone()
    vector = torch.arange(186.0)
    state = whole_state(net, vector)
    again = copy.deepcopy(net)
    missing, unexpected = again.load_state_dict(state, strict=False)
    assert (missing, unexpected) == ([], [])
    assert torch.equal(flatten(again), vector)
    assert set(frozen_parameters(net)) < set(state)
    assert torch.equal(flatten(bind(net, vector.clone())), vector)


def test_a_network_without_anything_to_train_is_refused_in_one_line() -> None:
    net = nn.Linear(6, 6).requires_grad_(False)
    with refuses(ConfigError, "does-not-fit", "model.name") as caught:
        run(net)
    assert "\n" not in str(caught.value)

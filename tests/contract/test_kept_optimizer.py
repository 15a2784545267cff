"""Clients whose optimiser goes on from what it remembered of the training before."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.algorithms.local import local
from coterie.config.identity import config_hash
from coterie.config.local_problems import optimizer_classes
from coterie.core.vectors import Layout
from coterie.experiment import check
from coterie.local.training.optimizers import memory_size
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.progress import OWN_MODELS, kept_state
from coterie.runs.run import Stopped, execute, make_folder, run_config
from coterie.tasks import regression
from tests.conftest import blobs, config_errors, small_net
from tests.refusals import refuses

ADAM = ct.Solver(epochs=2, batch_size=5, lr=0.01, optimizer="adam", keep_state=True)
OPTIONS: dict[str, Any] = {
    "data": blobs(),
    "model": small_net(),
    "local": ADAM,
    "rounds": 3,
    "clients_per_round": 6,
    "engine": "serial",
}


def one_client(solver: ct.Solver) -> float:
    """The weight after two rounds of one step each on ``(y - w x)^2`` with ``x = 1, y = 3``, from 0."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    x = torch.ones(2, 1)
    data = ct.Population(x, torch.full((2,), 3.0), ([0],), ([1],))
    found = ct.run(
        local(),
        data=data,
        model=module,
        local=solver,
        rounds=2,
        clients_per_round=1,
        task=regression(scaling="none"),
        engine="serial",
    )
    return float(found.vector_for(0))


@pytest.mark.parametrize(
    ("options", "kept", "anew"),
    [
        # g1 = -6: m = -0.6, v = 0.036, w = 0.1. g2 = 2 (0.1 - 3) = -5.8: m = 0.9 * -0.6 - 0.58 = -1.12,
        # v = 0.999 * 0.036 + 0.03364 = 0.069604; m / (1 - 0.9^2) = -5.894737,
        # v / (1 - 0.999^2) = 34.819410, so w = 0.1 + 0.1 * 5.894737 / 5.900797. Anew both steps are 0.1.
        ({"optimizer": "adam"}, 0.1998973, 0.2),
        # v1 = -6, w = 0.6. g2 = 2 (0.6 - 3) = -4.8, v2 = 0.9 * -6 - 4.8 = -10.2, w = 1.62; anew 1.08.
        ({"momentum": 0.9}, 1.62, 1.08),
        # s1 = 0.01 * 36, w = 0.1 * 6 / 0.6 = 1. g2 = -4, s2 = 0.99 * 0.36 + 0.16 = 0.5164,
        # w = 1 + 0.4 / 0.718610; anew s2 = 0.16 and w = 1 + 0.4 / 0.4.
        ({"optimizer": "rmsprop"}, 1.5566302, 2.0),
    ],
    ids=["adam", "momentum", "rmsprop"],
)
def test_two_rounds_by_hand(options: dict[str, Any], kept: float, anew: float) -> None:
    solver: dict[str, Any] = {"epochs": 1, "batch_size": 1, "lr": 0.1, **options}
    assert one_client(ct.Solver(**solver, keep_state=True)) == pytest.approx(kept, abs=1e-6)
    assert one_client(ct.Solver(**solver)) == pytest.approx(anew, abs=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("optimizer", [*sorted(optimizer_classes()), "sgd, momentum"])
def test_rounds_are_one_long_training(optimizer: str) -> None:
    """Each client for itself, on full batches, in which the order of samples changes rounding alone."""
    name, _, momentum = optimizer.partition(", ")
    # Adadelta finds its own step, which a rate of 1 leaves as it is.
    lr = 1.0 if name == "adadelta" else 0.01
    options: dict[str, Any] = {"batch_size": 99, "lr": lr, "optimizer": name}
    if name == "sgd":
        # Nesterov's is a step of torch, the other one of our own.
        options |= {"momentum": 0.9}
        if not momentum:
            options["optimizer_options"] = {"nesterov": True}
    everybody = OPTIONS | {"clients_per_round": 12}

    def trained(epochs: int, rounds: int, *, keep_state: bool) -> torch.Tensor:
        solver = ct.Solver(epochs=epochs, keep_state=keep_state, **options)
        run = ct.run(local(), **everybody | {"local": solver, "rounds": rounds})
        return torch.from_numpy(run.kept.vectors)

    once = trained(6, 1, keep_state=False)
    torch.testing.assert_close(trained(2, 3, keep_state=True), once, atol=2e-5, rtol=1e-4)
    anew = trained(2, 3, keep_state=False)
    # All that ASGD remembers is a rate that falls by a millionth in so few steps.
    if name != "asgd":
        assert (anew - once).abs().max() > 1e-4


METHODS: dict[str, Any] = {
    "fedavg": ct.fedavg(),
    "fedprox": ct.fedprox(mu=0.1),
    "fedgroup": ct.fedgroup(groups=2, alpha=3),
    "flexcfl": ct.flexcfl(groups=2, alpha=3),
    "ifca": ct.ifca(groups=2),
    "fedgsp": ct.fedgsp(),
    "fedper": ct.fedper(),
    "local": local(),
    "pooled": ct.pooled(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", METHODS)
def test_engines_agree_and_nothing_of_it_is_sent(name: str) -> None:
    serial = ct.run(METHODS[name], **OPTIONS)
    engines: list[dict[str, Any]] = [
        {"engine": {"name": "pool", "workers": 2}},
        {"engine": {"name": "vmap", "device": "cpu"}},
    ]
    for engine in engines:
        other = ct.run(METHODS[name], **OPTIONS | engine)
        if engine["engine"]["name"] == "vmap" and name in ("flexcfl", "fedgroup"):
            # Clients of a cold start keep nothing, and are trained as one block.
            torch.testing.assert_close(other.state.models, serial.state.models)
            continue
        assert torch.equal(other.state.models, serial.state.models)
        assert np.array_equal(other.own_models.vectors, serial.own_models.vectors)
        assert np.array_equal(other.kept.vectors, serial.kept.vectors)
    plain = ct.run(METHODS[name], **OPTIONS | {"local": ct.Solver(epochs=2, batch_size=5)})
    for row, bare in zip(serial.rows, plain.rows, strict=True):
        if name not in ("flexcfl", "fedgroup", "ifca"):  # which may group differently
            assert row["transfers"] == bare["transfers"]
    # Whoever trained has two moments and a count of steps of each tensor, and nobody else has.
    shapes = Layout.of(small_net()).shapes
    size = memory_size(ADAM, shapes)
    assert size == 1 + 2 * Layout.of(small_net()).d + len(shapes)
    assert serial.own_models.vectors.shape == (len(serial.own_models.ids), size)
    assert (serial.own_models.vectors[:, 0] == 1).all()


def test_clients_that_did_not_train_before_are_those_of_a_run_that_keeps_nothing() -> None:
    """In the first round nothing is remembered: but for compiled steps it is the same training."""
    solver = ct.Solver(epochs=2, batch_size=5, lr=0.01, optimizer="rmsprop")
    options = OPTIONS | {"local": solver}
    kept = options | {"local": ct.Solver(**{**_values(solver), "keep_state": True})}
    first = [ct.run(ct.fedavg(), **one | {"rounds": 1}).state.models for one in (options, kept)]
    assert torch.equal(*first)
    later = [ct.run(ct.fedavg(), **one).state.models for one in (options, kept)]
    assert not torch.equal(*later)


def _values(solver: ct.Solver) -> dict[str, Any]:
    names = ("epochs", "batch_size", "lr", "optimizer")
    return {name: getattr(solver, name) for name in names}


def tables(algorithm: str) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {
            "source": "digits",
            "partition": {"kind": "planted", "clients": 8, "groups": 2},
        },
        "model": {"name": "mlp"},
        "local": {"epochs": 1, "lr": 0.01, "optimizer": "adam", "keep_state": True},
        "train": {"rounds": 4, "clients_per_round": 3},
        "algorithm": {"name": algorithm},
        "engine": {"name": "serial"},
        "checkpoint": {"seconds": 0},
    }


@pytest.mark.parametrize("algorithm", ["fedavg", "fedper"])
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(
    algorithm: str, tmp_path: Path
) -> None:
    config = check(tables(algorithm))
    run_config(config, tmp_path / "straight")
    composed = compose(config)
    folder = make_folder(composed, tmp_path / "stopped")
    done: list[object] = []

    def stop() -> int:
        return signal.SIGTERM if len(done) == 2 else 0

    with pytest.raises(Stopped):
        execute(composed, folder, done.append, stop=stop)
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    execute(compose(config), folder, checkpoint=checkpoint, resume=True)
    ends = [RunFolder(tmp_path / name).checkpoints.latest() for name in ("straight", "stopped")]
    one, other = ends
    assert one is not None
    assert other is not None
    assert torch.equal(one.groups.models, other.groups.models)
    for prefix in ("", OWN_MODELS):
        kept = [kept_state(end.extra, prefix) for end in (one, other)]
        assert np.array_equal(kept[0].vectors, kept[1].vectors)
    assert len(kept_state(one.extra, OWN_MODELS).ids) > 3


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (ct.fedem(groups=2), "clients train several models"),
        (ct.ditto(), "clients train by their own rule"),
        (ct.moon(), "clients train by their own rule"),
        (ct.fedrep(), "clients train in phases"),
        (ct.rfedavg(gradient="one"), "clients send a gradient"),
    ],
    ids=["fedem", "ditto", "moon", "fedrep", "rfedavg"],
)
def test_what_cannot_be_is_refused_in_one_line(method: Any, why: str) -> None:
    (line,) = config_errors(lambda: ct.run(method, **OPTIONS))
    assert line.startswith(f"local.keep_state: {why}")
    assert line.endswith("got true; expected false, or another algorithm")


def test_an_optimiser_that_remembers_nothing_is_refused() -> None:
    line = "keep_state: sgd without momentum has no state to keep, got true; expected false, a momentum"
    (found,) = config_errors(lambda: ct.Solver(keep_state=True))
    assert found.startswith(line)
    (found,) = config_errors(lambda: check(tables("fedavg") | {"local": {"keep_state": True}}))
    assert f"local.{line}" in found
    with refuses(ct.ConfigError, "wrong-type", "keep_state"):
        ct.Solver(optimizer="adam", keep_state=1)  # type: ignore[arg-type]


def test_a_run_that_says_no_is_that_of_before() -> None:
    before = tables("fedavg")
    del before["local"]["keep_state"]
    stored = check(before).resolved()
    assert config_hash(stored) != config_hash(check(tables("fedavg")).resolved())
    del stored["local"]["keep_state"]
    assert config_hash(stored) == config_hash(check(before).resolved())

"""Many clients at once: equal to one at a time, whatever the network, the objective, the solver and
the blocks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import coterie as ct
from coterie.cli.main import invoke
from coterie.clients.clients import Clients
from coterie.config.identity import differing
from coterie.core.augment import Augment
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.training import Epochs, FullGradient, Steps
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import SerialEngine
from coterie.engines.vmap import VmapEngine
from coterie.errors import Code
from coterie.experiment import check
from coterie.local import LocalRunner
from coterie.local.device import Device, find_device
from coterie.local.training.batched import BatchedTrainer
from coterie.local.training.buffers import CudaGraphCache
from coterie.local.training.probe import draws
from coterie.methods.algorithm import as_algorithm
from coterie.models import MODELS, build_model
from coterie.objectives import fuse, fusion, mmd, plain, proximal
from coterie.objectives.mmd import WIDTHS, Mmd
from tests.conftest import assert_near, blobs, small_net
from tests.contract import test_algorithms as contract
from tests.contract.test_algorithms import CASES
from tests.refusals import refuses

SOLVER = Solver(epochs=2, batch_size=5, lr=0.1)


def mixed() -> nn.Module:
    """Three kinds of dropout, and one that the network calls itself."""
    return nn.Sequential(
        *(
            nn.Linear(6, 8),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Unflatten(1, (2, 2, 2)),
            nn.Dropout2d(0.4),
        ),
        *(nn.Flatten(), Tired(), nn.Linear(8, 4)),
    )


class Tired(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x.unsqueeze(2), 0.2, self.training).squeeze(2)


class Mean(nn.Module):
    """Every sample sees its batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.5 * x.mean(dim=0)


class Crowd(Mean):
    """The same in training alone."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return super().forward(x)
        return x


class Turned(nn.Module):
    """Dropout where the batch is not the first dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x.T, 0.5, self.training).T


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x


def frozen() -> nn.Module:
    net = small_net()
    net[0].weight.requires_grad_(False)
    return net


def between(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 4))


def ask(engine: Any, ids: np.ndarray, net: nn.Module, work: Train, round: int = 0) -> Reply:
    """Every other client gets another model."""
    models = torch.stack([flatten(net), 0.9 * flatten(net)])
    with Clients(engine) as clients:
        return clients.run(work, ids, models, ids % 2, key=Key(1).at(round))


def both(
    net: nn.Module,
    solver: Solver = SOLVER,
    work: Train = Train(),
    data: ct.Population | None = None,
    decay: tuple[str, ...] = (),
    **options: Any,
) -> tuple[Reply, Reply]:
    data = data or blobs()
    ids = np.arange(data.clients)
    return (
        ask(SerialEngine(LocalRunner(data, net, solver, decay)), ids, net, work),
        ask(
            VmapEngine(LocalRunner(data, net, solver, decay), device="cpu", **options),
            ids,
            net,
            work,
        ),
    )


def close(a: Reply, b: Reply, within: float = 1e-4) -> None:
    """But for rounding, which some steps of training pass on and add up."""
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.fields["size"], b.fields["size"])
    assert_near(b.fields["delta"], a.fields["delta"], within)
    assert_near(b.fields["loss"][:, None], a.fields["loss"][:, None], within)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("make", "solver", "work"),
    [
        (small_net, SOLVER, Train()),
        (mixed, SOLVER, Train()),
        (
            mixed,
            Solver(epochs=2, batch_size=5, lr=0.1, momentum=0.9, l2=0.01),
            Train(proximal(0.5)),
        ),
        (mixed, SOLVER, Train(mmd(0.1))),
        (lambda: fuse(small_net(), "conv", Key(0)), SOLVER, Train(fusion())),
        (mixed, SOLVER, Train(how=Steps(7))),
        (mixed, SOLVER, Train(how=FullGradient())),
        (mixed, SOLVER, Train(how=Epochs(spent=2))),
        (lambda: between(Mean()), SOLVER, Train()),
        (lambda: between(Crowd()), SOLVER, Train()),
        (lambda: between(Turned()), SOLVER, Train()),
        (
            lambda: between(nn.BatchNorm1d(8, track_running_stats=False)),
            Solver(epochs=2, batch_size=50),
            Train(),
        ),
        (frozen, SOLVER, Train()),
    ],
    ids=[
        "dense",
        "dropout",
        "prox-momentum-l2",
        "mmd",
        "fusion",
        "steps",
        "full-gradient",
        "spent",
        "batch-mean",
        "batch-mean-in-training",
        "turned",
        "batch-norm",
        "frozen",
    ],
)
def test_together_equals_one_after_another(
    make: Callable[[], nn.Module], solver: Solver, work: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second derivative of FedMMD's narrowest kernel is a million: it turns rounding into another
    # training within a few steps, whoever computes it. The wide kernels are the same formula.
    monkeypatch.setattr(sys.modules[Mmd.__module__], "WIDTHS", WIDTHS[WIDTHS.index(0.1) :])
    net = make()
    alone, together = both(net, solver, work, decay=("0.weight",))
    close(alone, together)
    nothing = work.how == Epochs(spent=2)
    assert nothing or np.abs(alone.fields["delta"]).max() > 0.01
    assert nothing or np.abs(alone.fields["delta"] - alone.fields["delta"][0]).max() > 0.01


IMAGES = ((1, 28, 28), 10)
SERIES = ((5, 20), 2)
NETWORKS = {
    "cnn_small": IMAGES,
    "lenet5": IMAGES,
    "resnet8": ((1, 8, 8), 10),
    "bigru": SERIES,
    "bilstm": SERIES,
    "stacked_lstm": SERIES,
    "forecaster": SERIES,
    "transformer": SERIES,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_librarys_networks(name: str) -> None:
    shape, classes = NETWORKS[name]
    assert name in MODELS
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(40, *shape, generator=rng)
    y = torch.randint(classes, (40,), generator=rng)
    data = ct.Population(
        x, y, (np.arange(13), np.arange(13, 21), np.arange(21, 40)), ([], [], []), classes
    )
    close(
        *both(build_model(name, shape, classes, Key(0)), Solver(epochs=1, batch_size=10), data=data)
    )


def test_blocks_do_not_matter() -> None:
    for net in (mixed(), between(Turned())):
        one, many = (both(net, memory=memory)[1] for memory in (None, 1e-6))
        close(one, many, 1e-6)


def test_finished_clients_drop_off_and_the_rest_is_left_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of clients with 2, 4 and 40 steps, a deadline after a few steps keeps those that are done."""
    data = blobs(clients=3)
    net = small_net()
    parts = [
        data.train[0][:10],
        np.concatenate(data.train)[:20],
        np.concatenate([*data.train] * 4)[:200],
    ]
    data = data.with_parts(tuple(parts), data.test)
    seen = []
    whole = both(net, Solver(epochs=1, batch_size=5), data=data)[1]
    clock = iter(range(10_000))
    plainly = BatchedTrainer._step_at_once

    def counted(self: BatchedTrainer, given: Any, solver: Solver) -> None:
        seen.append(len(given[1]))
        plainly(self, given, solver)

    monkeypatch.setattr(BatchedTrainer, "_step_at_once", counted)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    engine = VmapEngine(
        LocalRunner(data, net, Solver(epochs=1, batch_size=5)), round_timeout=8.0, device="cpu"
    )
    late = ask(engine, np.arange(3), net, Train())
    assert late.ids.tolist() == [0, 1]
    assert seen[:5] == [3, 3, 2, 2, 1]
    np.testing.assert_array_equal(late.fields["delta"], whole.fields["delta"][:2])


def test_clients_that_have_nothing_to_do_are_done() -> None:
    data = blobs(clients=3)
    empty = data.with_parts((data.train[0], np.empty(0, np.int64), data.train[2]), data.test)
    for memory in (None, 1e-9):  # all in a block, and alone
        engine = VmapEngine(LocalRunner(empty, small_net(), SOLVER), device="cpu", memory=memory)
        start = flatten(small_net())[None]
        which = np.zeros(3, int)
        (reply,) = engine.run(Train(), np.arange(3), start, which, key=Key(1).at(0))
        assert reply.fields["size"].tolist() == [len(data.train[0]), 0, len(data.train[2])]
        assert not reply.fields["delta"][1].any()


def test_lower_precision_is_near_and_not_the_same() -> None:
    # With other first weights a ReLU near 0 may go the other way, which doubles an update.
    torch.manual_seed(0)
    alone, together = both(mixed(), precision="bfloat16")
    # Relative to each client's update: how far a single coordinate is off depends on the
    # processor's instructions, and was 100 times more on one machine than on another.
    gap = np.linalg.norm(alone.fields["delta"] - together.fields["delta"], axis=1)
    size = np.linalg.norm(alone.fields["delta"], axis=1)
    assert (gap > 1e-5 * size).all()
    assert (gap < 0.2 * size).all()
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    close(*both(small_net(), precision="tf32"))  # a CPU has none
    assert before == (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)


def test_recorded_steps_are_the_steps() -> None:
    """All that CUDA graphs need, but for CUDA: inputs in place, a recording per shape, buffers that
    stay."""
    net = mixed()
    solver = Solver(epochs=8, batch_size=5, lr=0.1, momentum=0.5)
    data = blobs()
    made: list[int] = []
    many = BatchedTrainer(net, plain, (), Device("cpu", graphs=True))
    many.replay = CudaGraphCache(lambda step, state: (made.append(len(state)), step)[1])
    order = np.argsort([-len(rows) for rows in data.train], kind="stable")
    samples = [
        (data.x[torch.from_numpy(data.train[i])], data.y[torch.from_numpy(data.train[i])])
        for i in order
    ]
    starts = flatten(net).repeat(len(order), 1)
    for round in (0, 1):
        keys = [Key(1).at(round).client(int(i)) for i in order]
        recorded, _, _ = many.train(samples, starts, solver, keys)
        plainly, _, _ = BatchedTrainer(net, plain).train(samples, starts, solver, keys)
        torch.testing.assert_close(recorded, plainly, atol=0, rtol=0)
        if round == 0:
            first = len(made)
    assert 1 <= first == len(made), "the second round replays what the first recorded"


@pytest.mark.parametrize(
    ("layer", "refusal"),
    [
        (Counting(), ("does-not-fit", "engine.name")),
        (
            Noisy(),
            ("failed", "model.name"),
        ),
    ],
)
def test_what_vmap_cannot_train_is_one_line(layer: nn.Module, refusal: tuple[Code, str]) -> None:
    with refuses(ct.CoterieError, *refusal) as caught:
        ask(
            VmapEngine(LocalRunner(blobs(), between(layer), SOLVER), device="cpu"),
            np.arange(12),
            between(layer),
            Train(),
        )
    assert caught.value.code == 2
    assert "\n" not in str(caught.value)


def test_a_device_that_is_not_there() -> None:
    with refuses(ct.ConfigError, "not-found", "engine.device"):
        find_device("cuda:7")


def test_evaluation_is_that_of_the_other_engines() -> None:
    data = blobs()
    net = small_net()
    asked = Score(), np.arange(12), flatten(net)[None], np.zeros(12, int)
    alone, together = (
        engine(LocalRunner(data, net, SOLVER)).run(*asked, key=Key(0))[0]
        for engine in (SerialEngine, VmapEngine)
    )
    assert all(np.array_equal(alone.fields[name], together.fields[name]) for name in alone.fields)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", contract.on_workers)
def test_every_algorithm_runs_on_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of each: the same groups as one client at a time, and models within 1e-4."""
    make = CASES[name]
    brief = Solver(epochs=1, batch_size=10, lr=0.1)
    monkeypatch.setattr(contract, "ROUNDS", 2)
    monkeypatch.setattr(contract, "SOLVER", brief)
    method = make(2)
    data = blobs()
    engine = VmapEngine(LocalRunner(data, contract.net_for(method), brief), device="cpu")
    together = contract.states(as_algorithm(method), data, engine)
    for a, b in zip(contract.run(method, population=data), together, strict=True):
        assert np.array_equal(a.groups.member, b.groups.member)
        assert_near(b.groups.models, a.groups.models, 1e-4)


def test_from_the_command_line_and_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(
        '[data]\nsource = "digits"\npartition = {kind = "planted", clients = 8, groups = 2}\n'
        'model = {name = "mclr"}\nlocal = {epochs = 1}\ntrain = {rounds = 2, clients_per_round = 4}\n'
        'algorithm = {name = "fedgroup", groups = 2, alpha = 2}\n'.replace(
            "[data]\n", "data."
        ).replace("partition =", "data.partition =")
    )
    assert invoke(["run", "run.toml", "--engine", "vmap", "--device", "cpu", "--out", "one"]) == 0
    assert invoke(["run", "run.toml", "--engine", "serial", "--out", "two"]) == 0
    assert (
        invoke(["run", "run.toml", "--engine", "serial", "--device", "cpu", "--out", "three"]) == 2
    )
    data = ct.load("digits", partition={"kind": "planted", "clients": 8, "groups": 2})
    given: dict[str, Any] = {"data": data, "model": "mclr", "rounds": 2, "clients_per_round": 4}
    one, two = (
        ct.run(ct.fedgroup(groups=2, alpha=2), engine=engine, **given)
        for engine in ("vmap", "serial")
    )
    assert_near(one.state.models, two.state.models, 1e-4)


def test_a_run_goes_on_with_the_arithmetic_that_it_began_with() -> None:
    tables: dict[str, Any] = {
        "data": {"source": "digits", "partition": {"kind": "iid"}},
        "model": {"name": "mclr"},
        "train": {"rounds": 3, "clients_per_round": 4},
        "algorithm": {"name": "fedavg"},
    }
    pool, ray, vmap = (
        check(tables | {"engine": {"name": name}}).resolved() for name in ("pool", "ray", "vmap")
    )
    assert differing(pool, ray) == []
    assert "engine.name" in differing(pool, vmap)
    with refuses(ct.ConfigError, "in-conflict", "engine.precision"):
        check(tables | {"engine": {"name": "pool", "precision": "bfloat16"}})


# --- networks with running statistics, client by client ---------------------------------------------

# No client of `blobs` has one sample left over in its last batch.
NINES = Solver(epochs=2, batch_size=9, lr=0.1)
SOLVERS = {
    "sgd": NINES,
    "momentum": Solver(epochs=2, batch_size=9, lr=0.1, momentum=0.9),
    "adam": Solver(epochs=2, batch_size=9, lr=0.01, optimizer="adam", clip_norm=1.0),
}


def normalised(*more: nn.Module) -> nn.Module:
    return between(nn.Sequential(nn.BatchNorm1d(8), *more))


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=list(SOLVERS))
def test_running_statistics_train_as_with_serial(solver: Solver, streams: int) -> None:
    torch.manual_seed(0)
    net = normalised()
    data = blobs(clients=12)
    ids = np.arange(12)
    models = torch.stack([flatten(net), 0.9 * flatten(net)])
    serial = SerialEngine(LocalRunner(data, net, solver))
    engine = VmapEngine(LocalRunner(data, net, solver), device="cpu", streams=streams)
    before = torch.get_rng_state()
    for round in range(2):  # the second one with the copies of the network that the first made
        key = Key(1).at(round)
        (one,) = serial.run(Train(), ids, models, ids % 2, key=key)
        (many,) = engine.run(Train(), ids, models, ids % 2, key=key)
        for name in ("delta", "size", "loss"):
            np.testing.assert_array_equal(many.fields[name], one.fields[name])
    assert torch.equal(before, torch.get_rng_state())


def test_clients_that_draw_train_one_at_a_time() -> None:
    """Threads would take each other's random numbers."""
    torch.manual_seed(0)
    net = normalised(nn.Dropout(0.5))
    data = blobs(clients=12)
    ids = np.arange(12)
    one = ask(SerialEngine(LocalRunner(data, net, NINES)), ids, net, Train())
    engine = VmapEngine(LocalRunner(data, net, NINES), device="cpu", streams=4)
    many = ask(engine, ids, net, Train())
    np.testing.assert_array_equal(many.fields["delta"], one.fields["delta"])
    assert draws(net, plain, data.x, data.y)
    assert not draws(normalised(), plain, data.x, data.y)


@dataclass(frozen=True)
class Jittered:
    """A loss of noisy inputs: the network draws nothing."""

    mu: float = 0.0

    def loss(self, module: nn.Module, x: Tensor, y: Tensor, received: Any) -> Tensor:
        return F.cross_entropy(module(x + 0.1 * torch.randn_like(x)), y)


def noise() -> Any:
    """A change of samples that draws."""
    return lambda x: x + 0.1 * torch.randn_like(x)


@pytest.mark.parametrize("augmented", [False, True])
def test_a_training_that_draws_has_no_other_beside_it(augmented: bool) -> None:
    """The network itself draws nothing here."""
    torch.manual_seed(0)
    net = normalised()
    data = blobs(clients=12)
    ids = np.arange(12)
    solver = NINES
    if augmented:
        solver = replace(NINES, augment=(Augment("tests.engines.test_vmap:noise"),))
    work = Train(plain if augmented else Jittered())
    one = ask(SerialEngine(LocalRunner(data, net, solver)), ids, net, work)
    engine = VmapEngine(LocalRunner(data, net, solver), device="cpu", streams=4)
    many = ask(engine, ids, net, work)
    np.testing.assert_array_equal(many.fields["delta"], one.fields["delta"])


def test_after_a_failure_no_other_client_begins() -> None:
    net = between(nn.Sequential(nn.BatchNorm1d(8), Failing()))
    Failing.passes = 0
    engine = VmapEngine(LocalRunner(blobs(), net, NINES), device="cpu", streams=2)
    with refuses(ct.CoterieError, "failed", "client 0"):
        ask(engine, np.arange(12), net, Train())
    # One of the probe, and one of each of the two that had begun.
    assert Failing.passes <= 3


class Failing(nn.Module):
    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        Failing.passes += 1
        # The probe's forward pass is the first.
        if Failing.passes > 1:
            raise RuntimeError("no more")
        return x


def test_nobody_to_train_is_no_error() -> None:
    net = normalised()
    engine = VmapEngine(LocalRunner(blobs(), net, NINES), device="cpu", streams=2)
    models = flatten(net)[None]
    nobody = np.empty(0, np.int64)
    (reply,) = engine.run(Train(), nobody, models, nobody, key=Key(1))
    assert len(reply) == 0


def test_own_models_of_networks_with_running_statistics_train_as_with_serial() -> None:
    torch.manual_seed(0)
    net = normalised()
    runs = [
        ct.run(ct.ditto(), data=blobs(), model=net, local=NINES, rounds=2, engine=engine)
        for engine in ("serial", "vmap")
    ]
    np.testing.assert_array_equal(runs[0].state.models, runs[1].state.models)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_client_that_fails_is_named(streams: int) -> None:
    net = normalised()
    solver = Solver(epochs=1, batch_size=1, lr=0.1)
    engine = VmapEngine(LocalRunner(blobs(), net, solver), device="cpu", streams=streams)
    with refuses(ct.CoterieError, "failed", "client 0"):
        ask(engine, np.arange(4), net, Train())


def test_those_who_are_late_are_left_out() -> None:
    net = normalised()
    engine = VmapEngine(LocalRunner(blobs(), net, NINES), 1e-9, device="cpu", streams=2)
    assert len(ask(engine, np.arange(4), net, Train())) == 0


def test_a_whole_run_has_the_models_of_serial() -> None:
    torch.manual_seed(0)
    net = normalised()
    one, many = (
        ct.run(ct.ifca(groups=2), data=blobs(), model=net, local=NINES, rounds=2, engine=engine)
        for engine in ("serial", "vmap")
    )
    np.testing.assert_array_equal(one.state.models, many.state.models)


def test_recordings_of_running_statistics_are_refused() -> None:
    engine = {"name": "vmap", "device": "cpu", "graphs": True}
    with refuses(ct.ConfigError, "in-conflict", "engine.graphs"):
        ct.run(ct.fedavg(), data=blobs(), model=normalised(), local=NINES, rounds=1, engine=engine)


def test_streams_are_an_option_of_vmap_alone() -> None:
    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        "model": {"name": "mclr"},
        "local": {"lr": 0.1},
        "train": {"rounds": 1},
        "algorithm": {"name": "fedavg"},
    }
    check(tables | {"engine": {"name": "vmap", "streams": 2}})
    with refuses(ct.ConfigError, "in-conflict", "engine.streams"):
        check(tables | {"engine": {"name": "pool", "streams": 2}})

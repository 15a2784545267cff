"""The pool: workers that die, raise or hang; the closed form; the validation of replies."""

from __future__ import annotations

import copy
import itertools
import os
import signal
import threading
import time
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.clients.validation import Expected, ReplyValidator
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Describe, Evaluate, Train
from coterie.engines import PoolEngine, SerialEngine
from coterie.engines.failures import ClientError
from coterie.engines.faults import CORRUPTIONS, corrupted
from coterie.local import LocalRunner, Stack
from coterie.local.compiled import CompiledTrainer
from coterie.local.sgd import Autograd
from coterie.methods.algorithm import as_algorithm
from coterie.objectives import CrossEntropy, plain
from coterie.runs.cohort import Sampler
from coterie.runs.loop import simulate
from tests.conftest import blobs, small_net

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)


class Troubled(nn.Module):
    """Sleeps, raises, or kills its own process, once per mark on the disk."""

    def __init__(self, mark: Any, trouble: str) -> None:
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.mark = mark
        self.trouble = trouble

    def forward(self, x: Tensor) -> Tensor:
        if self.trouble == "raise":
            raise RuntimeError("no such layer")
        if self.trouble == "sleep":
            time.sleep(0.2)
        if self.trouble == "die" and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.body(x)


def ask(engine: Any, population: ct.Population, net: nn.Module, round: int = 0) -> Reply:
    with Clients(engine) as door:
        return asked(door, population, net, round)


def asked(door: Clients, population: ct.Population, net: nn.Module, round: int = 0) -> Reply:
    ids = np.arange(population.clients)
    return door.run(Train(plain), ids, flatten(net)[None], np.zeros_like(ids), key=Key(1).at(round))


def test_a_worker_that_dies_is_replaced_and_nothing_changes(tmp_path: Any) -> None:
    population = blobs()
    net = Troubled(tmp_path / "died", "die")
    replies = ask(PoolEngine(LocalRunner(population, net, SOLVER), 2), population, net)
    assert (tmp_path / "died").exists()
    expected = ask(SerialEngine(LocalRunner(population, net, SOLVER)), population, net)
    assert np.array_equal(replies.ids, expected.ids)
    assert np.array_equal(replies.fields["delta"], expected.fields["delta"])


def test_workers_killed_from_outside_change_nothing() -> None:
    population = blobs(clients=60, size=120)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    runner = LocalRunner(population, net, ct.Solver(epochs=5, batch_size=5))
    expected = ask(SerialEngine(runner), population, net)
    engine = PoolEngine(runner, 2)

    def kill() -> None:
        while not engine.processes:
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(engine.processes[1].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    replies = ask(engine, population, net)
    killer.join()
    assert np.array_equal(replies.fields["delta"], expected.fields["delta"])


@pytest.mark.parametrize("kind", [SerialEngine, PoolEngine])
def test_a_client_that_raises_is_named(kind: Any) -> None:
    population = blobs()
    net = Troubled(None, "raise")
    with pytest.raises(ClientError, match=r"client \d+: training failed in round 7: no such layer"):
        ask(kind(LocalRunner(population, net, SOLVER)), population, net, round=7)


@pytest.mark.parametrize("kind", [SerialEngine, PoolEngine])
def test_a_round_timeout_leaves_stragglers_out(kind: Any) -> None:
    population = blobs(clients=4)
    net = Troubled(None, "sleep")
    engine = kind(
        LocalRunner(population, net, ct.Solver(epochs=1, batch_size=10)), round_timeout=1.0
    )
    begun = time.monotonic()
    reply = ask(engine, population, net)
    assert len(reply) < 4
    assert time.monotonic() - begun < 4


def test_spawned_workers_give_the_same(tmp_path: Any) -> None:
    population = blobs()
    net = small_net()
    runner = LocalRunner(population, net, SOLVER)
    spawned = ask(PoolEngine(runner, 1, start="spawn"), population, net)
    assert np.array_equal(
        spawned.fields["delta"], ask(SerialEngine(runner), population, net).fields["delta"]
    )


def dense(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Flatten()]
    for i, o in itertools.pairwise(widths):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def images(
    channels: list[int], kernel: int, padding: int, relu_first: bool, shape: tuple[int, int]
) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    down, across = shape
    for i, o in itertools.pairwise(channels):
        after: list[nn.Module] = [nn.ReLU(), nn.MaxPool2d(2)]
        layers += [
            nn.Conv2d(i, o, kernel, padding=padding),
            *(after if relu_first else reversed(after)),
        ]
        down, across = ((n + 2 * padding - kernel + 1) // 2 for n in (down, across))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels[-1] * down * across, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )


def the_closed_form_is_autograd(
    net: nn.Sequential,
    shape: tuple[int, ...],
    classes: int,
    size: int,
    mu: float,
    l2: float,
    momentum: float,
    steps: int | None,
    draws: int = 1,
) -> None:
    """To rounding, in one of so many draws: where a maximum is at a tie, rounding is a step, and no
    fault."""
    decay = ("0.weight", "1.weight")
    solver = ct.Solver(3, 5, 0.1, momentum=momentum, l2=l2, steps=steps)
    start = flatten(net)
    gaps = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        x = torch.from_numpy(rng.normal(size=(size, *shape)).astype(np.float32))
        y = torch.from_numpy(rng.integers(classes, size=size))
        (ours, loss), (theirs, expected) = (
            trained(trainer, x, y, start, solver)
            for trainer in (
                CompiledTrainer(Stack.of(net, decay), mu),
                Autograd(copy.deepcopy(net), CrossEntropy(mu), decay),
            )
        )
        assert np.isfinite(loss)
        gaps.append(max(float((ours - theirs).abs().max()), abs(loss - expected)))
        if gaps[-1] <= 1e-5:
            return
    raise AssertionError(f"the closed form is {gaps} from autograd")


def trained(
    trainer: Any, x: Tensor, y: Tensor, start: Tensor, solver: ct.Solver
) -> tuple[Tensor, float]:
    out = torch.empty_like(start)
    return out, trainer.train(x, y, start, out, solver, Key(4)).loss


BUDGET = {
    "size": st.integers(0, 23),
    "mu": st.sampled_from([0.0, 0.7]),
    "l2": st.sampled_from([0.0, 0.01]),
    "momentum": st.sampled_from([0.0, 0.5]),
    "steps": st.sampled_from([None, 1, 7]),
}


@given(widths=st.lists(st.one_of(st.integers(2, 9), st.just(60)), min_size=2, max_size=4), **BUDGET)
def test_the_closed_form_equals_autograd(
    widths: list[int], size: int, mu: float, l2: float, momentum: float, steps: int | None
) -> None:
    the_closed_form_is_autograd(
        dense(*widths), (widths[0],), widths[-1], size, mu, l2, momentum, steps
    )


@given(
    channels=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    kernel=st.sampled_from([1, 2, 3, 5]),
    padding=st.integers(0, 3),
    relu_first=st.booleans(),
    shape=st.tuples(st.integers(16, 19), st.integers(16, 21)),
    **BUDGET,
)
def test_the_closed_form_of_images_equals_autograd(
    channels: list[int],
    kernel: int,
    padding: int,
    relu_first: bool,
    shape: tuple[int, int],
    size: int,
    mu: float,
    l2: float,
    momentum: float,
    steps: int | None,
) -> None:
    net = images(channels, kernel, padding, relu_first, shape)
    the_closed_form_is_autograd(
        net, (channels[0], *shape), 3, size, mu, l2, momentum, steps, draws=3
    )


def test_the_loss_of_a_batch_is_summed_in_order() -> None:
    """Else its last bit depends on whose copy of the compiled code runs, and a resumed run's may be
    another's."""
    errors = import_module("coterie.local.kernels").errors
    rng = np.random.default_rng(0)
    for n in range(10, 60):
        z = rng.normal(size=(n, 10)).astype(np.float32)
        y = rng.integers(0, 10, n)
        total = np.float32(0)
        for s in range(n):
            total += np.float32(errors(z[s : s + 1].copy(), y[s : s + 1], True))
        assert errors(z, y, True) == total


def test_samples_and_labels_that_do_not_fit_are_refused() -> None:
    def train(net: nn.Sequential, *shape: int, label: int = 0) -> None:
        x = torch.zeros(2, *shape)
        y = torch.full((2,), label)
        start = flatten(net)
        CompiledTrainer(Stack.of(net)).train(x, y, start, start.clone(), SOLVER, Key(0))

    some = images([2, 3], 3, 1, True, (8, 8))
    with pytest.raises(IndexError, match="from 3 to 3"):
        train(some, 2, 8, 8, label=3)
    with pytest.raises(IndexError, match="-100"):
        train(some, 2, 8, 8, label=-100)
    for shape in ((3, 8, 8), (2, 64), (2, 9, 12), (2, 1, 1)):
        with pytest.raises(ValueError, match="got"):
            train(some, *shape)
    with pytest.raises(ValueError, match="6 inputs, got 7"):
        train(dense(6, 3), 7)


# used at two places
ONE = nn.ReLU()
TWICE = nn.Linear(6, 6)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(6, 4, bias=False)),
        nn.Sequential(nn.Linear(6, 4), nn.ReLU()),
        nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(6, 5), ONE, nn.Linear(5, 3), ONE),
        nn.Sequential(nn.Sequential(TWICE, nn.ReLU()), TWICE, nn.ReLU(), nn.Linear(6, 3)),
        nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
        ),
        nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 3)
        ),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)),
        nn.Sequential(
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
        ),
    ],
)
def test_other_shapes_go_through_autograd(net: nn.Module) -> None:
    assert Stack.of(net) is None


def test_dropout_follows_the_key_and_leaves_the_global_generator_alone() -> None:
    population = blobs()
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4))
    before = torch.random.get_rng_state()
    a = ask(SerialEngine(LocalRunner(population, net, SOLVER)), population, net)
    b = ask(PoolEngine(LocalRunner(population, net, SOLVER), 2), population, net)
    assert np.array_equal(a.fields["delta"], b.fields["delta"])
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("shared", [False, True])
def test_evaluation_in_one_pass_equals_one_client_at_a_time(shared: bool) -> None:
    population = blobs()
    net = small_net()
    if shared:  # each client is also tested on what its neighbour holds, out of order
        test = [
            np.concatenate([population.test[(i + 1) % 12], population.test[i]]) for i in range(12)
        ]
        population = population.with_parts(population.train, tuple(test))
    models = torch.stack([flatten(net), -flatten(net), torch.zeros(len(flatten(net)))])
    which = np.stack([np.arange(12) % 3, (np.arange(12) + 1) % 3], axis=1)
    runner = LocalRunner(population, net, SOLVER)
    reply = runner.answer(Evaluate("test"), np.arange(12), models, which, Key(0))
    for i in range(12):
        x = population.x[population.test[i]]
        y = population.y[population.test[i]]
        for column in (0, 1):
            torch.nn.utils.vector_to_parameters(models[which[i, column]], net.parameters())
            with torch.no_grad():
                logits = net(x)
            assert reply.fields["correct"][i, column] == int((logits.argmax(1) == y).sum())
            loss = nn.functional.cross_entropy(logits, y, reduction="sum").item()
            assert reply.fields["loss"][i, column] == pytest.approx(loss, rel=1e-4)


@given(
    moves=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.booleans()), min_size=1, max_size=4
    ),
    split=st.sampled_from(["test", "train"]),
    keep=st.sampled_from([2**27, 0]),
    seed=st.integers(0, 9),
)
@settings(max_examples=12, deadline=None)
def test_workers_score_what_clients_hold_now(
    moves: list[tuple[int, int, bool]], split: Any, keep: int, seed: int
) -> None:
    population = blobs()
    net = small_net()
    rng = np.random.default_rng(seed)
    none = np.empty(0, np.int64)
    population = population.with_parts(population.train, (none, *population.test[1:]))
    models = torch.stack([flatten(net), -flatten(net), 2 * flatten(net)])
    pool = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    with mock.patch("coterie.local.scored_rows.KEEP", keep), Clients(pool) as door:
        door.run(Train(plain), np.arange(12), models, np.arange(12) % 2, key=Key(0))
        for a, b, score in moves:
            test = list(population.test)
            train = list(population.train)
            y = population.y.clone()
            test[a], test[b] = (
                test[b],
                np.concatenate([test[a], test[(a + 1) % 12]]),
            )  # some samples are shared
            train[a], train[b] = train[b], train[a]
            if rng.integers(2):
                some = rng.integers(len(y), size=20)
                y[some] = (y[some] + 1) % 4
                population = replace(population, y=y)
            population = population.with_parts(tuple(train), tuple(test))
            pool.set_population(population)
            if not score:
                continue
            ids = np.sort(rng.permutation(12)[: rng.integers(1, 13)])
            which = rng.integers(1, 3, size=(len(ids), 2))
            alone = LocalRunner(population, net, SOLVER).answer(
                Evaluate(split), ids, models, which, Key(0)
            )
            with mock.patch.object(
                pool.runner, "answer", side_effect=AssertionError("scored in this process")
            ):
                replies = pool.run(Evaluate(split), ids, models, which, key=Key(0))
            order = np.argsort(np.concatenate([reply.ids for reply in replies]))
            for field in ("correct", "size", "loss"):
                found = np.concatenate([reply.fields[field] for reply in replies])[order]
                assert np.array_equal(found, alone.fields[field]), field


@pytest.mark.parametrize("engine", [SerialEngine, PoolEngine])
def test_clients_without_test_samples_are_scored_first_and_other_samples_are_followed(
    engine: Any,
) -> None:
    population = blobs()
    net = small_net()
    models = flatten(net)[None]
    none = np.empty(0, np.int64)
    bare = population.with_parts(population.train, (none, *population.test[1:]))
    running = engine(LocalRunner(bare, net, SOLVER))
    with Clients(running) as door:
        door.run(Train(plain), np.arange(12), models, np.zeros(12, np.int64), key=Key(0))
        (reply,) = running.run(Evaluate("test"), np.array([0]), models, np.array([0]), key=Key(0))
        assert reply.fields["correct"].tolist() == [[0.0]]
        door.run(Evaluate("test"), np.arange(12), models, np.zeros(12, np.int64), key=Key(0))
        other = replace(population, x=-population.x)
        running.set_population(other)
        here = LocalRunner(other, net, SOLVER).answer(
            Evaluate("test"), np.arange(12), models, np.zeros(12, np.int64), Key(0)
        )
        for _ in range(2):
            told = door.run(
                Evaluate("test"), np.arange(12), models, np.zeros(12, np.int64), key=Key(0)
            )
            assert np.array_equal(told.fields["loss"], here.fields["loss"])
            expected = ask(SerialEngine(LocalRunner(other, net, SOLVER)), other, net)
            assert np.array_equal(asked(door, other, net).fields["delta"], expected.fields["delta"])


def test_a_round_timeout_is_for_clients_and_not_for_scoring() -> None:
    population = blobs()
    net = small_net()
    ids = np.arange(12)
    models = flatten(net)[None]
    pool = PoolEngine(LocalRunner(population, net, SOLVER), 2)
    with Clients(pool) as door:
        door.run(Train(plain), ids, models, 0 * ids, key=Key(0))
        pool.round_timeout = 0.0
        with mock.patch.object(
            pool.runner, "answer", side_effect=AssertionError("scored in this process")
        ):
            assert len(door.run(Evaluate("test"), ids, models, 0 * ids, key=Key(0))) == 12


def good(ids: list[int], round: int = 3) -> Reply:
    n = len(ids)
    fields = {"delta": np.ones((n, 5), np.float32), "size": np.full(n, 4.0), "loss": np.ones(n)}
    return Reply(round, np.array(ids), fields)


def admit(*replies: Reply) -> tuple[Reply, dict[str, int]]:
    expected = Expected(Train(plain), np.array([1, 2, 3]), round=3, d=5)
    reply, refused = ReplyValidator(cap=100).validate(expected, replies)
    return reply, dict(refused)


@pytest.mark.parametrize("how", [how for how in CORRUPTIONS if how != "zeros"])
def test_spoilt_replies_are_refused(how: str) -> None:
    reply, refused = admit(good([1]), corrupted(good([2]), how), good([3]))
    assert reply.ids.tolist() == [1, 3]
    assert sum(refused.values()) == 1


def test_late_strange_and_double_replies_are_refused() -> None:
    reply, refused = admit(good([3]), good([2], round=2), good([9]), good([3]), good([1]))
    assert reply.ids.tolist() == [1, 3]
    assert refused == {"late": 1, "stranger": 1, "duplicate": 1}


def test_describe_tells_the_label_histogram() -> None:
    population = blobs()
    net = small_net()
    reply = LocalRunner(population, net, SOLVER).answer(
        Describe("histogram", 4), np.array([2, 5]), flatten(net)[None], np.zeros(2, int), Key(0)
    )
    assert np.array_equal(reply.fields["histogram"], population.histograms()[[2, 5]])


def test_a_client_that_changes_gradients_on_their_way_goes_through_autograd() -> None:
    net = dense(6, 4, 3)
    net[1].register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * 0,))
    assert Stack.of(net) is None


def test_one_relu_at_two_places_is_two() -> None:
    net = nn.Sequential(nn.Linear(6, 5), ONE, nn.Linear(5, 4), ONE, nn.Linear(4, 3))
    the_closed_form_is_autograd(net, (6,), 3, 20, 0.0, 0.0, 0.0, None)


def test_refusals_at_an_evaluation_count_in_its_round() -> None:
    population = blobs()
    door = Clients(
        SerialEngine(LocalRunner(population, small_net(), SOLVER)),
        ReplyValidator(cap=100, tested=1),
    )
    start = flatten(small_net())
    sampler = Sampler("uniform", np.arange(12), 4, Key(0))
    row = next(simulate(as_algorithm(ct.fedavg()), door, population, start, sampler, 1, Key(0))).row
    assert row["refused"] == {"size": 12}
    assert row["accuracy"] is None


def test_clients_with_more_test_than_training_samples_are_scored() -> None:
    some = blobs()
    population = some.with_parts(some.test, some.train)
    result = ct.run(
        ct.fedavg(),
        data=population,
        model=small_net(),
        local=SOLVER,
        rounds=2,
        clients_per_round=12,
    )
    everyone = LocalRunner(population, result.module, SOLVER).answer(
        Evaluate("test"), np.arange(12), result.state.models[:1], np.zeros(12, int), Key(0)
    )
    assert result.accuracy[-1] == everyone.fields["correct"].sum() / population.sizes("test").sum()
    assert not any(row["refused"] for row in result.rows)

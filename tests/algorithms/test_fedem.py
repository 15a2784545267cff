"""FedEM and FedRC: their formulas by hand, one component, engines, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.cohort import Sampler
from coterie.clients.validation import Expected, ReplyValidator
from coterie.core.engine import Engine, Reply
from coterie.core.keys import Key
from coterie.core.plan import ClientShares
from coterie.core.solver import Solver
from coterie.core.training import Mixture
from coterie.core.work import Train
from coterie.engines import KeepingEngine, PoolEngine, SerialEngine, VmapEngine
from coterie.engines.attacks.attack import AttackingEngine
from coterie.engines.attacks.forged_updates import sign_flip
from coterie.errors import ConfigError
from coterie.export.folder import export_run
from coterie.local import LocalRunner
from coterie.local.scoring.by_loss import responsibilities
from coterie.measures.own_models import Adaptation
from coterie.methods.algorithm import as_algorithm
from coterie.methods.fit_to_model import check_records
from coterie.methods.override import override
from coterie.objectives import mmd, proximal
from coterie.rules.soft_groups import ShareMemory
from coterie.runs.loop import RoundResult, simulate
from coterie.runs.schedule import Schedule
from coterie.tasks import regression
from tests.conftest import assert_near, blobs, small_net
from tests.refusals import check_together, refuses
from tests.simulations import play

RATE = 0.5


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def run(
    make: Callable[..., ct.Method],
    engine: Engine,
    population: ct.Population,
    first: torch.Tensor,
    rounds: int,
) -> list[RoundResult]:
    """A method from the given components, all clients in every round."""
    everyone = Sampler("uniform", np.arange(population.clients), population.clients, Key(0))
    with Clients(KeepingEngine(engine), shape=ModelShape(population.classes)) as clients:
        return list(
            simulate(
                as_algorithm(make(groups=len(first))),
                clients,
                population,
                lambda j: first[j],
                Schedule(everyone, ct.Training(rounds), Key(0)),
            )
        )


both = pytest.mark.parametrize("make", [ct.fedem, ct.fedrc])


@both
def test_three_rounds_by_hand(make: Callable[..., ct.Method]) -> None:
    x = np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.5], [0.0, -1.0], [2.0, 1.0], [1.0, -1.0]])
    y = np.array([0, 1, 1, 0, 0, 1])
    held = [np.array([0, 1, 2, 3]), np.array([4, 5])]
    components = np.array([[[0.6, -0.1], [-0.4, 0.3]], [[-0.2, 0.5], [0.1, -0.3]]])
    first = torch.tensor(components.transpose(0, 2, 1).reshape(2, 4), dtype=torch.float32)

    shares = np.full((2, 2), 0.5)
    # FedRC: C_m(y), even before the first round. FedEM has none, which is as if it were always even.
    prior = np.full((2, 2), 0.5)
    for _ in range(3):
        solutions = np.zeros((2, 2, 2, 2))
        of_class = np.zeros((2, 2))
        for i, rows in enumerate(held):
            # E-step: q_s(m) ~ pi_m p_m(y_s | x_s). M-step: pi_m is their mean.
            explained = np.stack(
                [softmax(x[rows] @ c)[np.arange(len(rows)), y[rows]] for c in components], axis=1
            )
            q = shares[i] * explained / prior[:, y[rows]].T
            q /= q.sum(axis=1, keepdims=True)
            shares[i] = q.mean(axis=0)
            for c in range(2):
                of_class[:, c] += q[y[rows] == c].sum(axis=0)
            for m in range(2):
                w = components[m].copy()
                for _ in range(2):
                    error = softmax(x[rows] @ w) - np.eye(2)[y[rows]]
                    w = w - RATE * x[rows].T @ (q[:, m, None] * error) / len(rows)
                solutions[i, m] = w
        components = (4 * solutions[0] + 2 * solutions[1]) / 6
        if make is ct.fedrc:
            prior = of_class / of_class.sum(axis=1, keepdims=True)

    population = ct.Population(
        torch.tensor(x, dtype=torch.float32), torch.tensor(y), tuple(held), tuple(held), 2
    )
    solver = Solver(epochs=2, batch_size=100, lr=RATE)
    engine = SerialEngine(LocalRunner(population, nn.Linear(2, 2, bias=False), solver))
    result = run(make, engine, population, first, rounds=3)[-1]
    found = result.groups.models.numpy().reshape(2, 2, 2).transpose(0, 2, 1)
    np.testing.assert_allclose(found, components, atol=1e-6)
    memory = result.groups.memory.get(ShareMemory)
    assert memory is not None
    np.testing.assert_allclose(memory.shares, shares, atol=1e-6)
    # Each client predicts with the mixture of probabilities.
    right = 0
    for i, rows in enumerate(held):
        mixed = sum(shares[i, m] * softmax(x[rows] @ components[m]) for m in range(2))
        right += int((mixed.argmax(axis=1) == y[rows]).sum())
    assert result.row["accuracy"] == pytest.approx(right / 6)


@both
def test_one_component_is_fedavg_to_the_bit(make: Callable[..., ct.Method]) -> None:
    mixture = play(make(groups=1))
    single = play(ct.fedavg())
    for a, b in zip(mixture, single, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)
        assert np.array_equal(a.groups.member, b.groups.member)
        assert a.row["transfers"]["models"] == b.row["transfers"]["models"]
        for name in ("accuracy", "accuracy_all", "loss", "discrepancy"):
            assert a.row[name] == b.row[name]


@both
def test_engines_agree(make: Callable[..., ct.Method]) -> None:
    population = blobs()
    first = torch.stack([0.1 * (j + 1) * torch.arange(28).cos() for j in range(2)])
    runner = LocalRunner(population, nn.Linear(6, 4), Solver(epochs=1, batch_size=5, lr=0.1))
    serial, pool, vmap = (
        run(make, engine, population, first, rounds=3)[-1]
        for engine in (
            SerialEngine(runner),
            PoolEngine(runner, 2),
            VmapEngine(runner, device="cpu"),
        )
    )
    assert torch.equal(serial.groups.models, pool.groups.models)
    assert serial.row["accuracy"] == pool.row["accuracy"]
    assert_near(vmap.groups.models, serial.groups.models, 1e-4)


def test_a_round_sends_all_components_both_ways() -> None:
    (row,) = [result.row for result in play(ct.fedem(groups=3), rounds=1)]
    # Six clients, three components down and three updates up.
    assert row["transfers"]["models"] == 6 * (3 + 3)
    assert row["notes"]["replies"] == 6


def test_a_client_that_shares_a_sample_mixes_it_in_its_own_way() -> None:
    population = blobs()
    test = tuple(np.concatenate([population.test[i], population.test[i - 1]]) for i in range(12))
    shared = population.with_parts(population.train, test)
    rows = [play(ct.fedem(groups=2), each, rounds=2)[-1] for each in (population, shared)]
    memory = rows[1].groups.memory.get(ShareMemory)
    assert memory is not None
    right = 0
    samples = 0
    for client in np.flatnonzero(rows[1].groups.member >= 0):
        mixed = torch.zeros(len(test[client]), 4)
        for share, vector in zip(memory.shares[client], rows[1].groups.models, strict=True):
            net = small_net()
            torch.nn.utils.vector_to_parameters(vector, net.parameters())
            mixed += share * net(population.x[test[client]]).softmax(dim=1).detach()
        right += int((mixed.argmax(dim=1) == population.y[test[client]]).sum())
        samples += len(test[client])
    assert rows[1].row["accuracy"] == pytest.approx(right / samples)


def test_a_model_explains_less_of_a_class_that_it_saw_often() -> None:
    losses = np.zeros((2, 2))
    prior = np.array([[0.8, 0.2], [0.2, 0.8]])
    q = responsibilities(losses, np.array([0.5, 0.5]), prior)
    np.testing.assert_allclose(q, [[0.2, 0.8], [0.8, 0.2]])


@pytest.mark.parametrize("total", [3.0, 5.0])
def test_sums_of_labels_are_those_of_the_samples(total: float) -> None:
    ids = np.array([1, 2])
    prior = np.full((2, 3), 1 / 3)
    work = Train(how=Mixture(ClientShares(ids, np.full((2, 2), 0.5), prior)))
    sums = np.full((2, 2, 3), 4 / 6)
    sums[1] *= total / 4
    fields = {
        "delta": np.ones((2, 2, 5), np.float32),
        "size": np.full(2, 4.0),
        "loss": np.ones(2),
        "shares": np.full((2, 2), 0.5),
        "label_sums": sums,
    }
    expected = Expected(work, ids, round=3, d=5, r=2)
    reply, refused = ReplyValidator(cap=100).validate(expected, [Reply(3, ids, fields)])
    assert reply.ids.tolist() == [1]
    assert dict(refused) == {"label_sums": 1}


@given(
    losses=arrays(float, (6, 3), elements=st.floats(0, 1e4)),
    shares=arrays(float, 3, elements=st.floats(0.01, 1.0)),
)
def test_responsibilities_are_shares_of_each_sample(losses: np.ndarray, shares: np.ndarray) -> None:
    shares = shares / shares.sum()
    q = responsibilities(losses, shares)
    np.testing.assert_allclose(q.sum(axis=1), 1.0)
    # A model with the least loss and the largest share explains most.
    best = (losses == losses.min(axis=1, keepdims=True)) & (shares == shares.max())
    assert (q[best] >= 1 / 3 - 1e-12).all()
    # Losses that are larger by the same amount change nothing.
    np.testing.assert_allclose(responsibilities(losses + 7.0, shares), q, atol=1e-9)


def test_a_model_that_diverged_explains_nothing() -> None:
    losses = np.array([[np.nan, 1.0], [np.inf, 3.0], [np.nan, np.nan]])
    q = responsibilities(losses, np.array([0.9, 0.1]))
    assert q.tolist() == [[0.0, 1.0], [0.0, 1.0], [0.9, 0.1]]


@pytest.mark.parametrize("shares", [[0.5, 0.6], [-0.1, 1.1], [np.nan, 1.0]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    work = Train(how=Mixture())
    ids = np.array([1, 2])
    fields = {
        "delta": np.ones((2, 2, 5), np.float32),
        "size": np.full(2, 4.0),
        "loss": np.ones(2),
        "shares": np.array([[0.25, 0.75], shares]),
    }
    expected = Expected(work, ids, round=3, d=5, r=2)
    reply, refused = ReplyValidator(cap=100).validate(expected, [Reply(3, ids, fields)])
    assert reply.ids.tolist() == [1]
    assert sum(refused.values()) == 1


def test_what_it_cannot_do_is_refused_in_one_line(tmp_path: Path) -> None:
    method = ct.fedem(groups=2)
    with refuses(ConfigError, "does-not-fit", "task.kind"):
        check_together(method, task=regression())
    with refuses(ConfigError, "does-not-fit", "local.objective"):
        check_records(override(method, objective=mmd(0.5)))
    check_records(override(method, objective=proximal(0.5)))
    with refuses(ConfigError, "does-not-fit", "personal.layers"):
        override(method, personal=["head"])
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        check_together(method, privacy=ct.Privacy(noise=1.0))
    with refuses(ConfigError, "does-not-fit", "privacy"):
        check_together(replace(method, needs=()), privacy=ct.Privacy(noise=1.0))
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        check_together(method, secure=ct.SecureSums())
    data = ct.load("digits", partition={"kind": "planted_mixture", "clients": 12})
    result = ct.run(
        method,
        data=data,
        model="mclr",
        rounds=1,
        clients_per_round=4,
        engine="serial",
        out=tmp_path / "run",
    )
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        result.model_for(0)
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        export_run(tmp_path / "run", tmp_path / "export")


def test_an_attacker_forges_the_updates_of_all_components() -> None:
    population = blobs()
    runner = LocalRunner(population, nn.Linear(6, 4), Solver(epochs=1, batch_size=5, lr=0.1))
    ids = np.arange(12)
    work = Train(how=Mixture(ClientShares(ids, np.full((12, 2), 0.5))))
    models = 0.1 * torch.stack([torch.arange(28).cos(), torch.arange(28).sin()])
    which = np.tile([0, 1], (12, 1))
    honest = SerialEngine(runner)
    attacked = AttackingEngine(honest, sign_flip(clients=(3,)), np.array([3]))
    (true,) = honest.run(work, ids, models, which, key=Key(0, "/train"))
    (sent,) = attacked.run(work, ids, models, which, key=Key(0, "/train"))
    others = ids != 3
    assert np.array_equal(sent.fields["delta"][others], true.fields["delta"][others])
    np.testing.assert_allclose(sent.fields["delta"][3], -true.fields["delta"][3])


@pytest.mark.parametrize("method", [ct.fedem(groups=2), ct.fedrc(groups=2)], ids=["fedem", "fedrc"])
@pytest.mark.parametrize(
    "options",
    [
        {"evaluate": {"adapt": Adaptation(epochs=1)}},
        {"evaluate": {"unseen": 0.2}},
        {"evaluate": {"local": True}},
    ],
    ids=["adapt", "unseen", "local"],
)
def test_scores_of_one_model_are_refused(method: ct.Method, options: dict[str, Any]) -> None:
    data = ct.load("digits", partition={"kind": "planted_mixture", "clients": 12})
    with refuses(ConfigError, "does-not-fit", f"evaluate.{next(iter(options['evaluate']))}"):
        ct.run(method, data=data, model="mclr", rounds=1, engine="serial", **options)

"""FedSoft: its formulas by hand, one group, transfers, and shares that are estimated anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.cohort import Sampler
from coterie.core.engine import Engine
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import KeepingEngine, PoolEngine, SerialEngine, VmapEngine
from coterie.local import LocalRunner
from coterie.methods.algorithm import as_algorithm
from coterie.rules.soft_groups import ShareMemory
from coterie.runs.loop import simulate
from coterie.runs.schedule import Schedule
from tests.conftest import assert_near, blobs
from tests.refusals import check_together, refuses
from tests.simulations import RecordingEngine, play

RATE = 0.5
MU = 0.2
SIGMA = 0.3


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def losses(model: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.log(softmax(x @ model)[np.arange(len(y)), y])


def trained(
    start: np.ndarray, centres: np.ndarray, u: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Two full-batch steps on ``F(w) + mu/2 sum_j u_j |w - c_j|^2``, as the paper writes it."""
    w = start.copy()
    for _ in range(2):
        error = softmax(x @ w) - np.eye(2)[y]
        pull = sum(u[j] * (w - centres[j]) for j in range(len(centres)))
        w = w - RATE * (x.T @ error / len(y) + MU * pull)
    return w


def test_a_round_by_hand() -> None:
    x = np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.5], [0.0, -1.0], [2.0, 1.0], [1.0, -1.0]])
    y = np.array([0, 1, 1, 0, 0, 1])
    held = [np.array([0, 1, 2, 3]), np.array([4, 5])]
    centres = np.array([[[0.6, -0.1], [-0.4, 0.3]], [[-0.2, 0.5], [0.1, -0.3]]])

    # Alg. 1: importance by counts, two local steps, centres weighted by u n.
    u = np.zeros((2, 2))
    for i, rows in enumerate(held):
        best = np.argmin([losses(c, x[rows], y[rows]) for c in centres], axis=0)
        u[i] = np.maximum(np.bincount(best, minlength=2) / len(rows), SIGMA)
        u[i] /= u[i].sum()
    assert not np.allclose(u[0], u[1]), "the clients of the example should differ"
    solutions = [
        trained(np.tensordot(u[i], centres, 1), centres, u[i], x[rows], y[rows])
        for i, rows in enumerate(held)
    ]
    size = np.array([4.0, 2.0])
    expected = [
        sum(u[i, j] * size[i] * solutions[i] for i in range(2)) / (u[:, j] @ size) for j in range(2)
    ]

    net = nn.Linear(2, 2, bias=False)
    population = ct.Population(
        torch.tensor(x, dtype=torch.float32), torch.tensor(y), tuple(held), tuple(held), 2
    )
    # torch keeps the transposed kernel.
    first = torch.tensor(centres.transpose(0, 2, 1).reshape(2, 4), dtype=torch.float32)
    solver = Solver(epochs=2, batch_size=100, lr=RATE)
    with Clients(
        SerialEngine(LocalRunner(population, net, solver)), shape=ModelShape(2)
    ) as clients:
        (result,) = simulate(
            as_algorithm(ct.fedsoft(groups=2, mu=MU, sigma=SIGMA)),
            clients,
            population,
            lambda j: first[j],
            Schedule(Sampler("uniform", np.arange(2), 2, Key(0)), ct.Training(1), Key(0)),
        )
    found = result.groups.models.numpy().reshape(2, 2, 2).transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    memory = result.groups.memory.get(ShareMemory)
    assert memory is not None
    np.testing.assert_allclose(memory.shares, u)
    served = np.tensordot(u[1], expected, 1).T.reshape(-1)
    np.testing.assert_allclose(result.served.vector(1).numpy(), served, atol=1e-6)


def test_one_group_without_the_term_is_fedavg_to_the_bit() -> None:
    soft = play(ct.fedsoft(groups=1, mu=0.0))
    hard = play(ct.fedavg())
    for a, b in zip(soft, hard, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)
        assert a.row["transfers"] == b.row["transfers"]
        assert a.row["accuracy"] == b.row["accuracy"]


def test_engines_agree() -> None:
    population = blobs()
    net = nn.Linear(6, 4)

    def models(engine: Engine) -> torch.Tensor:
        sampler = Sampler("uniform", np.arange(12), 6, Key(3))
        with Clients(KeepingEngine(engine), shape=ModelShape(4)) as clients:
            *_, last = simulate(
                as_algorithm(ct.fedsoft(groups=2)),
                clients,
                population,
                lambda j: 0.1 * (j + 1) * torch.arange(28).cos(),
                Schedule(sampler, ct.Training(3), Key(3)),
            )
        return last.groups.models

    solver = Solver(epochs=1, batch_size=5, lr=0.1)
    serial = models(SerialEngine(LocalRunner(population, net, solver)))
    assert torch.equal(serial, models(PoolEngine(LocalRunner(population, net, solver), 2)))
    vmap = models(VmapEngine(LocalRunner(population, net, solver), device="cpu"))
    assert_near(vmap, serial, 1e-4)


def test_a_round_sends_one_model_and_an_estimate_all_of_them() -> None:
    rounds = play(ct.fedsoft(groups=3, interval=2), rounds=4)
    moved = [result.row["transfers"]["models"] for result in rounds]
    # Six of twelve clients train; an estimate asks all of them.
    assert moved == [2 * 6 + 3 * 12, 2 * 6, 2 * 6 + 3 * 12, 2 * 6]


def test_importance_is_estimated_every_interval() -> None:
    shares = []
    for result in play(ct.fedsoft(groups=2, interval=3), rounds=5):
        memory = result.groups.memory.get(ShareMemory)
        assert memory is not None
        shares.append(memory.shares)
    same = [np.array_equal(a, b) for a, b in pairwise(shares)]
    assert same == [True, True, False, True]


def test_losses_of_samples_are_never_asked_for() -> None:
    population = blobs()
    engine = RecordingEngine(
        SerialEngine(LocalRunner(population, nn.Linear(6, 4), Solver(epochs=1, lr=0.1)))
    )
    schedule = Schedule(Sampler("uniform", np.arange(12), 6, Key(3)), ct.Training(2), Key(3))
    clients = Clients(engine, shape=ModelShape(4))  # type: ignore[arg-type]
    first = flatten(nn.Linear(6, 4))
    method = as_algorithm(ct.fedsoft(groups=2))
    assert len(list(simulate(method, clients, population, lambda j: first, schedule))) == 2
    asked = [work for work in engine.works if isinstance(work, Score) and work.split == "train"]
    assert asked
    assert all(work.per == "sample_winner" for work in asked)
    assert all(isinstance(work, Train | Score) for work in engine.works)


def test_a_drifted_client_is_asked_again() -> None:
    """With [migration] a client without a group counts anew, between two estimates, too."""
    method = ct.fedsoft(groups=2, interval=100)
    asked = []

    def assign(groups, round):  # type: ignore[no-untyped-def]
        if round.number == 2:
            groups = groups.with_members(np.array([round.cohort[0]]), -1)
        groups, plan = method.assign(groups, round)
        asked.append(plan.notes["newcomers"])
        assert (groups.member[round.cohort] >= 0).all()
        return groups, plan

    play(replace(method, assign=assign), rounds=3)
    assert asked == [6, 0, 1]


def test_sums_of_each_group_alone_are_refused() -> None:
    with refuses(ct.ConfigError, "does-not-fit", "algorithm.name"):
        check_together(ct.fedsoft(groups=2), secure=ct.SecureSums())

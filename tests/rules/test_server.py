"""Server optimisers: the specification's golden vectors, a loop by hand, and groups that come and
go."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import coterie as ct
from coterie.core.groups import Groups
from coterie.errors import ConfigError
from coterie.methods.fit_to_model import on_parameters
from coterie.rules.server import SERVERS, Server, adagrad, adam, momentum, sgd, yogi
from tests.conftest import blobs
from tests.refusals import refuses

RULES = {name: SERVERS[name]() for name in ("fedavgm", "fedadagrad", "fedadam", "fedyogi")}
every = pytest.mark.parametrize("server", RULES.values(), ids=RULES.keys())
ALL = torch.tensor([True, True, True])
FIRST = torch.tensor([True, False, False])


def groups_of(models: torch.Tensor) -> Groups:
    return Groups(models.to(torch.float32), np.zeros(5, np.int64))


def update(seed: int, k: int = 3, d: int = 4) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(k, d)))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (adagrad(0.1), (1.099005, 0.900499)),
        (adam(0.1), (1.090503, 0.904874)),
        (yogi(0.1), (1.090499, 0.904875)),
        (sgd(), (1.1, 0.8)),
        (momentum(), (1.1, 0.8)),
    ],
)
def test_the_golden_step(server: Server, expected: tuple[float, float]) -> None:
    moved = server(
        groups_of(torch.ones(1, 2)), torch.tensor([[0.1, -0.2]], dtype=torch.float64), ALL[:1]
    )
    np.testing.assert_allclose(moved.models[0].numpy(), expected, atol=1e-6)


def by_hand(
    name: str, w: NDArray[np.float64], updates: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Reddi et al., Alg. 2, one coordinate at a time."""
    lr, beta1 = {"fedadagrad": (0.1, 0.0)}.get(name, (10**-2.5, 0.9))
    for i in range(len(w)):
        m = 0.0
        v = 1e-6
        for change in updates:
            m = beta1 * m + (1 - beta1) * change[i]
            square = change[i] ** 2
            if name == "fedadagrad":
                v = v + square
            elif name == "fedadam":
                v = 0.99 * v + 0.01 * square
            else:
                v = v - 0.01 * square * np.sign(v - square)
            w[i] += lr * m / (np.sqrt(v) + 1e-3)
    return w


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
def test_many_steps_are_those_of_a_loop_by_hand(name: str) -> None:
    updates = [update(seed, 1) * 10.0 ** (-seed) for seed in range(4)]
    groups = groups_of(torch.ones(1, 4))
    for change in updates:
        groups = RULES[name](groups, change, ALL[:1])
    expected = by_hand(name, np.ones(4), [change[0].numpy() for change in updates])
    np.testing.assert_allclose(groups.models[0].numpy(), expected, atol=2e-6)


def test_momentum_is_that_of_a_loop_by_hand() -> None:
    groups = groups_of(torch.zeros(1, 4))
    m = np.zeros(4)
    w = np.zeros(4)
    for seed in range(4):
        groups = momentum(0.5, 0.8)(groups, update(seed, 1), ALL[:1])
        m = 0.8 * m + update(seed, 1)[0].numpy()
        w += 0.5 * m
    np.testing.assert_allclose(groups.models[0].numpy(), w, atol=1e-5)


@every
def test_a_row_nobody_trained_neither_moves_nor_decays(server: Server) -> None:
    before = server(groups_of(torch.ones(3, 4)), update(0), ALL)
    after = server(before, update(1), FIRST)
    assert not torch.equal(after.models[0], before.models[0])
    assert torch.equal(after.models[1:], before.models[1:])
    for name, rows in before.optimiser.items():
        assert not torch.equal(after.optimiser[name][0], rows[0])
        assert torch.equal(after.optimiser[name][1:], rows[1:])


@every
def test_every_group_has_an_optimiser_of_its_own(server: Server) -> None:
    together = groups_of(torch.ones(3, 4))
    alone = [groups_of(torch.ones(1, 4)) for _ in range(3)]
    for seed in range(3):
        trained = torch.tensor([True, seed % 2 == 0, seed == 1])
        together = server(together, update(seed), trained)
        alone = [
            server(g, update(seed)[j : j + 1], trained[j : j + 1]) for j, g in enumerate(alone)
        ]
    for j, groups in enumerate(alone):
        assert torch.equal(together.models[j], groups.models[0])
        assert all(
            torch.equal(together.optimiser[n][j], rows[0]) for n, rows in groups.optimiser.items()
        )


@every
def test_the_rows_of_a_group_that_splits_follow_it(server: Server) -> None:
    before = server(groups_of(torch.ones(3, 4)), update(0), ALL)
    split = before.select([0, 0, 2, 1])
    after = server(
        split, torch.cat([update(1), update(2)[:1]]), torch.tensor([True, False, False, True])
    )
    for name, rows in before.optimiser.items():
        assert torch.equal(after.optimiser[name][1], rows[0])
        assert torch.equal(after.optimiser[name][2], rows[2])
        assert after.optimiser[name].shape == (4, 4)


@every
def test_a_new_model_begins_with_a_new_optimiser(server: Server) -> None:
    before = server(groups_of(torch.ones(2, 4)), update(0)[:2], ALL[:2])
    opened = replace(before, models=torch.cat([before.models, torch.zeros(1, 4)]))
    after = server(opened, update(1), ALL)
    fresh = server(groups_of(torch.zeros(1, 4)), update(1)[2:], ALL[:1])
    assert torch.equal(after.models[2], fresh.models[0])
    assert torch.equal(after.models[:2], server(before, update(1)[:2], ALL[:2]).models)


@every
def test_with_fewer_models_than_rows_all_begin_anew(server: Server) -> None:
    before = server(groups_of(torch.ones(3, 4)), update(0), ALL)
    fewer = replace(before, models=before.models[:2])
    fresh = replace(fewer, optimiser=MappingProxyType({}))
    for a, b in ((server(fewer, update(1)[:2], ALL[:2]), server(fresh, update(1)[:2], ALL[:2])),):
        assert torch.equal(a.models, b.models)
        assert all(torch.equal(a.optimiser[name], b.optimiser[name]) for name in a.optimiser)


def test_a_zero_update_moves_nothing_at_the_start() -> None:
    for server in RULES.values():
        after = server(groups_of(torch.ones(3, 4)), torch.zeros(3, 4, dtype=torch.float64), ALL)
        assert torch.equal(after.models, torch.ones(3, 4))


def test_huge_updates_stay_finite() -> None:
    for server in (adagrad(), adam(), yogi()):
        groups = groups_of(torch.ones(3, 4))
        for scale in (1e15, 1.0, 1e15):
            groups = server(groups, update(0) * scale, ALL)
        assert torch.isfinite(groups.models).all()
        assert (groups.optimiser["v"] >= 0).all()


def test_running_statistics_are_averaged_whatever_the_server() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    local = ct.Solver(epochs=1, batch_size=50, lr=1e-12)
    found = {}
    for name in ("sgd", "fedyogi"):
        result = ct.run(
            ct.fedavg(),
            data=blobs(),
            model=net,
            local=local,
            rounds=2,
            engine="serial",
            server=name,
        )
        found[name] = result.model_for(0)[1]
        assert torch.isfinite(result.state.models).all()
    torch.testing.assert_close(found["sgd"].running_var, found["fedyogi"].running_var)
    assert not torch.allclose(found["sgd"].running_mean, net[1].running_mean)
    split = on_parameters(sgd(), 2)(groups_of(torch.ones(3, 4)), update(0), ALL)
    assert torch.equal(split.models, sgd()(groups_of(torch.ones(3, 4)), update(0), ALL).models)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_rates_are_positive(value: float) -> None:
    with refuses(ConfigError, "out-of-range", "lr"):
        yogi(lr=value)
    with refuses(ConfigError, "out-of-range", "beta2"):
        ct.fedadam(beta2=1.0)

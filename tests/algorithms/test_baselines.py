"""Every client alone, and all data in one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import coterie as ct
from coterie import algorithms
from coterie.core.solver import Solver
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.methods.algorithm import as_algorithm
from coterie.runs.fitting import pool_if_asked
from coterie.runs.run import run_config
from tests.conftest import assert_near, blobs
from tests.lazy_federations import federation
from tests.refusals import refuses

SOLVER = Solver(epochs=2, batch_size=5, lr=0.1)


def linear() -> torch.nn.Linear:
    """The same weights at every call."""
    torch.manual_seed(0)
    return torch.nn.Linear(6, 4)


def run(method: ct.Method, data: ct.Population, **options: object) -> ct.Result:
    settings = {"rounds": 3, "clients_per_round": 4, "local": SOLVER, "engine": "serial"}
    return ct.run(method, data=data, model=linear(), **{**settings, **options})  # type: ignore[arg-type]


def weights(result: ct.Result, client: int) -> torch.Tensor:
    return torch.cat([p.detach().ravel() for p in result.model_for(client).parameters()])


def test_a_client_alone_has_the_model_of_a_federation_of_one() -> None:
    """Its own training data, in the same rounds, with the same draws, and nobody else."""
    data = blobs()
    alone = run(algorithms.local(), data, clients_per_round=data.clients)
    one = ct.run(
        ct.fedavg(),
        data=data,
        model=linear(),
        rounds=3,
        local=SOLVER,
        engine="serial",
        train={"sampler": lambda round: np.array([5])},
    )
    assert_near(weights(alone, 5), weights(one, 5), within=1e-5)
    assert not torch.allclose(weights(alone, 5), weights(alone, 6), atol=1e-3)


def test_of_a_client_alone_nothing_but_numbers_is_sent() -> None:
    fields: set[str] = set()
    totals = []
    ct.run(
        algorithms.local(),
        data=blobs(),
        model=linear(),
        rounds=2,
        clients_per_round=4,
        local=SOLVER,
        engine="serial",
        on_round=lambda result: (
            totals.append(result.row["transfers"]),
            fields.update(f for block in result.blocks for f in block.fields),
        ),
    )
    assert fields == {"size", "loss"}
    assert [(t["models"], t["down_bytes"]) for t in totals] == [(0, 0), (0, 0)]


def test_a_client_that_never_trained_has_the_first_weights() -> None:
    result = ct.run(
        algorithms.local(),
        data=blobs(),
        model=linear(),
        rounds=2,
        local=SOLVER,
        engine="serial",
        train={"sampler": lambda round: np.array([0, 1])},
    )
    first = torch.cat([p.detach().ravel() for p in linear().parameters()])
    assert torch.equal(weights(result, 7), first)
    assert not torch.equal(weights(result, 1), first)


def test_pooled_data_are_all_training_data_and_the_budget_is_that_of_a_cohort() -> None:
    data = blobs()
    algorithm = as_algorithm(algorithms.pooled())
    pooled, local = pool_if_asked(algorithm, data, SOLVER, per_round=4)
    rows = np.sort(np.concatenate(data.train))
    assert np.array_equal(np.sort(pooled.train[0]), rows)
    assert sum(len(part) for part in pooled.train[1:]) == 0
    assert all(np.array_equal(a, b) for a, b in zip(pooled.test, data.test, strict=True))
    steps = [2 * -(-size // 5) for size in data.sizes("train").tolist()]
    assert local.steps == round(4 / data.clients * sum(steps))


def test_pooled_training_is_sgd_on_all_samples() -> None:
    """One round by the run equals the local solver on one client that holds everything."""
    data = blobs()
    result = run(algorithms.pooled(), data, rounds=1)
    pooled, local = pool_if_asked(as_algorithm(algorithms.pooled()), data, SOLVER, per_round=4)
    one = ct.run(
        ct.fedavg(),
        data=pooled,
        model=linear(),
        rounds=1,
        local=local,
        engine="serial",
        train={"sampler": lambda round: np.array([0])},
    )
    assert torch.equal(weights(result, 3), weights(one, 3))
    assert len(set(result.groups.tolist())) == 1


def test_a_budget_of_steps_is_kept() -> None:
    """It was replaced by whole epochs."""
    data = blobs()
    few = run(ct.fedavg(), data, local=Solver(epochs=2, batch_size=5, lr=0.1, steps=1), rounds=1)
    more = run(ct.fedavg(), data, local=Solver(epochs=2, batch_size=5, lr=0.1, steps=9), rounds=1)
    first = torch.cat([p.detach().ravel() for p in linear().parameters()])
    assert 0 < (weights(few, 0) - first).norm() < (weights(more, 0) - first).norm()


def test_lazy_data_cannot_be_pooled() -> None:
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        run(algorithms.pooled(), federation(lazy=True), rounds=1)


@pytest.mark.parametrize("name", ["local", "pooled"])
def test_baselines_are_run_by_name(name: str, tmp_path: Path) -> None:
    tables = {
        "seed": 1,
        "data": {
            "source": "digits",
            "partition": {"kind": "planted", "clients": 12, "groups": 3, "how": "swap"},
        },
        "model": {"name": "mclr"},
        "train": {"rounds": 4, "clients_per_round": 6},
        "algorithm": {"name": name},
        "engine": {"name": "serial"},
    }
    summary = run_config(check(tables), tmp_path / name)
    assert summary["algorithm"] == name
    assert summary["accuracy"]["final"] > 0.15

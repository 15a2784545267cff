"""Regression: its losses and metrics against torch and scikit-learn, and that it learns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch.nn import functional as F

import coterie as ct
from coterie.core.task import Metric, Task
from coterie.tasks import baseline, regression
from tests.conftest import assert_near
from tests.refusals import refuses
from tests.tasks.federations import exact_net, federation, pooled, scored

FEDERATIONS = range(10)
# Every federation in one process, and one of them in other processes: that engines agree on every
# task is tested in tests/contract.
CASES = [
    *((seed, ("serial", None)) for seed in FEDERATIONS),
    *((0, ("pool", workers)) for workers in (1, 2, 4)),
]

REFERENCES: dict[str, Callable[[Any, Any], float]] = {
    "mae": reference.mean_absolute_error,
    "rmse": reference.root_mean_squared_error,
    "r2": reference.r2_score,
    "pinball": lambda y, z: reference.mean_pinball_loss(y, z, alpha=0.25),
}


def fitted_case(seed: int) -> tuple[ct.Population, torch.nn.Module, Task]:
    """A random federation with one target or three."""
    rng = np.random.default_rng(seed)
    targets = 1 if seed % 2 else 3
    shape = (80,) if targets == 1 else (80, 3)
    y = torch.tensor(rng.normal(3, 2, size=shape), dtype=torch.float32)
    population = federation(rng, y)
    task = regression("quantile", quantile=0.25).fitted(population.y, 0)
    return population, exact_net(rng, targets), task


@pytest.mark.parametrize(("seed", "engine"), CASES)
def test_metrics_are_those_of_the_pooled_predictions(
    seed: int, engine: tuple[str, int | None]
) -> None:
    population, net, task = fitted_case(seed)
    each = scored(population, net, task, *engine)
    outputs, targets = pooled(population, net)
    y = targets.double().numpy().reshape(len(targets), -1)
    z = outputs.double().numpy()
    together = {name: values.sum(axis=0) for name, values in each.items()}
    assert {metric.name for metric in task.metrics} == set(REFERENCES)
    for metric in task.metrics:
        expected = REFERENCES[metric.name](y, z)
        assert float(metric.value(together)) == pytest.approx(expected, abs=1e-9, rel=1e-9)
    assert each["loss"].sum() == pytest.approx(task.loss(outputs, targets).sum().item(), rel=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_metrics_of_single_clients(seed: int) -> None:
    population, net, task = fitted_case(seed)
    each = scored(population, net, task, "serial", None)
    tested = [i for i in range(population.clients) if len(population.test[i])]
    for place, client in enumerate(tested):
        rows = torch.from_numpy(population.test[client])
        y = population.y[rows].double().numpy().reshape(len(rows), -1)
        with torch.no_grad():
            z = net(population.x[rows]).double().numpy()
        for metric in task.metrics:
            found = metric.value(each)[place]
            if metric.name == "r2" and len(rows) < 2:
                assert np.isnan(found)
            else:
                assert found == pytest.approx(REFERENCES[metric.name](y, z), rel=1e-9, abs=1e-9)


def test_losses_are_those_of_torch() -> None:
    outputs = torch.tensor([[0.5], [2.0], [-3.0]])
    y = torch.tensor([0.0, 2.5, 1.0])
    known = {
        "squared": F.mse_loss(outputs[:, 0], y, reduction="none"),
        "absolute": F.l1_loss(outputs[:, 0], y, reduction="none"),
        "huber": F.huber_loss(outputs[:, 0], y, reduction="none", delta=0.7),
    }
    for kind, expected in known.items():
        task = regression(kind, delta=0.7)  # type: ignore[arg-type]
        assert torch.allclose(task.loss(outputs, y), expected)


def test_the_quantile_loss_is_least_at_the_quantile() -> None:
    y = torch.arange(101, dtype=torch.float32)
    task = regression("quantile", quantile=0.9)
    losses = [task.loss(torch.full((101, 1), float(at)), y).mean().item() for at in range(101)]
    assert int(np.argmin(losses)) == 90


def linear(rng: np.random.Generator, clients: int = 12, shift: float = 0.0) -> ct.Population:
    """Clients whose targets are one linear function of their inputs, or one of two."""
    x = torch.tensor(rng.normal(size=(40 * clients, 5)), dtype=torch.float32)
    w = torch.tensor(rng.normal(size=5), dtype=torch.float32)
    planted = np.arange(clients) % 2
    sign = torch.from_numpy(1 - 2 * shift * np.repeat(planted, 40)).float()
    noise = torch.tensor(rng.normal(size=len(x)), dtype=torch.float32)
    parts = np.arange(len(x)).reshape(clients, 40)
    y = sign * (x @ w) + 0.1 * noise
    return ct.Population(x, y, tuple(parts[:, :30]), tuple(parts[:, 30:]), planted=planted)


SOLVER = ct.Solver(epochs=3, batch_size=10, lr=0.03)
# The gradient of an absolute error is no longer than one, however large the error is.
FAST = ct.Solver(epochs=3, batch_size=10, lr=0.1)


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "quantile"])
def test_it_learns(loss: Any) -> None:
    data = linear(np.random.default_rng(0))
    task = regression(loss)
    result = ct.run(
        ct.fedavg(), data=data, model="mclr", local=FAST, rounds=20, task=task, engine="serial"
    )
    naive = baseline(task.fitted(data.y, 0), data)
    assert naive is not None
    assert result.headline.name == "mae"
    assert result.scores[-1] < naive / 3
    assert result.scores[-1] < result.scores[0]
    assert result.accuracy == []
    row = result.rows[-1]
    assert set(row["metrics"]) >= {"rmse", "r2"}
    assert row["mae_quantiles"]["p90"] >= row["mae_quantiles"]["p10"]


def test_groups_find_two_opposite_functions() -> None:
    data = linear(np.random.default_rng(1), shift=1.0)
    options: dict[str, Any] = {"data": data, "model": "mclr", "local": SOLVER, "rounds": 8}
    options |= {"task": "regression", "engine": "serial"}
    one = ct.run(ct.fedavg(), **options)
    two = ct.run(ct.fedgroup(groups=2, alpha=4), **options)
    assert two.rows[-1]["agreement"]["ari"] == 1.0
    assert two.scores[-1] < one.scores[-1] / 3
    assert len(two.rows[-1]["metrics_groups"]["rmse"]) == 2


def test_engines_train_alike() -> None:
    data = linear(np.random.default_rng(2))
    options: dict[str, Any] = {"data": data, "model": "mclr", "local": SOLVER, "rounds": 3}
    options |= {"task": regression("huber", headline="rmse")}
    serial = ct.run(ct.ifca(groups=2), engine="serial", **options)
    for workers in (1, 2, 4):
        pool = ct.run(ct.ifca(groups=2), engine={"name": "pool", "workers": workers}, **options)
        assert torch.equal(serial.state.models, pool.state.models)
        assert serial.scores == pool.scores
    together = ct.run(ct.ifca(groups=2), engine={"name": "vmap", "device": "cpu"}, **options)
    assert_near(together.state.models, serial.state.models, 1e-4)


def test_a_sample_of_the_clients_states_its_error() -> None:
    data = linear(np.random.default_rng(3))
    options: dict[str, Any] = {"data": data, "model": "mclr", "local": SOLVER, "rounds": 2}
    for headline in ("mae", "rmse"):
        options |= {"task": regression(headline=headline), "engine": "serial"}  # type: ignore[arg-type]
        row = ct.run(ct.fedavg(), train={"evaluate_clients": 6}, **options).rows[-1]
        all_of_them = ct.run(ct.fedavg(), train={"evaluate_clients": 12}, **options).rows[-1]
        plain = ct.run(ct.fedavg(), **options).rows[-1]
        assert row["evaluated"] == 6
        assert all_of_them[f"{headline}_all"] == pytest.approx(plain[f"{headline}_all"])
        assert ("mae_error" in row) == (headline == "mae"), "only a mean has an error"


def refused(**options: Any) -> str:
    with pytest.raises(ct.CoterieError) as error:
        ct.run(ct.fedavg(), model="mclr", rounds=1, engine="serial", **options)
    return str(error.value)


def test_mistakes_are_one_line() -> None:
    data = linear(np.random.default_rng(4))
    assert "expected kind = 'regression'" in refused(data=data)
    many = ct.Population(data.x, torch.arange(480), data.train, data.test, 480)
    assert "labels look like numbers (360 different labels in 360" in refused(data=many)
    assert "did you mean 'regression'?" in refused(data=data, task="regresion")
    with refuses(ct.ConfigError, "does-not-fit", "model.name"):
        ct.run(ct.fedavg(), data=data, model=torch.nn.Linear(5, 3), rounds=1, task="regression")
    with refuses(ct.DataError, "missing", "population.y"):
        ct.Population(data.x, torch.arange(480), data.train, data.test)
    with refuses(ct.DataError, "not-finite", "population.y"):
        ct.Population(data.x, data.y / 0, data.train, data.test)
    with refuses(ct.ConfigError, "in-conflict", "task.headline"):
        regression(headline="pinball")


def test_a_said_classification_may_have_many_classes() -> None:
    data = linear(np.random.default_rng(4))
    many = ct.Population(data.x, torch.arange(480), data.train, data.test, 480)
    result = ct.run(
        ct.fedavg(), data=many, model="mclr", rounds=1, engine="serial", task="classification"
    )
    assert result.model_for(0)(many.x).shape == (480, 480)


def test_the_first_metric_is_the_headline() -> None:
    first: Metric = regression(headline="r2").metrics[0]
    assert (first.name, first.headline.better) == ("r2", "higher")
    assert len(regression(headline="r2").metrics) == 3

"""The figures of an evaluated round, beside those computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import coterie as ct
from coterie.experiment import check
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config


def digits() -> ct.Population:
    return ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})


def losses_by_hand(result: ct.Result, data: ct.Population) -> np.ndarray:
    """The summed cross-entropy of each client's test samples, under the model that serves it."""
    sums = np.zeros(data.clients)
    for client in range(data.clients):
        model = result.model_for(client).eval()
        rows = torch.as_tensor(data.test[client])
        with torch.inference_mode():
            logits = model(data.x[rows])
        sums[client] = float(F.cross_entropy(logits, data.y[rows], reduction="sum"))
    return sums


@pytest.mark.parametrize("model", ["mclr", "lenet5"])
def test_the_test_loss_is_the_mean_cross_entropy_of_a_test_sample(model: str) -> None:
    # The compiled code scores the dense network, the network itself the convolutional one.
    data = (
        digits() if model == "mclr" else ct.load("digits", partition={"kind": "iid", "clients": 6})
    )
    if model == "lenet5":
        network: str | torch.nn.Module = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)
        )
    else:
        network = model
    result = ct.run(
        ct.fedavg(),
        data=data,
        model=network,
        rounds=2,
        engine="serial",
        train={"evaluate_loss": True},
    )
    sums = losses_by_hand(result, data)
    size = data.sizes("test")
    assert result.rows[-1]["test_loss"] == pytest.approx(sums.sum() / size.sum(), rel=1e-5)
    assert result.rows[-1]["test_loss_all"] == result.rows[-1]["test_loss"]


def test_clients_without_a_group_count_in_the_loss_of_all_only() -> None:
    data = digits()
    result = ct.run(
        ct.fedgroup(groups=2, alpha=2),
        data=data,
        model="mclr",
        rounds=1,
        clients_per_round=2,
        engine="serial",
        train={"evaluate_loss": True},
    )
    sums = losses_by_hand(result, data)
    size = data.sizes("test")
    assigned = result.groups >= 0
    assert 0 < assigned.sum() < data.clients
    row = result.rows[-1]
    of_assigned = sums[assigned].sum() / size[assigned].sum()
    assert row["test_loss"] == pytest.approx(of_assigned, rel=1e-5)
    assert row["test_loss_all"] == pytest.approx(sums.sum() / size.sum(), rel=1e-5)
    assert row["test_loss"] != pytest.approx(row["test_loss_all"], rel=1e-5)


def test_the_loss_changes_no_other_figure_and_is_absent_unless_asked_for() -> None:
    def rows(*, evaluate_loss: bool) -> list[dict[str, object]]:
        result = ct.run(
            ct.fedavg(),
            data=digits(),
            model="mclr",
            rounds=2,
            engine="serial",
            train={"evaluate_loss": evaluate_loss},
        )
        dropped = ("seconds", "transfers")
        return [{k: v for k, v in row.items() if k not in dropped} for row in result.rows]

    plain = rows(evaluate_loss=False)
    measured = rows(evaluate_loss=True)
    assert all("test_loss" not in row for row in plain)
    for row in measured:
        assert row.pop("test_loss")
        assert row.pop("test_loss_all")
    assert measured == plain


def test_a_sample_that_is_everybody_estimates_the_loss_exactly() -> None:
    def loss(clients: int | None) -> float:
        result = ct.run(
            ct.fedavg(),
            data=digits(),
            model="mclr",
            rounds=1,
            engine="serial",
            train={"evaluate_clients": clients, "evaluate_loss": True},
        )
        return float(result.rows[-1]["test_loss_all"])

    assert loss(12) == pytest.approx(loss(None), rel=1e-12)
    assert loss(4) == pytest.approx(loss(None), rel=0.5)


def test_a_configuration_measures_the_loss_on_every_engine(tmp_path: Path) -> None:
    found = []
    for engine in ({"name": "serial"}, {"name": "pool", "workers": 2}, {"name": "vmap"}):
        config = check(
            {
                "seed": 3,
                "data": {
                    "source": "digits",
                    "partition": {"kind": "planted", "clients": 12, "groups": 2},
                },
                "model": {"name": "mclr"},
                "train": {"rounds": 2, "clients_per_round": 6, "evaluate_loss": True},
                "algorithm": {"name": "ifca", "groups": 2},
                "engine": engine,
            }
        )
        run_config(config, tmp_path / str(engine["name"]))
        rows = RunFolder(tmp_path / str(engine["name"])).rows()
        found.append([row["test_loss"] for row in rows])
    assert found[0] == found[1]
    assert found[2] == pytest.approx(found[0], rel=1e-4)

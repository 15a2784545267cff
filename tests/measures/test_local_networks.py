"""Clients scored with the network that they trained last."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.algorithms.local import local
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import make_clients
from coterie.experiment import check
from coterie.measures import own_models
from coterie.models import build_model
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped, execute, make_folder, run_config
from tests.measures import small_runs
from tests.measures.small_runs import SOLVER, digits

LOCAL_KEYS = ("evaluated_local", "accuracy_local", "accuracy_local_mean")


measured = partial(small_runs.measured, rounds=3, clients_per_round=4, train={"sampler": "uniform"})


def test_both_figures_are_those_of_the_networks_by_hand() -> None:
    """Twelve clients train once from w_0, so their networks are those of one training by hand."""
    data = digits()
    module = build_model("mclr", data.shape, data.classes, Key(0).of("model"))
    start = flatten(module)[None]
    ids = np.arange(12)
    with make_clients(data, module, SOLVER, "serial") as clients:
        key = Key(0).at(0).of("train")
        reply = clients.run(Train(), ids, start, np.zeros(12, np.int64), key=key)
    networks = start.numpy() + reply.fields["delta"]
    correct = np.zeros(12)
    for client in range(12):
        weight = networks[client][:640].reshape(10, 64)
        logits = data.x[data.test[client]].flatten(1).numpy() @ weight.T + networks[client][640:]
        correct[client] = (logits.argmax(axis=1) == data.y[data.test[client]].numpy()).sum()
    row = measured(ct.fedavg(), rounds=1, clients_per_round=12, evaluate={"local": True}).rows[0]
    size = data.sizes("test")
    assert row["evaluated_local"] == 12
    assert row["accuracy_local"] == pytest.approx(correct.sum() / size.sum())
    assert row["accuracy_local_mean"] == pytest.approx((correct / size).mean())
    assert row["accuracy_local"] != row["accuracy"]


@pytest.mark.parametrize(
    "method",
    [
        ct.fedavg(),
        ct.fedclust(groups=2),
        ct.ifca(groups=2),
        ct.fedgroup(groups=2, alpha=2),
        ct.fedgsp(),
        local(),
    ],
    ids=["fedavg", "fedclust", "ifca", "fedgroup", "fedgsp", "local"],
)
def test_nothing_else_of_a_run_changes(method: Any) -> None:
    def without(rows: tuple[Mapping[str, Any], ...]) -> list[dict[str, Any]]:
        dropped = ("seconds", *LOCAL_KEYS, "accuracy_local_quantiles", "accuracy_local_fairness")
        return [{k: v for k, v in row.items() if k not in dropped} for row in rows]

    before = measured(method)
    after = measured(method, evaluate={"local": True})
    assert not any(key in row for row in before.rows for key in LOCAL_KEYS)
    assert all(row["evaluated_local"] > 0 for row in after.rows)
    assert without(after.rows) == without(before.rows)
    assert (after.state.models == before.state.models).all()


def test_a_client_that_keeps_its_whole_model_is_served_by_its_last_network() -> None:
    rows = measured(local(), clients_per_round=12, evaluate={"local": True}).rows
    assert [row["accuracy_local_mean"] for row in rows] == [row["accuracy_mean"] for row in rows]


def test_only_clients_that_trained_count() -> None:
    rows = measured(ct.fedavg(), clients_per_round=1, evaluate={"local": True}).rows
    assert rows[0]["evaluated_local"] == 1
    assert rows[2]["evaluated_local"] <= 3
    # All clients train once to be clustered, and remember the network of which they send a layer.
    rows = measured(ct.fedclust(groups=2), clients_per_round=1, evaluate={"local": True}).rows
    assert [row["evaluated_local"] for row in rows] == [12, 12, 12]


def test_a_sample_is_of_the_clients_that_trained() -> None:
    def rows(clients: int | None) -> tuple[Mapping[str, Any], ...]:
        method = ct.fedgroup(groups=2, alpha=2)
        train = {"sampler": "uniform", "evaluate_clients": clients}
        return measured(method, train=train, evaluate={"local": True}).rows

    assert [row["evaluated_local"] for row in rows(3)] == [3, 3, 3]
    for sampled, whole in zip(rows(12), rows(None), strict=True):
        assert [sampled[key] for key in LOCAL_KEYS] == [whole[key] for key in LOCAL_KEYS]


def test_networks_are_scored_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measured(ct.fedavg(), evaluate={"local": True}).rows
    monkeypatch.setattr(own_models, "_BLOCK", 2 * 650 * 4)
    blocks = measured(ct.fedavg(), evaluate={"local": True}).rows
    for a, b in zip(whole, blocks, strict=True):
        assert [a[key] for key in LOCAL_KEYS] == [b[key] for key in LOCAL_KEYS]


def tables(engine: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {
            "source": "digits",
            "partition": {"kind": "planted", "clients": 12, "groups": 2},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "train": {"rounds": 4, "clients_per_round": 3},
        "evaluate": {"local": True},
        "algorithm": {"name": "fedclust", "groups": 2},
        "engine": dict(engine),
        "checkpoint": {"seconds": 0},
    }


def figures(folder: Path) -> list[list[float]]:
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [[row[key] for key in LOCAL_KEYS] for row in rows]


def test_engines_agree_to_the_bit_and_vmap_nearly(tmp_path: Path) -> None:
    engines = ({"name": "serial"}, {"name": "pool", "workers": 2}, {"name": "vmap"})
    found = []
    for engine in engines:
        run_config(check(tables(engine)), tmp_path / str(engine["name"]))
        found.append(figures(tmp_path / str(engine["name"])))
    assert found[0] == found[1]
    assert np.array(found[2]) == pytest.approx(np.array(found[0]), abs=0.02)


def test_a_resumed_run_has_the_networks_of_before(tmp_path: Path) -> None:
    config = check(tables({"name": "serial"}))
    run_config(config, tmp_path / "straight")
    composed = compose(config)
    folder = make_folder(composed, tmp_path / "stopped")
    done: list[object] = []
    with pytest.raises(Stopped):
        execute(
            composed,
            folder,
            done.append,
            stop=lambda: signal.SIGTERM if len(done) == 2 else 0,
        )
    checkpoint = RunFolder(folder.path).checkpoints.latest()
    assert checkpoint is not None
    assert checkpoint.extra["local_networks.vectors"].shape == (12, 650)
    execute(compose(config), folder, checkpoint=checkpoint, resume=True)
    assert figures(folder.path) == figures(tmp_path / "straight")

"""Clients scored after local adaptation, and clients that never train."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms.local import local
from coterie.engines import make_clients
from coterie.errors import Code, ConfigError
from coterie.experiment import check
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.measures import small_runs
from tests.measures.small_runs import digits
from tests.refusals import refuses

EXTRA = ("adapted", "unseen", "local")


measured = partial(small_runs.measured, train={"sampler": "uniform"})


def without_extra(rows: Any) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row.items() if k != "seconds" and not any(one in k for one in EXTRA)}
        for row in rows
    ]


METHODS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "fedavg": (ct.fedavg(), {}),
    "fedgroup": (ct.fedgroup(groups=2, alpha=3), {}),
    "ifca": (ct.ifca(groups=2), {}),
    "fedgroup with a personal layer": (
        ct.fedgroup(groups=2, alpha=3),
        {"model": "mlp", "personal": {"layers": ["head"]}},
    ),
    "local": (local(), {}),
    "ditto": (ct.ditto(), {}),
    "fedsoft": (ct.fedsoft(groups=2), {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_nothing_else_of_a_run_changes(name: str) -> None:
    """Neither the models, nor what clients keep, nor a figure of before."""
    method, options = METHODS[name]
    before = measured(method, evaluate={"local": True}, **options)
    after = measured(method, evaluate={"local": True, "adapt": ct.Adaptation(2)}, **options)
    assert all("accuracy_adapted" in row for row in after.rows)
    assert without_extra(after.rows) == without_extra(before.rows)
    assert after.rows[-1]["accuracy_local"] == before.rows[-1]["accuracy_local"]
    assert (after.state.models == before.state.models).all()
    assert (after.kept.ids == before.kept.ids).all()
    assert (after.kept.vectors == before.kept.vectors).all()
    assert (after.own_models.vectors == before.own_models.vectors).all()


def test_the_adapted_model_is_the_served_one_after_one_training_by_hand() -> None:
    """The clients of FedAvg start their adaptation from its model: the same training, by hand."""
    data = digits()
    result = measured(ct.fedavg(), rounds=1, evaluate={"adapt": ct.Adaptation(epochs=3)})
    row = result.rows[0]
    ids = np.arange(12)
    solver = ct.Solver(epochs=3, lr=0.1)
    with make_clients(data, result.module, solver, "serial") as clients:
        key = ct.Key(0).at(0).of("evaluate").of("adapt")
        zeros = np.zeros(12, np.int64)
        reply = clients.run(
            ct.Train(ct.fedavg().local.objective), ids, result.state.models, zeros, key=key
        )
    networks = result.state.models.numpy() + reply.fields["delta"]
    shares = []
    for client in range(12):
        weight = networks[client][:640].reshape(10, 64)
        logits = data.x[data.test[client]].flatten(1).numpy() @ weight.T + networks[client][640:]
        right = logits.argmax(axis=1) == data.y[data.test[client]].numpy()
        shares.append(right.mean())
    assert row["evaluated_adapted"] == 12
    assert row["accuracy_adapted_mean"] == pytest.approx(np.mean(shares))
    assert row["accuracy_adapted_fairness"]["worst_tenth"] == pytest.approx(min(shares))
    assert row["accuracy_adapted_fairness"]["spread"] == pytest.approx(np.std(shares))
    assert row["accuracy_adapted_mean"] != row["accuracy_mean"]


def test_adaptation_of_the_head_leaves_the_body() -> None:
    """A network whose body is adapted alone has another score than one whose head is."""
    head, body, whole = (
        measured(
            ct.fedavg(), model="mlp", rounds=1, evaluate={"adapt": ct.Adaptation(layers=layers)}
        ).rows[0]["accuracy_adapted"]
        for layers in (("head",), ("body",), ())
    )
    assert len({head, body, whole}) == 3
    with refuses(ConfigError, "not-found", "evaluate.adapt.layers"):
        measured(ct.fedavg(), evaluate={"adapt": ct.Adaptation(layers=("neck",))})


def test_a_model_of_the_client_s_own_is_where_its_adaptation_starts() -> None:
    """Without its pull Ditto's own models are those of local training, and so are the adapted."""
    options = {"rounds": 1, "clients_per_round": 12, "evaluate": {"adapt": ct.Adaptation()}}
    ditto, alone, fedavg = (
        measured(method, **options).rows[-1] for method in (ct.ditto(lam=0.0), local(), ct.fedavg())
    )
    for key in ("accuracy", "accuracy_adapted"):
        assert ditto[key] == alone[key] != fedavg[key]


def test_unseen_clients_never_train() -> None:
    for method in (ct.fedavg(), ct.fedclust(groups=2), ct.fedgsp(), ct.pacfl(), ct.cfl()):
        result = measured(method, rounds=3, clients_per_round=12, evaluate={"unseen": (1, "4")})
        clients = result.state.member
        moved = {client for row in result.rows for client, _ in row["moves"]}
        assert not moved & {1, 4}, method.made_by
        assert (clients[[1, 4]] == -1).all()
        assert all(row["evaluated_unseen"] == 2 for row in result.rows)
        assert result.rows[-1]["clients_assigned"] == sum(result.rows[-1]["sizes"]) == 10


def test_samples_of_unseen_clients_change_no_model() -> None:
    """The test of all: with other samples of unseen clients every model has the same bits."""
    data = digits()
    y = data.y.clone()
    y[torch.from_numpy(data.train[1])] = 0
    other = ct.Population(data.x, y, data.train, data.test, data.classes, data.names, data.planted)
    adapt = ct.Adaptation()
    for method in (ct.fedgroup(groups=2, alpha=3), ct.ifca(groups=2), ct.fedclust(groups=2)):
        a, b = (
            measured(method, data=one, evaluate={"unseen": (1,), "adapt": adapt})
            for one in (data, other)
        )
        assert (a.state.models == b.state.models).all()
        assert a.rows[-1]["accuracy"] == b.rows[-1]["accuracy"]
        assert a.rows[-1]["accuracy_unseen_adapted"] != b.rows[-1]["accuracy_unseen_adapted"]


@pytest.mark.parametrize(
    "method",
    [ct.fedgroup(groups=2, alpha=4), ct.ifca(groups=2), ct.fesem(groups=2), ct.fedclust(groups=2)],
    ids=["fedgroup", "ifca", "fesem", "fedclust"],
)
def test_unseen_clients_are_placed_with_those_like_them(method: Any) -> None:
    """Planted groups: a newcomer is scored nearly as well as those that trained."""
    options: dict[str, Any] = {"rounds": 6, "clients_per_round": 12}
    row = measured(method, evaluate={"unseen": 0.2}, **options).rows[-1]
    assert row["evaluated_unseen"] == row["unseen_placed"] == 2
    assert row["accuracy_unseen"] > row["accuracy"] - 0.15
    assert row["accuracy"] > 0.75


def test_a_newcomer_of_personal_layers_has_an_untrained_head_until_it_adapts() -> None:
    row = measured(
        ct.fedper(),
        model="mlp",
        rounds=6,
        clients_per_round=12,
        evaluate={"unseen": 0.25, "adapt": ct.Adaptation(5, ("head",))},
    ).rows[-1]
    assert row["accuracy_unseen"] < row["accuracy"] - 0.1
    assert row["accuracy_unseen_adapted"] > row["accuracy_unseen"]


def test_scores_in_the_last_round_alone() -> None:
    every = measured(ct.fedavg(), evaluate={"unseen": 0.2, "adapt": ct.Adaptation()})
    last = measured(
        ct.fedavg(), evaluate={"unseen": 0.2, "adapt": ct.Adaptation(), "rounds": "last"}
    )
    assert not any("unseen" in key or "adapted" in key for key in last.rows[0])
    for key in ("accuracy_adapted", "accuracy_unseen", "accuracy_unseen_adapted"):
        assert last.rows[1][key] == every.rows[1][key]


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"evaluate": {"unseen": ("nobody",)}}, ("not-found", "evaluate.unseen")),
        ({"evaluate": {"unseen": (12,)}}, ("not-found", "evaluate.unseen")),
        ({"evaluate": {"unseen": tuple(range(12))}}, ("out-of-range", "evaluate.unseen")),
        (
            {"shift": "swap_all", "evaluate": {"unseen": 0.2}},
            ("in-conflict", "evaluate.unseen"),
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], refusal: tuple[Code, str]) -> None:
    with refuses(ConfigError, *refusal):
        measured(ct.fedavg(), **options)


@pytest.mark.parametrize("key", ["adapt", "unseen"])
def test_pooled_data_have_no_clients(key: str) -> None:
    tables = config()
    tables["algorithm"] = {"name": "pooled"}
    del tables["evaluate"]["unseen" if key == "adapt" else "adapt"]
    with refuses(ConfigError, "does-not-fit", f"evaluate.{key}"):
        run_config(check(tables))


def config(**engine: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {"source": "digits", "partition": {"kind": "planted", "clients": 12, "groups": 2}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "train": {"rounds": 2, "clients_per_round": 4},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 3},
        "engine": engine or {"name": "serial"},
        "evaluate": {"adapt": {"epochs": 1, "layers": []}, "unseen": 0.25},
    }


def test_engines_agree_to_the_bit_and_a_folder_says_all(tmp_path: Path) -> None:
    rows = []
    for name, engine in {
        "serial": {"name": "serial"},
        "pool": {"name": "pool", "workers": 2},
    }.items():
        run_config(check(config(**engine)), tmp_path / name)
        rows.append(RunFolder(tmp_path / name).rows())
    for one, other in zip(*rows, strict=True):
        keys = [key for key in one if "adapted" in key or "unseen" in key]
        assert len(keys) == 2 + 3 * 4 + 1
        assert [one[key] for key in keys] == [other[key] for key in keys]


def test_a_shift_and_unseen_clients_are_refused_by_the_configuration() -> None:
    tables = config() | {"shift": {"kind": "swap_all"}}
    with refuses(ConfigError, "in-conflict", "evaluate.unseen"):
        check(tables)

"""FedClust: what is sent, by hand, and planted groups of real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, squareform
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.core.keys import Key
from coterie.core.training import Epochs
from coterie.core.vectors import Layout, flatten
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.methods.algorithm import as_algorithm
from coterie.models import MODELS
from coterie.rules.signatures import span
from tests.conftest import (
    round_of,
    same_partition,
    small_net,
    two_classes_each,
)
from tests.refusals import refuses
from tests.rules.one_shot_runs import SOLVER, Run, signatures


def test_a_number_of_groups_is_kept_to() -> None:
    run = Run(ct.fedclust(groups=2), two_classes_each(12, groups=3))
    run.step([0, 1], able=[0, 1, 3, 4, 6, 7, 9, 10])
    run.step([2, 5])
    assert run.state.k == 2
    assert min(run.member[2], run.member[5]) >= 0


@pytest.mark.parametrize("threshold", ["auto", "gap"])
def test_fedclust_by_hand(threshold: Any) -> None:
    """Everybody trains w_0 for an epoch; the distances are those between final layers, or between
    the directions in which they moved."""
    method = ct.fedclust(warmup_epochs=1, linkage="complete", threshold=threshold)
    run = Run(method, two_classes_each())
    run.step([0])
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    work = ct.Train(ct.fedclust().local.objective, Epochs(1))
    everybody = np.arange(12)
    reply = run.clients.run(
        work,
        everybody,
        run.w0,
        key=run.key.at(0).of("assign").of("signatures"),
        counts=False,
    )
    start = run.w0
    if threshold == "auto":
        start = torch.zeros_like(run.w0)
    final = np.stack([flatten_final(net, start + d) for d in reply.delta])
    if threshold == "auto":
        final /= np.linalg.norm(final, axis=1, keepdims=True)
    np.testing.assert_allclose(signatures(run).proximity, cdist(final, final), atol=1e-5)
    np.testing.assert_allclose(
        signatures(run).tree[:, 2],
        linkage(squareform(cdist(final, final), checks=False), "complete")[:, 2],
        atol=1e-5,
    )


def flatten_final(net: nn.Module, vector: Tensor) -> np.ndarray:
    views = Layout.of(net).views(vector)
    return torch.cat([views["2.weight"].ravel(), views["2.bias"]]).numpy()


@pytest.mark.parametrize(("bias", "values"), [(True, 850), (False, 840)])
def test_what_fedclust_uploads_of_lenet(bias: bool, values: int) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(40, 3, 32, 32, generator=rng)
    y = torch.arange(40) % 10
    parts = tuple(np.arange(40).reshape(4, 10))
    population = ct.Population(x, y, parts, parts, 10)
    method = ct.fedclust(bias=bias, warmup_epochs=1, threshold=1.0)
    net = MODELS["lenet5"]().build((3, 32, 32), 10)
    clients = Clients(
        SerialEngine(LocalRunner(population, net, SOLVER)),
        shape=ModelShape(10, 3072, Layout.of(net)),
    )
    w0 = flatten(net)
    algorithm = as_algorithm(method)
    algorithm.step(algorithm.init(lambda j: w0, 4), round_of(clients, [0], Key(0).at(0)))
    down, up = (b for b in clients.ledger.blocks if b.what == "signatures")
    assert down.bytes.tolist() == [4 * 62006] * 4
    assert up.bytes.tolist() == [4 * values + 8] * 4  # and two numbers: samples and loss
    assert (down.models.tolist(), up.models.tolist()) == ([1] * 4, [0] * 4)


def test_any_layer_can_be_named() -> None:
    layout = Layout.of(small_net())
    assert span(layout, "final", True) == span(layout, "2", True) == (56, 92)
    assert span(layout, "final", False) == span(layout, "2.weight", True) == (56, 88)
    assert span(layout, "2.bias", False) == (88, 92)
    with refuses(ct.ConfigError, "unknown-choice", "algorithm.layer"):
        Run(ct.fedclust(layer="fc"), two_classes_each()).step([0])


def test_planted_label_groups_of_cifar10_are_found_in_one_round(tenth_of_cifar10: Path) -> None:
    partition = {"kind": "planted", "clients": 10, "groups": 2, "size": 250}
    data = ct.load("cifar10", root=str(tenth_of_cifar10), pixels="unit", partition=partition)
    solver = ct.Solver(epochs=3, batch_size=10, lr=0.01, momentum=0.5)
    result = ct.run(
        ct.fedclust(),
        data=data,
        model="lenet5",
        local=solver,
        rounds=1,
        clients_per_round=1,
        engine="serial",
    )
    assert result.rows[0]["agreement"]["ari"] == 1.0
    assert result.rows[0]["notes"]["groups"] == 2


def digits_with_swapped_labels(seed: int) -> ct.Population:
    table = {"kind": "planted", "clients": 48, "groups": 3, "how": "swap"}
    return ct.load("digits", partition=table, seed=seed)


def first_round(method: ct.Method, data: ct.Population, seed: int) -> ct.Result:
    local = ct.Solver(epochs=1, batch_size=10, lr=0.03)
    return ct.run(
        method,
        data=data,
        model="mclr",
        local=local,
        rounds=1,
        clients_per_round=min(6, data.clients),
        seed=seed,
        engine="serial",
    )


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_swapped_labels_of_30_samples_a_client_are_found_without_a_wide_gap(seed: int) -> None:
    """The tree is right, but noise makes all distances alike: no gap is a tenth of the last."""
    data = digits_with_swapped_labels(seed)
    by_gap = first_round(ct.fedclust(threshold="gap", warmup_epochs=10), data, seed)
    found = first_round(ct.fedclust(warmup_epochs=10), data, seed)
    assert set(by_gap.groups.tolist()) == {0}
    assert same_partition(found.groups, data.planted)
    assert found.rows[0]["notes"]["groups_found"] == 3


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_clients_of_unequal_sizes_are_found(seed: int) -> None:
    """Sizes of 3 to 72: clients with few samples move less and in noisier directions."""
    sizes = np.random.default_rng(seed).permutation(50 ** np.linspace(0, 1, 60))
    table = {"kind": "planted", "clients": 60, "groups": 3, "how": "swap", "copies": True}
    whole = ct.load("digits", partition={**table, "size": 150}, seed=seed)
    train = tuple(
        part[: max(3, round(3 * size))] for part, size in zip(whole.train, sizes, strict=True)
    )
    result = first_round(ct.fedclust(warmup_epochs=10), whole.with_parts(train, whole.test), seed)
    assert result.state.k == 3
    assert result.rows[0]["agreement"]["ari"] > 0.9


@pytest.mark.parametrize("clients", [2, 3, 8])
def test_few_alike_clients_are_one_group(clients: int) -> None:
    data = ct.load("digits", partition={"kind": "iid", "clients": clients})
    result = first_round(ct.fedclust(), data, 0)
    assert result.groups.tolist() == [0] * clients
    assert result.rows[0]["notes"]["groups_found"] == 1


def test_one_group_is_explained_in_a_line() -> None:
    data = digits_with_swapped_labels(2)
    notes = first_round(ct.fedclust(threshold="gap", warmup_epochs=10), data, 2).rows[0]["notes"]
    line = notes["grouping"]
    assert line.startswith("one group found: the largest gap between merges is ")
    assert "but 10 % is needed" in line
    below = float(line.rpartition(" ")[2])
    # lambda is a ninth above the last distance, since a newcomer there would open a gap.
    assert below == pytest.approx(0.9 * notes["threshold"], rel=1e-3)
    finer = first_round(ct.fedclust(threshold=0.99 * below, warmup_epochs=10), data, 2)
    assert len(set(finer.groups.tolist())) > 1
    assert "grouping" not in finer.rows[0]["notes"]


def test_nothing_is_explained_where_a_gap_was_found_or_a_number_given() -> None:
    for method in (ct.fedclust(), ct.fedclust(groups=1), ct.fedclust(threshold=99.0)):
        assert "grouping" not in Run(method, two_classes_each()).step([0, 1])

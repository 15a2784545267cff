"""RFedAvg: thresholds, weights within and across clusters, and clients that lie or stay silent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.algorithms.rfedavg import (
    ReclusterKMeans,
    by_balance,
    by_imbalance,
)
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.round import Round
from coterie.clients.validation import ReplyValidator
from coterie.core.describe import Describe
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.updates import Updates
from coterie.core.work import Score, Work
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.math.imbalance import adaptive_threshold, reciprocal
from coterie.rules.cluster_queries import ClusterMemory
from coterie.runs.loop import RoundResult
from tests.conftest import assert_near, blobs, remembered, small_net
from tests.faults import Faults
from tests.refusals import refuses
from tests.simulations import ONE_EPOCH, play, simulated, uniform

# Every round, five of twelve clients are asked.
ASKED = 5
HISTOGRAMS = np.array([[30, 0, 0], [20, 5, 0], [0, 40, 0], [0, 0, 10]], float)
RULES = ["rfedavg", "rfedavg_kmeans", "rfedavg_optimal"]


def test_a_cluster_that_holds_everything_is_guarded() -> None:
    assert reciprocal(np.array([0.0]), 100.0).tolist() == [1.0]
    whole: dict[str, Any] = {
        "cluster": np.zeros(5, np.int64),
        "imbalance": np.full(5, -1.0),
        "size": np.full(5, 20.0),
        "total": 60.0,
    }
    # Its weight is 1, whatever stands for I_C.
    assert ClusterMemory(**whole).guarded(np.arange(3)) == 0
    two = whole | {"cluster": np.array([0, 0, 0, 1, -1])}
    assert ClusterMemory(**two).guarded(np.arange(4)) == 1
    assert reciprocal(np.array([-40.0, 1e7]), 2e6).tolist() == pytest.approx(
        [1 / (1 + 2e-7), 1 - 1 / (1 + 2e-7)]
    )


def memory(**named: Any) -> Groups:
    groups = Groups(torch.zeros(1, 2), np.zeros(5, np.int64))
    return groups.remember(ClusterMemory(**named))


UPDATES = Updates(
    np.array([0, 1, 2, 4]),
    np.zeros(4, np.int64),
    torch.eye(4, 2),
    HISTOGRAMS.sum(axis=1),
    np.zeros(4),
)
LABELS = np.array([0, 0, 1, -1, 2])
ROUND = Round(
    0, Key(7), UPDATES.ids, Clients(SerialEngine(LocalRunner(blobs(), small_net(), ONE_EPOCH)))
)


def run(method: ct.Method, faults: Faults | None = None) -> list[RoundResult]:
    return play(method, sampler=uniform(blobs(), ASKED), faults=faults)


def test_weights_inside_and_across_clusters() -> None:
    level = np.array([75.0, 80.0, 75.0, -1.0, 95.0])
    groups = memory(
        cluster=LABELS, imbalance=level, total=105.0, size=np.array([30.0, 25, 40, 0, 10])
    )
    expected = np.array([30 / 55, 25 / 55, 1, 1]) * np.array([0.456, 0.456, 0.304, 0.24])
    np.testing.assert_allclose(by_imbalance(groups, UPDATES, ROUND)[0], expected, atol=1e-6)
    assert remembered(groups, ClusterMemory).guarded(UPDATES.ids) == 0
    known = np.insert(HISTOGRAMS, 3, 0, axis=0)
    expected = np.array([30 / 55, 25 / 55, 1, 1]) * np.array([0.366667, 0.366667, 0.3, 0.333333])
    np.testing.assert_allclose(
        by_balance(memory(cluster=LABELS, histogram=known), UPDATES, ROUND)[0], expected, atol=1e-6
    )


def test_what_a_client_claims_moves_its_weight_no_farther_than_its_size_allows() -> None:
    """``D - D_k <= I_k <= D + D_k``: a claim outside counts as the nearest that is possible,
    silence as the least."""
    size = np.array([30.0, 25, 40, 0, 10])
    least, most, lies, silent = (
        memory(cluster=LABELS, imbalance=np.array([75.0, 80, 75, -1, x]), total=105.0, size=size)
        for x in (95.0, 115.0, 1e14, -1.0)
    )
    lies, most, silent, least = (
        by_imbalance(groups, UPDATES, ROUND).tolist() for groups in (lies, most, silent, least)
    )
    assert lies == most
    assert silent == least


def test_one_cluster_is_fedavg() -> None:
    for a, b in zip(run(ct.fedavg()), run(ALGORITHMS["rfedavg_kmeans"](clusters=1)), strict=True):
        assert torch.equal(a.groups.models, b.groups.models)


def test_as_many_clusters_as_replies_at_most() -> None:
    recluster = ReclusterKMeans(10, unit=True)
    found = []
    for replies in (2, 0):
        groups, _ = recluster(memory(), UPDATES.first(replies), ROUND)
        kept = remembered(groups, ClusterMemory)
        assert kept.cluster is not None
        found.append(kept.cluster.tolist())
    assert found == [[0, 1, -1, -1, -1], [-1] * 5]


@pytest.mark.parametrize("name", RULES)
def test_one_gradient_is_one_full_batch_step_of_the_epochs_form(name: str) -> None:
    """``g = (w - w_k) / eta`` after one full-batch step is the gradient, so both forms make the
    same model."""
    population = blobs()
    exact, epochs = (
        ct.run(
            ALGORITHMS[name](**options),
            data=population,
            model=small_net(),
            local=local,
            rounds=3,
            engine="serial",
        )
        for options, local in (
            ({"gradient": "one", "eta": 0.1}, ct.Solver(epochs=7, batch_size=3, lr=0.9)),
            ({"gradient": "epochs"}, ct.Solver(epochs=1, batch_size=10**6, lr=0.1)),
        )
    )
    assert_near(exact.state.models, epochs.state.models, within=1e-5)


def test_what_a_round_tells_of_its_threshold() -> None:
    rows = [result.row["notes"] for result in run(ALGORITHMS["rfedavg"](l_star=0.1))]
    first = rows[0]["loss_before"]
    for notes in rows:
        assert notes["loss_first"] == first
        assert notes["threshold"] == adaptive_threshold(notes["loss_before"], first, 0.1)
    assert rows[0]["threshold"] == pytest.approx(math.cos(math.pi / 36))
    smooth = [r.row["notes"]["loss_before"] for r in run(ALGORITHMS["rfedavg"](ema=0.9))]
    assert max(abs(np.diff(smooth))) < max(abs(np.diff([n["loss_before"] for n in rows])))


def test_samples_are_counted_over_everybody_or_the_scheduled() -> None:
    every, some = (run(ALGORITHMS["rfedavg"](d_scope=scope)) for scope in ("all", "scheduled"))
    assert {r.row["notes"]["total"] for r in every} == {float(blobs().sizes("train").sum())}
    assert len({r.row["notes"]["total"] for r in some}) > 1
    sizes = [b.clients for r in every for b in r.blocks if b.what == "sizes" and b.up]
    assert np.concatenate(sizes).tolist() == list(range(12))  # once each


def test_models_go_down_once_a_round_and_numbers_cost_no_model() -> None:
    for result in run(ALGORITHMS["rfedavg"]()):
        assert result.row["transfers"]["models"] == 2 * ASKED


@pytest.mark.parametrize("name", RULES)
def test_clients_that_never_answer_or_lie_do_no_harm(name: str) -> None:
    for faults in (
        Faults(lose=0.9),
        Faults(hostile=dict.fromkeys(range(12), "zeros")),
        Faults(corrupt=0.6),
    ):
        assert all(torch.isfinite(r.groups.models).all() for r in run(ALGORITHMS[name](), faults))


class Boaster:
    """Client 4 claims endless samples of everything."""

    def __init__(self, engine: SerialEngine) -> None:
        self.engine = engine

    def run(
        self, work: Work, ids: np.ndarray, models: torch.Tensor, which: np.ndarray, *, key: Key
    ) -> list[Reply]:
        (reply,) = self.engine.run(work, ids, models, which, key=key)
        if isinstance(work, Describe):
            reply.fields[work.statistic][ids == 4] = 1e14
        return [reply]

    def set_population(self, population: ct.Population) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


@pytest.mark.parametrize("name", RULES)
def test_endless_claims_stop_at_the_cap(name: str) -> None:
    population = blobs()
    engine = Boaster(SerialEngine(LocalRunner(population, small_net(), ONE_EPOCH)))
    clients = Clients(engine, ReplyValidator(cap=100.0), shape=ModelShape(4))
    method = ALGORITHMS[name]()
    *_, last = simulated(method, population, clients, uniform(population, 12), 2)
    assert torch.isfinite(last.groups.models).all()
    kept = remembered(last.groups, ClusterMemory)
    claimed = [claims for claims in (kept.size, kept.histogram) if claims is not None]
    assert len(claimed) == 1
    assert claimed[0].max() <= 100


class Fabulist(Boaster):
    """From some round on, client 4 claims a loss that cannot be."""

    def __init__(self, engine: SerialEngine, claim: float, begin: int) -> None:
        super().__init__(engine)
        self.claim = claim
        self.begin = begin

    def run(
        self, work: Work, ids: np.ndarray, models: torch.Tensor, which: np.ndarray, *, key: Key
    ) -> list[Reply]:
        (reply,) = self.engine.run(work, ids, models, which, key=key)
        if isinstance(work, Score) and work.split == "train" and key.round >= self.begin:
            reply.fields["loss"][ids == 4] = self.claim
        return [reply]


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("claim", [-1e15, 1e15])
def test_one_that_lies_about_its_loss_moves_the_threshold_by_its_share_only(
    claim: float, begin: int
) -> None:
    population = blobs()
    serial = SerialEngine(LocalRunner(population, small_net(), ONE_EPOCH))
    notes = []
    for engine in (serial, Fabulist(serial, claim, begin)):
        clients = Clients(engine, shape=ModelShape(4))
        *_, last = simulated(ct.rfedavg(), population, clients, lambda t: np.arange(12), begin + 1)
        notes.append(last.row["notes"])
    honest, lied = notes
    share = population.sizes("train")[4] / population.sizes("train").sum()
    assert abs(lied["loss_before"] - honest["loss_before"]) <= 2.5 * honest["loss_first"] * share
    assert lied["loss_first"] <= 1.3 * honest["loss_first"]


def test_a_configuration_names_all_of_it(tmp_path: Path) -> None:
    from coterie.experiment import check
    from coterie.runs.run import run_config

    tables = {
        "data": {
            "source": "digits",
            "partition": {"kind": "rfedavg", "clients": 12, "classes_per_client": 2},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "engine": {"name": "serial"},
        "train": {"rounds": 2, "clients_per_round": 6, "measures": ["balance"]},
        "algorithm": {"name": "rfedavg", "l_star": 0.2, "privacy": "discrete_laplace"},
    }
    run_config(check(tables), tmp_path / "run")
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    ]
    assert [row["balance"]["clusters"] >= 1 for row in rows] == [True, True]
    with refuses(ct.ConfigError, "out-of-range", "algorithm.theta"):
        check(tables | {"algorithm": {"name": "rfedavg", "theta": 2.0}})

"""RFedAvg: thresholds, clusters, weights, the benchmarks, its data, and what a run measures of
balance."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.algorithms.rfedavg import (
    ClusterMemory,
    ReclusterKMeans,
    by_balance,
    by_imbalance,
    guarded,
)
from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.clients.validation import ReplyValidator
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.updates import Updates
from coterie.core.work import Describe, Evaluate, Work
from coterie.data import make_partition, populate
from coterie.data.samples import Samples
from coterie.engines import Faults, FaultyEngine, SerialEngine
from coterie.local import LocalRunner
from coterie.math.ccs import adaptive_threshold, ccs
from coterie.math.imbalance import balancing, class_shares, cluster_imbalance, reciprocal
from coterie.math.similarity import cosine
from coterie.measures.optional import make_measures
from coterie.measures.view import Measure
from coterie.methods.algorithm import as_algorithm
from coterie.models import initial_models
from coterie.runs.cohort import Sampler
from coterie.runs.loop import Evaluation, simulate
from tests.conftest import blobs, small_net

SOLVER = ct.Solver(epochs=1, batch_size=5, lr=0.1)
HISTOGRAMS = np.array([[30, 0, 0], [20, 5, 0], [0, 40, 0], [0, 0, 10]], float)
RULES = ["rfedavg", "rfedavg_kmeans", "rfedavg_optimal"]
counts = arrays(
    np.int64, st.tuples(st.integers(1, 8), st.integers(2, 6)), elements=st.integers(0, 60)
)


def imbalance(histograms: np.ndarray, total: float) -> np.ndarray:
    return np.abs(total / histograms.shape[1] - histograms).sum(axis=1)


@given(st.integers(1, 12), st.floats(-1, 1), st.integers(0, 2**32 - 1))
def test_ccs_is_a_partition_whose_pivots_are_near_to_all(
    n: int, threshold: float, seed: int
) -> None:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, 3)))
    rows[seed % n] = 0  # a zero update is similar to nobody, itself included
    similarity = cosine(rows, rows)
    cluster = ccs(similarity, threshold)
    similarity[seed % n] = similarity[:, seed % n] = -2
    near = (similarity >= threshold - 1e-9) | np.eye(n, dtype=bool)
    assert sorted(set(cluster.tolist())) == list(range(cluster.max() + 1))
    sizes = np.bincount(cluster)
    assert (np.diff(sizes) <= 0).all()
    for c in range(len(sizes)):
        mine = np.flatnonzero(cluster == c)
        assert near[np.ix_(mine, mine)].all(axis=1).any()


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_an_update_of_zeros_is_a_cluster_of_its_own(threshold: float) -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    assert ccs(cosine(rows, rows), threshold).tolist() == [0, 1, 2, 3]


def test_of_two_pivots_with_as_many_neighbours_the_smaller_number_goes_first() -> None:
    similarity = np.eye(4)
    similarity[2, 3] = similarity[3, 2] = similarity[0, 1] = similarity[1, 0] = 1.0
    assert ccs(similarity, 0.5).tolist() == [0, 0, 1, 1]
    line = np.eye(3)
    line[0, 1] = line[1, 0] = line[1, 2] = line[2, 1] = 1.0
    assert ccs(line, 0.5).tolist() == [0, 0, 0]


@given(counts, st.data())
def test_imbalance_of_a_cluster_is_at_least_what_is_outside_of_it(
    histograms: np.ndarray, data: st.DataObject
) -> None:
    """``I_C >= D - D_C >= 0`` whatever the data, and the weights are a point of the simplex
    (P15)."""
    histograms[:, 0] += 1
    size = histograms.sum(axis=1).astype(float)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=len(size), max_size=len(size)))
    cluster = np.unique(drawn, return_inverse=True)[1]
    found = cluster_imbalance(imbalance(histograms, size.sum()), size, cluster)
    outside = size.sum() - np.bincount(cluster, size)
    assert (found >= outside - 1e-6).all()
    for p in (reciprocal(found, size.sum()), balancing(class_shares(histograms, cluster))):
        assert (p >= 0).all()
        assert p.sum() == pytest.approx(1)


@given(counts)
def test_balancing_is_as_good_as_slsqp(histograms: np.ndarray) -> None:
    histograms[:, 0] += 1
    shares = class_shares(histograms, np.arange(len(histograms)))

    def objective(p: np.ndarray) -> float:
        return float(((shares @ p - 1 / len(shares)) ** 2).sum() + 1e-8 * (p**2).sum())

    n = shares.shape[1]
    other = minimize(
        objective,
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert objective(balancing(shares)) <= other.fun + 1e-9


def test_balancing_is_what_a_convex_solver_finds() -> None:
    cvxpy = pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    rng = np.random.default_rng(3)
    for clusters in (3, 8, 25):
        shares = rng.dirichlet(np.full(10, 0.3), clusters).T
        p = cvxpy.Variable(clusters)
        goal = cvxpy.sum_squares(shares @ p - 0.1) + 1e-8 * cvxpy.sum_squares(p)
        best = cvxpy.Problem(cvxpy.Minimize(goal), [p >= 0, cvxpy.sum(p) == 1]).solve(
            solver=cvxpy.CLARABEL
        )
        ours = balancing(shares)
        assert float(((shares @ ours - 0.1) ** 2).sum() + 1e-8 * (ours**2).sum()) == pytest.approx(
            best, abs=1e-7
        )


def test_a_cluster_that_holds_everything_is_guarded() -> None:
    assert reciprocal(np.array([0.0]), 100.0).tolist() == [1.0]
    whole: dict[str, Any] = {
        "cluster": np.zeros(5, np.int64),
        "imbalance": np.full(5, -1.0),
        "size": np.full(5, 20.0),
        "total": 60.0,
    }
    assert (
        guarded(ClusterMemory(**whole), np.arange(3)) == 0
    )  # its weight is 1, whatever stands for I_C
    two = whole | {"cluster": np.array([0, 0, 0, 1, -1])}
    assert guarded(ClusterMemory(**two), np.arange(4)) == 1
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
    0, Key(7), UPDATES.ids, Clients(SerialEngine(LocalRunner(blobs(), small_net(), SOLVER)))
)


def test_weights_inside_and_across_clusters() -> None:
    level = np.array([75.0, 80.0, 75.0, -1.0, 95.0])
    groups = memory(
        cluster=LABELS, imbalance=level, total=105.0, size=np.array([30.0, 25, 40, 0, 10])
    )
    expected = np.array([30 / 55, 25 / 55, 1, 1]) * np.array([0.456, 0.456, 0.304, 0.24])
    np.testing.assert_allclose(by_imbalance(groups, UPDATES, ROUND)[0], expected, atol=1e-6)
    found = groups.memory.get(ClusterMemory)
    assert found is not None
    assert guarded(found, UPDATES.ids) == 0
    told = np.insert(HISTOGRAMS, 3, 0, axis=0)
    expected = np.array([30 / 55, 25 / 55, 1, 1]) * np.array([0.366667, 0.366667, 0.3, 0.333333])
    np.testing.assert_allclose(
        by_balance(memory(cluster=LABELS, histogram=told), UPDATES, ROUND)[0], expected, atol=1e-6
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


def test_clusters_of_which_nobody_told_its_histogram_are_like_all_others() -> None:
    shares = class_shares(np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([0, 1]))
    assert shares.T.tolist() == [[0.75, 0.25], [0.75, 0.25]]
    assert class_shares(np.zeros((2, 2)), np.array([0, 1])).T.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def states(
    method: ct.Method, faults: Faults | None = None, measures: Sequence[Measure] = ()
) -> list:
    population = blobs()
    net = small_net()
    key = Key(3)
    engine = SerialEngine(LocalRunner(population, net, SOLVER))
    sampler = Sampler("uniform", np.arange(12), 5, key)
    with Clients(FaultyEngine(engine, faults) if faults else engine, classes=4) as door:
        return list(
            simulate(
                as_algorithm(method),
                door,
                population,
                initial_models(net, key),
                sampler,
                4,
                key,
                evaluation=Evaluation(measures=measures),
            )
        )


def test_one_cluster_is_fedavg() -> None:
    for a, b in zip(
        states(ct.fedavg()), states(ALGORITHMS["rfedavg_kmeans"](clusters=1)), strict=True
    ):
        assert torch.equal(a.groups.models, b.groups.models)


def test_as_many_clusters_as_replies_at_most() -> None:
    recluster = ReclusterKMeans(10, unit=True)
    found = []
    for replies in (2, 0):
        groups, _ = recluster(memory(), UPDATES.first(replies), ROUND)
        kept = groups.memory.get(ClusterMemory)
        assert kept is not None
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
    assert torch.allclose(exact.state.models, epochs.state.models, atol=1e-6)


def test_what_a_round_tells_of_its_threshold() -> None:
    rows = [result.row["notes"] for result in states(ALGORITHMS["rfedavg"](l_star=0.1))]
    first = rows[0]["loss_before"]
    for notes in rows:
        assert notes["loss_first"] == first
        assert notes["threshold"] == adaptive_threshold(notes["loss_before"], first, 0.1)
    assert rows[0]["threshold"] == pytest.approx(math.cos(math.pi / 36))
    smooth = [r.row["notes"]["loss_before"] for r in states(ALGORITHMS["rfedavg"](ema=0.9))]
    assert max(abs(np.diff(smooth))) < max(abs(np.diff([n["loss_before"] for n in rows])))


def test_samples_are_counted_over_everybody_or_the_scheduled() -> None:
    every, some = (states(ALGORITHMS["rfedavg"](d_scope=scope)) for scope in ("all", "scheduled"))
    assert {r.row["notes"]["total"] for r in every} == {float(blobs().sizes("train").sum())}
    assert len({r.row["notes"]["total"] for r in some}) > 1
    sizes = [b.clients for r in every for b in r.blocks if b.what == "sizes" and b.up]
    assert np.concatenate(sizes).tolist() == list(range(12))  # once each


def test_models_go_down_once_a_round_and_numbers_cost_no_model() -> None:
    for result in states(ALGORITHMS["rfedavg"]()):
        assert result.row["transfers"]["models"] == 2 * 5


@pytest.mark.parametrize("name", RULES)
def test_clients_that_never_answer_or_lie_do_no_harm(name: str) -> None:
    for faults in (
        Faults(lose=0.9),
        Faults(hostile=dict.fromkeys(range(12), "zeros")),
        Faults(corrupt=0.6),
    ):
        assert all(
            torch.isfinite(r.groups.models).all() for r in states(ALGORITHMS[name](), faults)
        )


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
    net = small_net()
    key = Key(3)
    engine = Boaster(SerialEngine(LocalRunner(population, net, SOLVER)))
    with Clients(engine, ReplyValidator(cap=100.0), classes=4) as door:
        sampler = Sampler("uniform", np.arange(12), 12, key)
        *_, last = simulate(
            as_algorithm(ALGORITHMS[name]()),
            door,
            population,
            initial_models(net, key),
            sampler,
            2,
            key,
        )
    assert torch.isfinite(last.groups.models).all()
    kept = last.groups.memory.get(ClusterMemory)
    assert kept is not None
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
        if isinstance(work, Evaluate) and work.split == "train" and key.round >= self.begin:
            reply.fields["loss"][ids == 4] = self.claim
        return [reply]


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("claim", [-1e15, 1e15])
def test_one_that_lies_about_its_loss_moves_the_threshold_by_its_share_only(
    claim: float, begin: int
) -> None:
    population = blobs()
    net = small_net()
    key = Key(3)
    losses = []
    for engine in (SerialEngine(LocalRunner(population, net, SOLVER)), None):
        engine = engine or Fabulist(
            SerialEngine(LocalRunner(population, net, SOLVER)), claim, begin
        )
        with Clients(engine, classes=4) as door:
            played = simulate(
                as_algorithm(ct.rfedavg()),
                door,
                population,
                initial_models(net, key),
                lambda t: np.arange(12),
                begin + 1,
                key,
            )
            losses.append(list(played)[-1].row["notes"])
    honest, lied = losses
    share = population.sizes("train")[4] / population.sizes("train").sum()
    assert abs(lied["loss_before"] - honest["loss_before"]) <= 2.5 * honest["loss_first"] * share
    assert lied["loss_first"] <= 1.3 * honest["loss_first"]


@pytest.mark.parametrize("name", RULES)
def test_balance_is_measured(name: str) -> None:
    method = ALGORITHMS[name]()
    for result in states(method, measures=make_measures(("balance",), SOLVER, {})):
        found = result.row["balance"]
        assert sum(found["weighted"]["b"]) == pytest.approx(1)
        assert found["all"]["beta"] >= 1
        assert 1 <= found["clusters"] <= 5
    if name == "rfedavg_optimal":
        assert found["weighted"]["distance"] <= found["plain"]["distance"] + 1e-9


def test_balance_of_plain_averaging_is_that_of_the_data() -> None:
    for result in states(ct.fedavg(), measures=make_measures(("balance",), SOLVER, {})):
        found = result.row["balance"]
        assert found["weighted"]["b"] == pytest.approx(found["plain"]["b"])
        assert "clusters" not in found
    with Clients(
        FaultyEngine(SerialEngine(LocalRunner(blobs(), small_net(), SOLVER)), Faults(lose=1.0)),
        classes=4,
    ) as door:
        lost = simulate(
            as_algorithm(ct.fedavg()),
            door,
            blobs(),
            initial_models(small_net(), Key(3)),
            Sampler("uniform", np.arange(12), 5, Key(3)),
            1,
            Key(3),
            evaluation=Evaluation(measures=make_measures(("balance",), SOLVER, {})),
        )
        assert next(lost).row["balance"] is None


# --- the data -------------------------------------------------------------------------------------


def samples(per_class: int = 200, test: int = 35) -> Samples:
    y = np.concatenate([np.repeat(np.arange(10), per_class), np.repeat(np.arange(10), test)])
    return Samples(torch.zeros(len(y), 1), torch.from_numpy(y), 10, 10 * per_class)


@pytest.mark.parametrize("each", [10, 5, 2, 1])
def test_devices_hold_so_many_classes_and_one_of_them_most(each: int) -> None:
    pool = samples()
    population = populate(
        pool, make_partition(pool, {"kind": "rfedavg", "classes_per_client": each}, Key(4))
    )
    histograms = population.histograms()
    assert population.clients == 100
    assert ((histograms > 0).sum(axis=1) == each).all()
    assert histograms.max() <= 100
    assert all(len(np.unique(rows)) == len(rows) for rows in population.train)
    top = np.bincount(histograms.argmax(axis=1), minlength=10)
    assert top[3:7].sum() > top[[0, 1, 8, 9]].sum()


def test_every_test_sample_is_dealt_once_and_evenly() -> None:
    pool = samples()
    parts = make_partition(pool, {"kind": "rfedavg", "clients": 40}, Key(4))
    assert np.sort(np.concatenate(parts.test)).tolist() == list(range(2000, 2350))
    assert {len(rows) for rows in parts.test} == {8, 9}


def test_a_class_that_runs_out_is_read_again() -> None:
    pool = samples(per_class=100)
    parts = make_partition(pool, {"kind": "rfedavg", "clients": 60}, Key(4))
    used = np.bincount(np.concatenate(parts.train), minlength=1000)
    spread = used.reshape(-1)[:1000].reshape(10, 100)
    assert used.max() > 1
    assert (
        (spread.max(axis=1) - spread.min(axis=1)) <= 1
    ).all()  # nobody's second time before everybody's first
    with pytest.raises(ct.DataError, match="expected at most 90"):
        make_partition(samples(per_class=90), {"kind": "rfedavg"}, Key(4))


def test_clipping_piles_up_at_the_ends() -> None:
    pool = samples()
    ends = []
    for truncation in ("rejection", "clip"):
        partition = {
            "kind": "rfedavg",
            "clients": 400,
            "classes_per_client": 1,
            "truncation": truncation,
        }
        held = populate(pool, make_partition(pool, partition, Key(4))).histograms().argmax(axis=1)
        ends.append(np.isin(held, [0, 9]).sum())
    assert ends[1] > 1.3 * ends[0]


@pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="COTERIE_DATA is not set: no real MNIST"
)
def test_real_mnist_is_as_unbalanced_as_the_recipe_says() -> None:
    from coterie.measures.optional import evenness

    data = ct.load("mnist", partition={"kind": "rfedavg", "classes_per_client": 1})
    assert sum(map(len, data.test)) == 10_000
    assert 3 < evenness(data.histograms().sum(axis=0))["beta"] < 20


def test_a_configuration_names_all_of_it(tmp_path: Path) -> None:
    from coterie.config import check
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
    with pytest.raises(ct.ConfigError, match="theta"):
        check(tables | {"algorithm": {"name": "rfedavg", "theta": 2.0}})

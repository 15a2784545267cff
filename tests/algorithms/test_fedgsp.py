"""FedGSP and its naive form: groups that grow, chains, and what clients are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.data.shifts import make_shift
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.math.balanced import groups_sampled
from coterie.models import initial_models
from coterie.rules.assigning import everyone
from coterie.rules.chains import HistogramMemory
from coterie.rules.migration import Migration
from coterie.rules.weighing import evenly
from tests.conftest import blobs, remembered, small_net
from tests.faults import Faults
from tests.simulations import ONE_EPOCH, plans, play, simulated


def reported_histograms(groups: Groups) -> np.ndarray:
    """The histograms that the server keeps."""
    histogram = remembered(groups, HistogramMemory).histogram
    assert histogram.dtype == np.float64
    return histogram


def test_groups_grow_and_a_share_of_them_trains() -> None:
    seen = plans(ct.fedgsp(growth="linear", alpha=1.0, beta=2, kappa=0.5), blobs(clients=14))
    assert (
        [len(np.unique(plan.chain)) for plan in seen]
        == [groups_sampled(0.5, m) for m in (2, 4, 6, 8)]
        == [1, 2, 3, 4]
    )
    assert [plan.notes["groups"] for plan in seen] == [2, 4, 6, 8]
    assert [plan.notes["idle"] for plan in seen] == [0, 2, 2, 6]
    assert [plan.notes["newcomers"] for plan in seen] == [14, 0, 0, 0]
    for plan in seen:
        assert len(set(plan.ids.tolist())) == len(plan.ids)
        assert len(set(np.bincount(plan.chain)[np.unique(plan.chain)])) == 1


def test_one_group_per_client_is_uniform_fedavg() -> None:
    """``f = K``: every group one client, ``kappa K`` of them; as FedAvg on the same clients,
    weighed evenly."""
    sequential = ct.fedgsp(growth="linear", alpha=1.0, beta=99, kappa=0.5)
    drawn = [np.sort(plan.ids) for plan in plans(sequential)]
    assert [len(ids) for ids in drawn] == [6] * 4
    ours = play(sequential)
    evenly_weighed = ct.Method(assign=everyone, weigh=evenly)
    theirs = play(evenly_weighed, sampler=lambda t: drawn[t])
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)
        assert a.row["accuracy"] == b.row["accuracy"]


def test_one_group_is_one_long_chain() -> None:
    """``M = 1``: clients train one after another, and the last model is the new one."""
    (plan,) = plans(ct.fedgsp(beta=1), rounds=1)
    assert len(plan.ids) == 12
    (result,) = play(ct.fedgsp(beta=1), rounds=1)
    population = blobs()
    net = small_net()
    runner = LocalRunner(population, net, ONE_EPOCH)
    model = initial_models(net, Key(3))(0)
    for place, id in enumerate(plan.ids.tolist()):
        key = Key(3).at(0).of("train")
        delta = torch.empty_like(model)
        runner.train(
            ct.Train(ct.fedavg().local.objective),
            id,
            model,
            delta,
            key.of(str(place)) if place else key,
        )
        model = model + delta
    torch.testing.assert_close(result.groups.models[0], model, atol=1e-6, rtol=1e-5)


def test_the_mean_is_over_the_groups_that_trained() -> None:
    """Erratum P12: dividing by f(r) instead of the sampled groups would shrink the model every
    round."""
    (result,) = play(
        ct.fedgsp(beta=4, kappa=0.5),
        rounds=1,
        measures=[lambda view: {"weights": view.notes["weights"]}],
    )
    assert result.row["notes"]["groups"] == 4
    assert result.row["weights"].tolist() == [[0.5, 0.5]]


def test_order_is_shuffled_every_round_and_groups_are_new() -> None:
    seen = plans(ct.fedgsp(growth="linear", alpha=1e-9, beta=2, kappa=1.0))
    assert len({tuple(plan.ids.tolist()) for plan in seen}) == 4
    assert len({tuple(plan.chain[np.argsort(plan.ids)].tolist()) for plan in seen}) > 1


def test_naive_groups_and_their_order_never_change() -> None:
    for icg in (False, True):
        seen = plans(ct.naive_gsp(groups=3, kappa=1.0, icg=icg))
        assert len({(tuple(plan.ids.tolist()), tuple(plan.chain.tolist())) for plan in seen}) == 1
        assert np.bincount(seen[0].chain).tolist() == [4, 4, 4]
        drawn = plans(ct.naive_gsp(groups=6, kappa=0.3, icg=icg))
        assert {len(np.unique(plan.chain)) for plan in drawn} == {2}
        assert len({tuple(np.unique(plan.chain)) for plan in drawn}) > 1


def test_more_groups_than_clients_are_as_many_as_clients() -> None:
    for method in (ct.naive_gsp(groups=99, kappa=1.0), ct.fedgsp(beta=99, kappa=1.0)):
        assert len(np.unique(plans(method, rounds=1)[0].chain)) == 12


def test_newcomers_open_the_groups_that_the_first_round_had_no_clients_for() -> None:
    shift = make_shift([{"kind": "arrivals", "round": 1, "count": 6, "waves": 1}])
    seen = plans(ct.naive_gsp(groups=8, kappa=1.0), rounds=3, shift=shift)
    assert [len(np.unique(plan.chain)) for plan in seen] == [6, 8, 8]
    assert sorted(np.bincount(seen[-1].chain).tolist()) == [1, 1, 1, 1, 2, 2, 2, 2]


def test_histograms_are_asked_for_once() -> None:
    rows = [result.row for result in play(ct.fedgsp(beta=3))]
    assert [row["newcomers"] for row in rows] == [12, 0, 0, 0]
    results = play(ct.fedgsp(beta=3))
    described = [
        sum(len(b.clients) for b in r.blocks if b.what == "describe" and b.up) for r in results
    ]
    assert described == [12, 0, 0, 0]
    trained = [len(plan.ids) for plan in plans(ct.fedgsp(beta=3))]
    assert [row["transfers"]["models"] for row in rows] == [
        2 * n for n in trained
    ]  # D_comm, eq. 17
    sent = [sum(int(b.models.sum()) for b in r.blocks if b.what == "describe") for r in results]
    assert sent == [0, 0, 0, 0]
    assert np.array_equal(reported_histograms(results[0].groups), blobs().histograms())


@pytest.mark.parametrize(
    "make", [lambda: ct.fedgsp(beta=3), lambda: ct.naive_gsp(3), lambda: ct.naive_gsp(3, icg=True)]
)
def test_clients_that_come_later_are_taken_in_and_those_that_left_are_not_asked(make: Any) -> None:
    shift = make_shift(
        [
            {"kind": "arrivals", "round": 1, "count": 3, "waves": 3},
            {"kind": "departures", "round": 2, "count": 4},
        ]
    )
    population = blobs(clients=20)
    results = play(make(), population, rounds=6, shift=shift)
    assert (
        sum(result.row["newcomers"] for result in results)
        == results[-1].row["clients_assigned"]
        > 15
    )
    for result, plan in zip(results, plans(make(), population, rounds=6, shift=shift), strict=True):
        assert result.snapshot.present[plan.ids].all()


def test_drifted_clients_are_described_anew() -> None:
    shift = make_shift([{"kind": "swap_all", "p": 1.0}])
    results = play(ct.fedgsp(beta=3, migration=Migration("per_label", 0.01)), shift=shift)
    assert results[-1].row["drifted"] > 0
    now = results[-1].snapshot.population.histograms()
    assert np.array_equal(reported_histograms(results[-1].groups), now)
    stale = play(ct.fedgsp(beta=3), shift=shift)[-1]
    assert not np.array_equal(reported_histograms(stale.groups), now)


def test_a_chain_goes_on_without_the_client_that_was_lost() -> None:
    hostile = Faults(hostile={3: "nan", 7: "shape"})
    results = play(ct.fedgsp(beta=2, kappa=1.0), faults=hostile)
    assert all(not result.row["skipped"] for result in results)
    assert all(result.row["refused"] for result in results)
    assert torch.isfinite(results[-1].groups.models).all()


def test_hostile_histograms_do_no_harm() -> None:
    """Negative, huge: clipped, and scaled to what the others report, so that ICG still
    separates honest clients."""
    population = blobs()
    honest = population.histograms().astype(np.float64)

    class Liar(SerialEngine):
        def run(self, work: Any, ids: Any, models: Any, which: Any, *, key: Any) -> Any:
            replies = super().run(work, ids, models, which, key=key)
            for reply in replies:
                if "histogram" in reply.fields:
                    reply.fields["histogram"][::3] = -5
                    reply.fields["histogram"][1::3] = 1e14
            return replies

    clients = Clients(Liar(LocalRunner(population, small_net(), ONE_EPOCH)), shape=ModelShape(4))
    *_, last = simulated(ct.fedgsp(beta=3), population, clients, lambda t: np.arange(12), 2)
    kept = reported_histograms(last.groups)
    assert kept.min() >= 0
    assert kept.sum(axis=1).max() <= 100 * honest.sum(axis=1).max()
    assert np.array_equal(kept[2::3], honest[2::3])
    assert torch.isfinite(last.groups.models).all()

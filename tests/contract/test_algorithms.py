"""One contract for every algorithm: what must hold whatever the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.clients.clients import Clients, ClientStores, ModelShape
from coterie.clients.cohort import Quorum, Sampler
from coterie.core.groups import Groups, Memory
from coterie.core.keep import ClientStore
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.updates import Updates
from coterie.core.vectors import Layout, flatten
from coterie.data.shifts import SHIFTS
from coterie.engines import KeepingEngine, OwnModelEngine, SerialEngine
from coterie.local import LocalRunner
from coterie.methods.algorithm import Algorithm, as_algorithm
from coterie.methods.fit_to_model import fit_to_model
from coterie.methods.override import override
from coterie.models import initial_models
from coterie.objectives import proximal
from coterie.rules.assigning import by_group
from coterie.rules.server import Server, yogi
from coterie.rules.weighing import WeighsAlone, any_weight, weighted_mean
from coterie.runs.loop import StartingPoint, simulate
from coterie.runs.schedule import Schedule
from tests.conftest import blobs, no_round, round_of, same_memory, small_net
from tests.contract.cases import (
    ASK_EVERYTHING,
    FINDS_GROUPS,
    Make,
    contract_cases,
)
from tests.contract.conftest import SOLVER, FindPool
from tests.faults import Faults, FaultyEngine
from tests.quick import METHODS
from tests.refusals import refuses

ROUNDS = 4


def variant(method: ct.Method, server: Server, objective: Objective) -> ct.Method:
    changed = override(method, server=server, objective=objective)
    assert isinstance(changed, ct.Method)
    return changed


CASES: dict[str, Make] = {
    **contract_cases(),
    "ifca-yogi-prox": lambda m: variant(ct.ifca(groups=m), yogi(), proximal(0.1)),
}
every = pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
# What only an engine could do wrong: the other cases are in `make test-all`.
on_workers = [
    pytest.param(name, marks=[] if name in ASK_EVERYTHING else [pytest.mark.slow]) for name in CASES
]


def net_for(algorithm: ct.Method | Algorithm) -> nn.Module:
    """The network as the method's objective needs it."""
    return fit_to_model(algorithm, small_net(), Key(3))[1]


def shape_of(net: nn.Module, population: ct.Population) -> ModelShape:
    """What rules know of a network."""
    return ModelShape(population.classes, 6, Layout.of(net))


def serial_engine(population: ct.Population, net: nn.Module) -> SerialEngine:
    return SerialEngine(LocalRunner(population, net, SOLVER))


def states(
    algorithm: Algorithm,
    population: ct.Population,
    engine: Any,
    quorum: Quorum | None = None,
    start: StartingPoint | None = None,
    rounds: int = ROUNDS,
    stores: tuple[ClientStore, ClientStore] | None = None,
    **options: Any,
) -> list[Any]:
    key = Key(3)
    fitted, net = fit_to_model(algorithm, small_net(), key)
    sampler = Sampler("cover_then_uniform", np.arange(population.clients), 4, key)
    # What clients keep of their models, and what they store for models of their own.
    store, own_models = stores or (ClientStore(), ClientStore())
    shape = shape_of(net, population)
    keeping = KeepingEngine(OwnModelEngine(engine, own_models), store)
    options = {"quorum": quorum or Quorum(), **options}
    with Clients(keeping, shape=shape, stores=ClientStores(store)) as clients:
        return list(
            simulate(
                as_algorithm(fitted),
                clients,
                population,
                initial_models(net, key),
                Schedule(sampler, ct.Training(rounds), key, **options),
                start=start,
            )
        )


def run(method: ct.Method, population: ct.Population | None = None, **options: Any) -> list[Any]:
    population = population or blobs()
    engine = serial_engine(population, net_for(method))
    return states(as_algorithm(method), population, engine, **options)


class Asked(SerialEngine):
    """The serial engine, which writes down what clients are asked."""

    def __init__(self, runner: LocalRunner) -> None:
        super().__init__(runner)
        self.kinds: set[Any] = set()

    def run(self, work: Any, *rest: Any, **options: Any) -> Any:
        self.kinds.add(kind_of(work))
        return super().run(work, *rest, **options)


def kind_of(asked: Any) -> Any:
    """What is asked without its numbers: types, choices, and which options are set."""
    if isinstance(asked, str):
        return asked
    if is_dataclass(asked):
        options = ((one.name, getattr(asked, one.name)) for one in fields(asked))
        given = tuple(
            (name, kind_of(value))
            for name, value in options
            if value is not None and value is not False
        )
        return (type(asked).__name__, *given)
    return type(asked).__name__


@cache
def straight_and_asked(make: Make) -> tuple[list[Any], set[Any]]:
    """The serial run of two groups that most of the contract compares with, and what its clients are
    asked. It is made once: who changes a state makes one of its own."""
    method = make(2)
    population = blobs()
    engine = Asked(LocalRunner(population, net_for(method), SOLVER))
    return states(as_algorithm(method), population, engine), engine.kinds


def straight(make: Make) -> list[Any]:
    return straight_and_asked(make)[0]


def same(a: Groups, b: Groups) -> None:
    assert torch.equal(a.models, b.models)
    assert np.array_equal(a.member, b.member)
    assert same_memory(a, b)
    assert np.array_equal(a.trained, b.trained)  # type: ignore[arg-type]
    assert a.optimiser.keys() == b.optimiser.keys()
    assert all(torch.equal(a.optimiser[name], b.optimiser[name]) for name in a.optimiser)


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


def test_those_on_workers_ask_for_everything_that_any_case_asks() -> None:
    asked = {name: straight_and_asked(make)[1] for name, make in CASES.items()}
    assert set().union(*asked.values()) == set().union(*(asked[name] for name in ASK_EVERYTHING))
    assert set(METHODS) <= set(ASK_EVERYTHING)


@pytest.mark.parametrize(
    ("name", "workers"),
    # Each number with one method of each family.
    [
        *(pytest.param(*one.values, 2, marks=one.marks) for one in on_workers),
        *((name, count) for name in METHODS for count in (1, 4)),
    ],
)
def test_engine_and_number_of_workers_do_not_matter(
    name: str,
    workers: int,
    population: ct.Population,
    lasting_pool: FindPool,
) -> None:
    make = CASES[name]
    method = as_algorithm(make(2))
    pool = states(method, population, lasting_pool(net_for(method), workers))
    for a, b in zip(straight(make), pool, strict=True):
        same(a.groups, b.groups)
        assert timeless(a.row) == timeless(b.row)


@pytest.mark.sampled(12)
@every
def test_same_seed_gives_the_same_bits_in_any_order_of_arrival(make: Make) -> None:
    """A second run, whose replies come in another order and some of them twice."""
    population = blobs()
    method = make(2)
    shuffled = FaultyEngine(
        serial_engine(population, net_for(method)), Faults(shuffle=True, duplicate=0.5)
    )
    results = states(as_algorithm(method), population, shuffled)
    for a, b in zip(straight(make), results, strict=True):
        same(a.groups, b.groups)


def copied(groups: Groups) -> Groups:
    """The same state in other memory."""
    memory = {name: value.clone() for name, value in groups.memory.tensors().items()}
    return replace(
        groups,
        models=groups.models.clone(),
        member=groups.member.copy(),
        optimiser={name: row.clone() for name, row in groups.optimiser.items()},
        memory=Memory(saved=memory),
        trained=None if groups.trained is None else groups.trained.copy(),
    )


@pytest.mark.sampled(12)
@every
def test_a_step_does_not_change_its_input(make: Make) -> None:
    population = blobs()
    key = Key(3)
    fitted, net = fit_to_model(make(2), small_net(), key)
    algorithm = as_algorithm(fitted)
    before = copied(straight(make)[1].groups)
    engine = KeepingEngine(OwnModelEngine(serial_engine(population, net)))
    with Clients(engine, shape=shape_of(net, population)) as clients:
        algorithm.step(before, round_of(clients, [0, 3, 5], key.at(2)))
    same(before, straight(make)[1].groups)


@every
def test_an_empty_cohort_is_a_no_op(make: Make) -> None:
    algorithm = as_algorithm(make(2))
    population = blobs()
    net = net_for(algorithm)
    with Clients(serial_engine(population, net), shape=shape_of(net, population)) as clients:
        state = algorithm.init(initial_models(net, Key(3)), population.clients)
        after, _ = algorithm.step(state, round_of(clients, [], Key(3).at(0)))
    same(state, after)


@every
def test_a_client_that_comes_after_the_end_is_served(make: Make) -> None:
    """An export has a model for clients that no rule knows anything of."""
    groups = straight(make)[-1].groups
    more = replace(groups, member=np.append(groups.member, -1))
    served = as_algorithm(make(2)).serve(more)
    if served.shares is not None:
        # It predicts with all models, and an export has one for each client.
        assert served.shares[-1].sum() == pytest.approx(1.0)
        return
    vector = served.vector(len(groups.member))
    assert vector.shape == groups.models[0].shape
    assert torch.isfinite(vector).all()


@pytest.mark.sampled(12)
@every
def test_lost_late_and_spoilt_replies_stay_harmless(make: Make) -> None:
    population = blobs(clients=16)
    faults = Faults(lose=0.2, delay=0.2, duplicate=0.2, corrupt=0.3)
    engine = FaultyEngine(serial_engine(population, net_for(make(2))), faults)
    results = states(as_algorithm(make(2)), population, engine)
    assert all(torch.isfinite(r.groups.models).all() for r in results)
    assert sum(sum(r.row["refused"].values()) for r in results) > 0


@pytest.mark.sampled(12)
@every
def test_resuming_equals_a_straight_run(make: Make) -> None:
    population = blobs()
    method = make(2)
    whole = straight(make)
    first_half = (ClientStore(), ClientStore())
    run(method, rounds=2, stores=first_half)
    # A checkpoint holds the groups, and what clients keep.
    restored = (ClientStore(), ClientStore())
    for before, after in zip(first_half, restored, strict=True):
        after.restore(before.state())
    resumed = states(
        as_algorithm(method),
        population,
        serial_engine(population, net_for(method)),
        start=StartingPoint(2, whole[1].groups),
        stores=restored,
    )
    for a, b in zip(whole[2:], resumed, strict=True):
        same(a.groups, b.groups)
        assert timeless(a.row) == timeless(b.row)


@every
def test_weights_are_rows_that_sum_to_one_or_nothing(make: Make) -> None:
    method = make(2)
    groups = Groups(torch.zeros(method.groups, 3), np.zeros(5, np.int64))
    updates = Updates(
        np.arange(3),
        np.zeros(3, np.int64),
        torch.zeros(3, 3),
        np.array([1.0, 2.0, 5.0]),
        np.zeros(3),
    )
    weights = method.weigh(groups, updates, no_round())
    assert weights.shape == (method.groups, 3)
    np.testing.assert_allclose(weights.sum(axis=1), [1.0] + [0.0] * (method.groups - 1))


@every
def test_averaging_averages(make: Make) -> None:
    """The mean of three different updates is their mean (a published code kept the first client's
    only), and the server moves no model that nobody trained."""
    method = make(2)
    groups = Groups(torch.zeros(method.groups, 2), np.zeros(5, np.int64))
    delta = torch.tensor([[3.0, 0.0], [0.0, 6.0], [9.0, 3.0]])
    updates = Updates(np.arange(3), np.zeros(3, np.int64), delta, np.full(3, 7.0), np.zeros(3))
    weights = method.weigh(groups, updates, no_round())
    mean = weighted_mean(weights, updates, groups.models)
    expected = [4.0, 3.0] if isinstance(method.weigh, WeighsAlone) else weights[0] @ delta.numpy()
    np.testing.assert_allclose(mean[0], expected, rtol=1e-6)
    moved = method.server(groups, mean, torch.from_numpy(any_weight(weights)))
    assert not torch.equal(moved.models[0], groups.models[0])
    assert torch.equal(moved.models[1:], groups.models[1:])


@every
def test_whoever_trained_has_exactly_one_group(make: Make) -> None:
    for result in straight(make):
        member = result.groups.member
        assert ((member >= -1) & (member < result.groups.k)).all()
        assert result.row["clients_assigned"] == (member >= 0).sum() == sum(result.row["sizes"])
        shares = result.served.shares
        if shares is not None:
            # Clients predict with all models.
            np.testing.assert_allclose(shares.sum(axis=1), 1.0)
            assert np.array_equal(shares[member >= 0].argmax(axis=1), member[member >= 0])
            continue
        mixtures = result.served.mixtures
        if mixtures is not None:
            # Soft groups: the group of a client is the one of which it has the largest share.
            np.testing.assert_allclose(mixtures.sum(axis=1), 1.0)
            grouped = np.flatnonzero(member >= 0)
            largest = mixtures[result.served.row[grouped] - result.groups.k].argmax(axis=1)
            assert np.array_equal(largest, member[grouped])
            continue
        served = by_group(result.groups)
        assert len(served.models) == result.groups.k + 1
        assert ((served.row >= 0) & (served.row <= result.groups.k)).all()
        assert np.array_equal(served.row, result.served.row)
        assert torch.equal(served.models, result.served.models)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FINDS_GROUPS)
@pytest.mark.parametrize("groups", [2, 3])
def test_planted_groups_are_found(name: str, groups: int) -> None:
    population = blobs(clients=12 * groups, groups=groups, size=60, classes=6)
    net = nn.Linear(6, 6)
    key = Key(3)
    sampler = Sampler("cover_then_uniform", np.arange(population.clients), 6, key)
    engine = SerialEngine(LocalRunner(population, net, SOLVER))
    with Clients(engine, shape=shape_of(net, population)) as clients:
        *_, last = simulate(
            as_algorithm(CASES[name](groups)),
            clients,
            population,
            initial_models(net, key),
            Schedule(sampler, ct.Training(2 * groups), key),
        )
    pairs = {(int(a), int(b)) for a, b in zip(population.planted, last.groups.member, strict=True)}
    assert len(pairs) == groups


@pytest.mark.parametrize("make", [ct.fedgroup, ct.fedgrouprox])
def test_one_group_equals_fedavg_after_the_cold_start(make: Callable[..., ct.Method]) -> None:
    proximal = {"mu": 0.0} if make is ct.fedgrouprox else {}
    grouped = run(make(groups=1, alpha=2, group_init="w0", **proximal))
    for a, b in zip(run(ct.fedavg()), grouped, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)


def test_mu_zero_is_the_plain_method_and_mu_pulls_back() -> None:
    for a, b in zip(run(ct.fedavg()), run(ct.fedprox(mu=0.0)), strict=True):
        same(a.groups, b.groups)
    for a, b in zip(
        run(ct.fedgroup(groups=2, alpha=3)),
        run(ct.fedgrouprox(groups=2, alpha=3, mu=0.0)),
        strict=True,
    ):
        same(a.groups, b.groups)
    start = flatten(small_net())
    plain, pulled = (run(ct.fedprox(mu=mu))[0].groups.models[0] for mu in (0.0, 5.0))
    assert (pulled - start).norm() < 0.5 * (plain - start).norm()


def test_hostile_clients_change_nothing() -> None:
    """A run with clients that send rubbish equals the run in which they never answer."""
    population = blobs()
    results = []
    for faults in (
        {1: "nan", 4: "inf", 6: "huge", 7: "shape", 9: "dtype", 10: "endless samples"},
        {1: "keys", 4: "no samples", 6: "keys", 7: "keys", 9: "nan", 10: "keys"},
    ):
        engine = FaultyEngine(serial_engine(population, small_net()), Faults(hostile=faults))
        results.append(states(as_algorithm(ct.fedgroup(groups=2, alpha=4)), population, engine))
    for a, b in zip(*results, strict=True):
        same(a.groups, b.groups)


def test_below_quorum_a_round_is_skipped_and_the_run_stops_in_the_end() -> None:
    population = blobs()
    lost = Faults(lose=1.0)
    engine = FaultyEngine(serial_engine(population, small_net()), lost)
    with refuses(ct.QuorumError, "too-few", "quorum"):
        states(as_algorithm(ct.fedavg()), population, engine, quorum=Quorum(1, 2))
    few = states(
        as_algorithm(ct.fedavg()),
        population,
        serial_engine(population, small_net()),
        Quorum(5, 9),
    )
    assert all(r.row["skipped"] for r in few)
    assert torch.equal(few[-1].groups.models[0], flatten(small_net()))


def test_a_cold_start_without_directions_stops_or_makes_do() -> None:
    population = blobs()
    hostile = Faults(hostile=dict.fromkeys(range(1, 12), "nan"))
    for shortage in ("stop", "fewer"):
        engine = FaultyEngine(serial_engine(population, small_net()), hostile)
        algorithm = as_algorithm(ct.fedgroup(groups=2, alpha=2, on_shortage=shortage))
        if shortage == "stop":
            with refuses(ct.QuorumError, "too-few", "algorithm.groups"):
                states(algorithm, population, engine)
        else:
            *_, last = states(algorithm, population, engine)
            assert last.groups.member[0] == 0


@pytest.mark.parametrize(("fallback", "group"), [("largest", 0), ("none", -1)])
def test_a_newcomer_without_a_direction_falls_back(fallback: str, group: int) -> None:
    population = blobs()
    key = Key(3)
    method = ct.fedgroup(groups=2, alpha=3, fallback=fallback)
    algorithm = as_algorithm(method)
    healthy = run(method)[0].groups
    stranger = int(np.flatnonzero(healthy.member < 0)[0])
    healthy = replace(healthy, member=np.where(healthy.member >= 0, 0, -1))
    engine = FaultyEngine(
        serial_engine(population, small_net()), Faults(hostile={stranger: "zeros"})
    )
    with Clients(engine) as clients:
        after, notes = algorithm.step(healthy, round_of(clients, [stranger], key.at(1)))
    assert after.member[stranger] == group
    assert notes[f"fallback_{fallback}"] == 1


def test_fewer_clients_than_groups_is_refused() -> None:
    with refuses(ct.ConfigError, "out-of-range", "algorithm.groups"):
        run(ct.fedgroup(groups=13))


def test_a_late_reply_to_another_request_of_the_round_is_refused() -> None:
    """What answers the cold start is no direction of a newcomer, and no update: late is as good as
    lost."""
    population = blobs()
    method = as_algorithm(ct.fedgroup(groups=2, alpha=4))
    late, lost = (
        states(method, population, FaultyEngine(serial_engine(population, small_net()), faults))
        for faults in (Faults(delay=0.4), Faults(delay=0.4, forget=True))
    )
    assert sum(r.row["refused"].get("late", 0) for r in late) > 0
    assert all(set(r.row["refused"]) <= {"late"} for r in late)
    for a, b in zip(late, lost, strict=True):
        same(a.groups, b.groups)


def test_clients_without_samples_are_never_asked() -> None:
    population = blobs()
    train = tuple(
        np.empty(0, np.int64) if i % 3 == 0 else part for i, part in enumerate(population.train)
    )
    population = population.with_parts(train, population.test)
    for method in (
        ct.fedgroup(groups=2, alpha=6),
        ct.fedgroup(groups=2, alpha=2, assign_time="upfront"),
    ):
        result = ct.run(
            method, data=population, model=small_net(), local=SOLVER, rounds=3, engine="serial"
        )
        assert (result.groups[::3] == -1).all()
        assert all(row["refused"] == {} for row in result.rows)


@pytest.mark.parametrize(
    "method", [ct.fedavg(), ct.flexcfl(groups=2, alpha=2), ct.ifca(2, "per_label"), ct.cfl()]
)
def test_whoever_holds_samples_now_is_asked(method: ct.Method) -> None:
    """Swaps empty some clients and fill others."""
    population = blobs()
    train, test = (
        tuple(np.empty(0, np.int64) if i % 3 == 0 else part for i, part in enumerate(parts))
        for parts in (population.train, population.test)
    )
    shift = SHIFTS["swap_all"](p=0.7, pool="all")
    empty = population.with_parts(train, test)
    result = ct.run(
        method,
        data=empty,
        model=small_net(),
        local=SOLVER,
        rounds=4,
        engine="serial",
        shift=shift,
        clients_per_round=12,
        train={"sampler": "uniform"},
    )
    assert all(row["refused"] == {} for row in result.rows)
    assert any(row["shift"] for row in result.rows)
    assert all(row["notes"]["replies"] == 8 for row in result.rows), (
        "eight of twelve hold samples, whoever they are"
    )


def test_a_skipped_round_moves_no_models_between_groups() -> None:
    few = Quorum(min_replies=5, max_skipped_rounds=ROUNDS)
    apart, pulled = (
        run(ct.fedgroup(groups=2, alpha=3, eta_g=eta), quorum=few) for eta in (0.0, 0.3)
    )
    for a, b in zip(apart, pulled, strict=True):
        assert b.row["skipped"]
        assert b.row["notes"]["exchange"] == 0
        assert a.row["transfers"] == b.row["transfers"]


def test_frozen_parameters_stay() -> None:
    for net in (small_net(), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))):
        net[0].weight.requires_grad_(False)
        result = ct.run(
            ct.fedavg(), data=blobs(), model=net, local=SOLVER, rounds=1, engine="serial"
        )
        assert torch.equal(result.model_for(0)[0].weight, net[0].weight)
        assert not torch.equal(result.model_for(0)[2].weight, net[2].weight)

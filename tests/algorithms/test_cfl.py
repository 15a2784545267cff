"""CFL: when a cluster splits, how, and what becomes of its members and of newcomers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.algorithms.cfl import Bipartition, SplitMemory, bipartition
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.math.similarity import cosine
from coterie.measures.groups import agreement
from coterie.methods.algorithm import as_algorithm
from coterie.methods.override import override
from coterie.objectives import proximal
from coterie.rules.server import yogi
from coterie.rules.weighing import any_weight, weighted_mean
from coterie.runs.loop import RoundResult, StartingPoint
from tests.conftest import blobs, remembered, round_of
from tests.faults import Faults
from tests.simulations import KEY, covering, serial_engine, simulated

SOLVER = ct.Solver(epochs=2, batch_size=10, lr=0.1)
CFL = {"eps1": 0.25, "eps2": 0.6, "after": 3}


def federation(groups: int, clients: int = 16) -> ct.Population:
    return blobs(clients=clients, groups=groups, size=60, classes=4 if groups == 4 else 6)


def net_of(population: ct.Population) -> nn.Module:
    net = nn.Linear(6, population.classes)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    return net


def rounds_of(
    method: ct.Method,
    population: ct.Population,
    rounds: int = 12,
    cohort: int = 16,
    sampler: Callable[[int], Any] | None = None,
    faults: Faults | None = None,
    **options: Any,
) -> list[RoundResult]:
    net = net_of(population)
    clients = Clients(
        serial_engine(population, net, SOLVER, faults), shape=ModelShape(population.classes)
    )
    chosen = sampler or covering(population, cohort)
    return simulated(method, population, clients, chosen, rounds, net, **options)


def same(a: Groups, b: Groups) -> None:
    assert torch.equal(a.models, b.models)
    assert np.array_equal(a.member, b.member)
    for mine, other in ((a.memory.tensors(), b.memory.tensors()), (a.optimiser, b.optimiser)):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


# --- the criteria ---------------------------------------------------------------------------------


def round_at(number: int, present: Any = None) -> Round:
    """A round in which no client is asked."""
    clients = Clients(None)  # type: ignore[arg-type]
    return round_of(clients, np.arange(0), Key(0).at(number), present)


def state(
    delta: Any, row: Any = None, present: Any = None, **options: Any
) -> tuple[Bipartition, Groups, Updates, Round]:
    """A rule, one or more clusters whose members all took part, their updates, and the round."""
    delta = torch.tensor(delta, dtype=torch.float32)
    n = len(delta)
    row = np.zeros(n, np.int64) if row is None else np.asarray(row)
    rule = Bipartition(**options)
    groups = Groups(torch.arange(2.0 * (row.max() + 1)).reshape(-1, 2), row)
    round = round_at(30, present)
    groups, _ = rule(groups, round)
    return rule, groups, Updates(np.arange(n), row, delta, np.ones(n), np.zeros(n)), round


TORN = [[2.0, 0.0], [2.0, 0.1], [-2.0, 0.0], [-2.0, -0.1]]


def test_a_cluster_at_rest_with_restless_members_splits() -> None:
    rule, groups, updates, round = state(TORN)
    after, moved = rule.recluster(groups, updates, round)
    assert after.member.tolist() == moved.row.tolist() == [0, 0, 1, 1]
    assert torch.equal(after.models, groups.models[[0, 0]])


@pytest.mark.parametrize(
    ("delta", "options"),
    [
        (TORN, {"after": 31}),
        (TORN, {"eps2": 2.1}),
        ([[2.0, 1.0], [2.0, 1.0], [-2.0, 1.0], [-2.0, 0.0]], {}),
        (TORN[1:3], {}),
        (TORN, {"gamma_max": 1.0}),
    ],
    ids=["too early", "nobody restless", "not at rest", "two members", "not far enough apart"],
)
def test_otherwise_it_stays(delta: Any, options: dict[str, Any]) -> None:
    rule, groups, updates, round = state(delta, **options)
    after, moved = rule.recluster(groups, updates, round)
    assert after.k == 1
    assert moved is updates


def test_the_mean_is_weighted_by_samples() -> None:
    delta = [[2.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]
    rule, groups, updates, round = state(delta, eps2=1.0)
    assert rule.recluster(groups, updates, round)[0].k == 1
    updates = replace(updates, size=np.array([1.0, 1.0, 2.0, 2.0]))
    assert rule.recluster(groups, updates, round)[0].k == 2


def test_gamma_is_compared_with_the_angle_between_the_halves() -> None:
    cross = cosine(torch.tensor(TORN[:2]), torch.tensor(TORN[2:])).max()
    gamma = float(np.sqrt((1 - cross) / 2))
    for limit, k in ((gamma - 1e-6, 2), (gamma + 1e-6, 1)):
        rule, groups, updates, round = state(TORN, gamma_max=limit)
        assert rule.recluster(groups, updates, round)[0].k == k


def test_several_clusters_split_in_one_round() -> None:
    rule, groups, updates, round = state(TORN * 2, row=[0] * 4 + [1] * 4)
    after, moved = rule.recluster(groups, updates, round)
    assert after.member.tolist() == moved.row.tolist() == [0, 0, 2, 2, 1, 1, 3, 3]
    assert torch.equal(after.models, groups.models[[0, 1, 0, 1]])


def test_children_average_apart_in_the_round_of_the_split() -> None:
    rule, groups, updates, round = state(TORN)
    method = ct.cfl()
    groups, updates = rule.recluster(groups, updates, round)
    weights = method.weigh(groups, updates, round)
    moved = weighted_mean(weights, updates, groups.models)
    after = method.server(groups, moved, torch.from_numpy(any_weight(weights)))
    torch.testing.assert_close(
        after.models, groups.models + torch.tensor([[2.0, 0.05], [-2.0, -0.05]])
    )


def test_norms_are_of_the_participants_and_the_halves_of_all_members() -> None:
    rule, groups, updates, round = state([*TORN, [2.0, 0.2], [-2.0, 0.2]])
    groups, _ = replace(rule, after=99).recluster(groups, updates, round)
    few = Updates(
        np.array([1, 2]), np.zeros(2, np.int64), torch.tensor(TORN[1:3]), np.ones(2), np.zeros(2)
    )
    after, moved = rule.recluster(groups, few, round)
    assert after.member.tolist() == [0, 0, 1, 1, 0, 1]
    assert moved.row.tolist() == [0, 1]


def test_a_member_whose_update_is_too_old_holds_the_split_up_while_it_is_there() -> None:
    def after(now: int, **options: Any) -> int:
        rule, groups, updates, round = state([*TORN, [2.0, 0.2]], **options)
        groups, _ = replace(rule, after=99).recluster(groups, updates, round)
        return rule.recluster(groups, updates.first(4), round_at(now))[0].k

    assert after(35) == 2
    assert after(35, max_age=5) == 2
    assert after(36, max_age=5) == 1
    assert after(36, max_age=5, present=[0, 1, 2, 3]) == 2


@pytest.mark.parametrize(
    ("options", "k"), [({}, 2), ({"max_age": 5}, 1), ({"max_age": 5, "present": range(4)}, 2)]
)
def test_with_max_age_a_member_that_was_never_heard_holds_the_split_up(
    options: dict[str, Any], k: int
) -> None:
    rule, groups, updates, round = state([*TORN, [2.0, 0.2]], **options)
    assert rule.recluster(groups, updates.first(4), round)[0].k == k


def test_a_member_that_never_sent_an_update_leaves_at_the_split() -> None:
    rule, groups, updates, round = state([*TORN, [0.0, 0.0], [2.0, 0.2]])
    groups, updates = rule.recluster(groups, updates.first(5), round)
    assert groups.member.tolist() == [0, 0, 1, 1, 0, -1]
    assert updates.row.tolist() == [0, 0, 1, 1, 0]


def test_rows_of_the_server_optimiser_go_with_the_model() -> None:
    rule, groups, updates, round = state(TORN * 2, row=[0] * 4 + [1] * 4)
    groups = replace(groups, optimiser={"m": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})
    after, _ = rule.recluster(groups, updates, round)
    assert torch.equal(
        after.optimiser["m"], torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 4.0]])
    )


# --- whole runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("linkage", ["single", "complete"])
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_planted_groups_are_found_and_one_group_never_splits(groups: int, linkage: str) -> None:
    *_, last = rounds_of(ct.cfl(**CFL, linkage=linkage), federation(groups))
    assert last.groups.k == groups
    assert agreement(last.groups.member, federation(groups).planted)["ari"] == 1.0


def test_planted_groups_are_found_when_half_take_part() -> None:
    population = federation(3, clients=24)
    *_, last = rounds_of(ct.cfl(**{**CFL, "after": 5}), population, rounds=14, cohort=12)
    assert agreement(last.groups.member, population.planted) == {
        "ari": pytest.approx(1),
        "nmi": pytest.approx(1),
    }


def test_before_a_split_it_is_fedavg() -> None:
    ours = rounds_of(ct.cfl(), federation(2), 3, 5)
    plain_runs = rounds_of(ct.fedavg(), federation(2), 3, 5)
    assert torch.equal(ours[-1].groups.models, plain_runs[-1].groups.models)


def test_newcomers_go_where_they_are_planted() -> None:
    """Sixty of a hundred clients are first seen when the tree has split three times."""
    population = federation(4, clients=80)
    first = np.arange(20)
    early = rounds_of(ct.cfl(**CFL), population, rounds=10, sampler=lambda t: first)[-1]
    assert early.groups.k == 4
    assert (early.groups.member[20:] == -1).all()
    late = rounds_of(
        ct.cfl(**CFL),
        population,
        11,
        sampler=lambda t: np.arange(80),
        start=StartingPoint(10, early.groups),
    )[-1]
    assert late.row["newcomers"] == 60
    of = {
        int(g): int(m)
        for g, m in zip(population.planted[:20], early.groups.member[:20], strict=True)
    }
    right = [late.groups.member[i] == of[int(population.planted[i])] for i in range(20, 80)]
    assert np.mean(right) >= 0.95


def test_a_newcomer_that_does_not_answer_stays_without_a_group() -> None:
    population = federation(2)
    early = rounds_of(ct.cfl(**CFL), population, rounds=5, sampler=lambda t: np.arange(12))[
        -1
    ].groups
    faults = Faults(hostile={13: "nan", 14: "zeros"})
    (late,) = rounds_of(
        ct.cfl(**CFL),
        population,
        6,
        sampler=lambda t: np.arange(16),
        faults=faults,
        start=StartingPoint(5, early),
    )
    assert (late.groups.member[[13, 14]] == -1).all()
    assert (late.groups.member[[12, 15]] >= 0).all()
    assert late.row["notes"]["unplaced"] == 2


def test_a_client_whose_data_drift_descends_anew() -> None:
    population = federation(2)
    rule = replace(ct.cfl(**CFL), assign=Bipartition(**CFL))
    groups = rounds_of(rule, population, rounds=5)[-1].groups
    lost = replace(groups, member=np.where(np.arange(16) == 3, -1, groups.member))
    swapped = [2 if i == 3 else 3 if i == 2 else i for i in range(16)]
    moved = population.with_parts(
        *([part[i] for i in swapped] for part in (population.train, population.test))
    )
    engine = SerialEngine(LocalRunner(moved, net_of(moved), SOLVER))
    with Clients(engine, shape=ModelShape(moved.classes)) as clients:
        after, plan = rule.assign(lost, Round(5, KEY.at(5), np.array([3]), clients))
    assert isinstance(plan, Plan)
    assert after.member[3] == groups.member[2] != groups.member[3]
    assert remembered(after, SplitMemory).updated_in_round[3] == 5


def test_resuming_across_splits_equals_a_straight_run() -> None:
    population = federation(4)
    method = override(ct.cfl(**{**CFL, "eps1": 5.0, "migration": "per_label"}), server=yogi(0.05))
    straight = rounds_of(method, population, rounds=9, cohort=12)
    ks = [r.groups.k for r in straight]
    assert ks[3] < ks[-1]
    for at in (2, 4, 6):
        start = StartingPoint(at + 1, straight[at].groups)
        resumed = rounds_of(method, population, rounds=9, cohort=12, start=start)
        for a, b in zip(straight[at + 1 :], resumed, strict=True):
            same(a.groups, b.groups)


def test_an_objective_is_that_of_the_newcomers_too() -> None:
    """Those that descend the tree, and those that train in their group."""

    trained = []

    class Recorded(SerialEngine):
        def run(self, work: Any, ids: Any, models: Any, which: Any, *, key: Key) -> Any:
            if isinstance(work, Train):
                trained.append((key.what, work.objective.mu))
            return super().run(work, ids, models, which, key=key)

    population = federation(2)
    method = override(ct.cfl(**CFL, migration="per_label"), objective=proximal(0.5))
    assert isinstance(method, ct.Method)
    early = rounds_of(method, population, rounds=5, sampler=lambda t: np.arange(12))[-1].groups
    assert early.k == 2
    engine = Recorded(LocalRunner(population, net_of(population), SOLVER))
    with Clients(engine, shape=ModelShape(population.classes)) as clients:
        after, _ = as_algorithm(method).step(early, Round(5, KEY.at(5), np.arange(16), clients))
    assert (after.member >= 0).all()
    assert trained == [("newcomers", 0.5), ("train", 0.5)]
    assert method.local.objective.mu == 0.5


@pytest.mark.parametrize("seed", range(20))
def test_single_linkage_is_the_best_bipartition(seed: int) -> None:
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(seed))
    s = cosine(rows, rows)
    half, cross = bipartition(s)
    halves = [list(c) for n in range(1, 7) for c in combinations(range(7), n)]
    best = min(s[np.ix_(c, np.setdiff1d(range(7), c))].max() for c in halves)
    assert cross == pytest.approx(best)
    assert cross == s[~half][:, half].max()
    assert bipartition(s, "complete")[1] >= cross - 1e-12


def test_two_halves_even_where_all_are_equally_alike() -> None:
    half, cross = bipartition(np.ones((5, 5)))
    assert 0 < half.sum() < 5
    assert cross == 1.0

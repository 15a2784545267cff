"""FedGroup: its cold starts by hand, its ablations, what pretraining costs, and late replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.algorithms.fedgroup import ByDirection
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.training import Epochs, Steps
from coterie.core.vectors import flatten
from coterie.core.work import Train, Work
from coterie.engines import SerialEngine
from coterie.local import LocalRunner
from coterie.methods.algorithm import as_algorithm
from coterie.models import initial_models
from coterie.rules.cold_start import DirectionMemory
from coterie.rules.inter_group import inter_group
from coterie.runs.loop import RoundResult
from tests.conftest import blobs, remembered, small_net
from tests.faults import Faults, FaultyEngine
from tests.simulations import KEY, covering, serial_engine, simulated

SOLVER = ct.Solver(epochs=3, batch_size=5, lr=0.1)


N = 18
POPULATION = blobs(clients=N, groups=3)
SIZES = POPULATION.sizes("train")
NOBODY = np.empty(0, np.int64)
W0 = flatten(small_net())


def make_engine(**faults: Any) -> Engine:
    return serial_engine(POPULATION, small_net(), SOLVER, Faults(**faults) if faults else None)


def run_covering(method: ct.Method, rounds: int = 6, per_round: int = 4) -> list[RoundResult]:
    clients = Clients(make_engine(), shape=ModelShape(POPULATION.classes))
    return simulated(method, POPULATION, clients, covering(POPULATION, per_round), rounds)


def cold_start(
    cohort: IntArray = NOBODY, engine: Engine | None = None, **options: Any
) -> tuple[Groups, Plan]:
    """What the assign rule makes of the first round."""
    method = ct.fedgroup(groups=3, **{"alpha": 3, **options})
    with Clients(engine or make_engine(), shape=ModelShape(POPULATION.classes)) as clients:
        before = as_algorithm(method).init(initial_models(small_net(), KEY), N)
        return method.assign(before, Round(0, KEY.at(0).of("assign"), cohort, clients))


def updates(ids: IntArray, work: Train) -> Tensor:
    """The updates of some clients in the group cold start, by hand."""
    runner = LocalRunner(POPULATION, small_net(), SOLVER)
    out = torch.empty(len(ids), len(W0))
    for at, id in enumerate(ids.tolist()):
        runner.train(work, id, W0, out[at], KEY.at(0).of("assign").of("cold_start"))
    return out


@pytest.mark.parametrize("measure", ["edc", "madc"])
@pytest.mark.parametrize(
    ("pretrain", "work"),
    [
        ("steps", Train(how=Steps(50))),
        ("epochs", Train()),
        ("continue", Train(how=Epochs(1))),
    ],
)
def test_groups_start_from_the_start_and_the_even_mean_of_their_updates(
    measure: str, pretrain: str, work: Train
) -> None:
    groups, plan = cold_start(measure=measure, pretrain=pretrain)
    met = np.flatnonzero(groups.member >= 0)
    assert len(met) == 9
    assert len(plan.ids) == 0
    delta = updates(met, work).to(torch.float64)
    for j in range(3):
        mine = groups.member[met] == j
        mean = delta[torch.from_numpy(mine)].mean(dim=0).to(torch.float32)
        assert torch.equal(remembered(groups, DirectionMemory).direction[j], mean)
        assert torch.equal(groups.models[j], W0 + mean)
        share = torch.from_numpy(SIZES[met] * mine / SIZES[met[mine]].sum())
        if mine.sum() > 1:
            assert not torch.allclose(share @ delta, mean.to(torch.float64), atol=1e-5)


@pytest.mark.parametrize(("alpha", "met"), [(1, 3), (2, 6), (5, 15), (6, 18), (20, 18)])
def test_alpha_times_m_clients_take_part_or_all(alpha: int, met: int) -> None:
    groups, plan = cold_start(alpha=alpha)
    assert (groups.member >= 0).sum() == plan.notes["cold_start"] == met


def test_groups_may_start_from_w0() -> None:
    one = cold_start(group_init="w0")[0]
    two = cold_start()[0]
    assert torch.equal(one.models, W0.repeat(3, 1))
    assert torch.equal(
        remembered(one, DirectionMemory).direction, remembered(two, DirectionMemory).direction
    )
    assert np.array_equal(one.member, two.member)


def test_the_cold_start_happens_once() -> None:
    rows = [result.row for result in run_covering(ct.fedgroup(groups=3, alpha=3))]
    assert [row["cold_start"] for row in rows] == [9, 0, 0, 0, 0, 0]
    assert sum(row["newcomers"] for row in rows) == N - 9


def test_rcc_takes_the_models_of_m_clients_and_only_them() -> None:
    groups, _ = cold_start(ablation="rcc")
    met = np.flatnonzero(groups.member >= 0)
    assert sorted(groups.member[met]) == [0, 1, 2]
    delta = updates(met, Train(how=Steps(50)))
    assert torch.equal(groups.models[groups.member[met]], W0 + delta)
    assert torch.equal(remembered(groups, DirectionMemory).direction[groups.member[met]], delta)


def test_rcc_stays_with_m_clients_when_some_do_not_answer() -> None:
    usual = np.flatnonzero(cold_start(ablation="rcc")[0].member >= 0)
    for how in ("nan", "zeros"):
        groups, _ = cold_start(ablation="rcc", engine=make_engine(hostile={int(usual[1]): how}))
        met = np.flatnonzero(groups.member >= 0)
        assert sorted(groups.member[met]) == [0, 1, 2]
        assert usual[1] not in met
        assert torch.equal(
            groups.models[groups.member[met]], W0 + updates(met, Train(how=Steps(50)))
        )


def test_rcc_newcomers_are_placed_by_their_direction() -> None:
    everyone = np.arange(N)
    groups, plan = cold_start(everyone, ablation="rcc")
    assert (groups.member >= 0).all()
    assert plan.notes["newcomers"] == N - 3


@pytest.mark.parametrize("ablation", ["rac", "rac_redraw"])
def test_random_groups_are_for_newcomers_only(ablation: Any) -> None:
    first, _ = cold_start()
    clustered = np.flatnonzero(first.member >= 0)
    results = run_covering(ct.fedgroup(groups=3, alpha=3, ablation=ablation), rounds=20)
    member = np.stack([r.groups.member for r in results])
    assert (member[:, clustered] == first.member[clustered]).all()
    assert (member[-1] >= 0).all()
    moves = 0
    for before, after in pairwise(member):
        moves += int((before[before >= 0] != after[before >= 0]).sum())
    assert (moves == 0) if ablation == "rac" else (moves > 5)


def test_a_redraw_is_for_whoever_is_selected() -> None:
    results = run_covering(ct.fedgroup(groups=3, alpha=3, ablation="rac_redraw"), rounds=12)
    sampler = covering(POPULATION, 4)
    for before, after in pairwise(results):
        moved = np.flatnonzero(before.groups.member != after.groups.member)
        assert np.isin(moved, sampler(after.round)).all()


def test_what_the_memory_holds_is_what_the_groups_did() -> None:
    """With inter-group aggregation the latest update includes that step."""
    method = ct.fedgroup(groups=3, alpha=2, newcomer="aux_latest", eta_g=0.2)
    results = run_covering(method, rounds=8, per_round=3)
    one, two, three = results[-3:]
    round = Round(8, KEY.at(8), np.arange(2), Clients(make_engine()))
    after = remembered(as_algorithm(method).step(three.groups, round)[0], DirectionMemory)
    assert three.groups.trained is not None
    trained = torch.from_numpy(three.groups.trained)
    assert trained.any()
    before = remembered(three.groups, DirectionMemory)
    change = three.groups.models - two.groups.models
    assert torch.equal(after.latest[trained], change[trained])
    assert torch.equal(after.latest[~trained], before.latest[~trained])
    assert torch.equal(after.auxiliary, three.groups.models.double().mean(dim=0).float())
    assert not torch.equal(remembered(one.groups, DirectionMemory).latest, before.latest)


def test_the_lowest_loss_is_that_on_the_clients_own_samples() -> None:
    first, _ = cold_start()
    stranger = int(np.flatnonzero(first.member < 0)[0])
    hostile = make_engine(hostile={stranger: "zeros"})
    groups, _ = cold_start(np.array([stranger]), engine=hostile, fallback="lowest_loss")
    held = torch.from_numpy(POPULATION.train[stranger])
    loss = []
    for model in groups.models:
        net = small_net()
        nn.utils.vector_to_parameters(model, net.parameters())
        loss.append(
            float(nn.functional.cross_entropy(net(POPULATION.x[held]), POPULATION.y[held]).detach())
        )
    assert groups.member[stranger] == int(np.argmin(loss))


@pytest.mark.parametrize("newcomer", ["aux_latest", "w0_frozen"])
def test_upfront_places_everyone_before_the_first_round(newcomer: Any) -> None:
    cohort = np.array([2, 5])
    groups, plan = cold_start(cohort, assign_time="upfront", newcomer=newcomer)
    assert (groups.member >= 0).all()
    assert plan.ids.tolist() == cohort.tolist()
    assert plan.notes["newcomers"] == N - 9
    rows = [
        r.row
        for r in run_covering(
            ct.fedgroup(groups=3, alpha=3, assign_time="upfront", newcomer=newcomer)
        )
    ]
    assert [row["clients_assigned"] for row in rows] == [N] * 6
    assert [row["newcomers"] for row in rows] == [N - 9, 0, 0, 0, 0, 0]


def test_upfront_and_at_first_selection_agree_on_frozen_directions() -> None:
    """Where newcomers go depends neither on the round nor on who else comes, but for their own
    shuffles."""
    upfront = cold_start(assign_time="upfront")[0].member
    later = cold_start(np.arange(N))[0].member
    assert np.array_equal(upfront, later)


class Counting(nn.Module):
    """Counts the batches that clients train on; it is copied, so the count is kept outside."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        Counting.steps += self.training
        return self.body(x)


def counted(
    method: ct.Method, state: Groups | None, cohort: IntArray, round: int = 0
) -> tuple[Groups, int]:
    net = Counting()
    net.load_state_dict(
        {"body.weight": torch.linspace(-1, 1, 24).reshape(4, 6), "body.bias": torch.zeros(4)}
    )
    algorithm = as_algorithm(method)
    Counting.steps = 0
    with Clients(SerialEngine(LocalRunner(POPULATION, net, SOLVER))) as clients:
        before = algorithm.init(initial_models(net, KEY), N) if state is None else state
        after, _ = algorithm.step(before, Round(round, KEY.at(round), cohort, clients))
    return after, Counting.steps


def batches(ids: Any) -> int:
    """Batches in one epoch of some clients."""
    return int(np.ceil(SIZES[ids] / SOLVER.batch_size).sum())


@pytest.mark.parametrize("pretrain", ["steps", "epochs", "continue"])
def test_pretraining_costs_what_it_says(pretrain: Any) -> None:
    """In the first round: the group cold start, newcomers of the cohort, then the cohort. Then
    again with newcomers."""
    method = ct.fedgroup(groups=3, alpha=2, pretrain=pretrain, pretrain_steps=7)

    def cost(pretrained: Any, cohort: Any) -> int:
        match pretrain:
            case "steps":
                return 7 * len(pretrained) + 3 * batches(cohort)
            case "epochs":
                return 3 * batches(pretrained) + 3 * batches(cohort)
            case _:
                return (
                    batches(pretrained)
                    + 3 * batches(cohort)
                    - batches(np.intersect1d(pretrained, cohort))
                )

    state, steps = counted(method, None, first := np.arange(0, 8))
    met = np.flatnonzero(state.member >= 0)
    assert steps == cost(met, first)
    state, steps = counted(method, state, second := np.arange(4, 14), 1)
    new = np.setdiff1d(second, met)
    assert len(new) > 0
    assert steps == cost(new, second)
    _, steps = counted(method, state, second, 2)
    assert steps == cost(NOBODY, second)


def test_whoever_gets_a_random_group_spent_nothing() -> None:
    method = ct.fedgroup(groups=3, alpha=2, pretrain="continue", ablation="rac")
    state, steps = counted(method, None, np.arange(N))
    member, _ = cold_start(alpha=2)
    met = np.flatnonzero(member.member >= 0)
    new = np.setdiff1d(np.arange(N), met)
    assert (state.member >= 0).all()
    assert steps == batches(met) + 2 * batches(met) + 3 * batches(new)


class Tardy(FaultyEngine):
    """One client's reply to the group cold start comes with the answers to the next request, or
    never."""

    def __init__(self, engine: Engine, client: int, comes: bool) -> None:
        super().__init__(engine, Faults())
        self.client = client
        self.comes = comes

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        arrived = self.delayed
        self.delayed = []
        if key.what != "cold_start" or self.client not in ids:
            return [*arrived, *self.engine.run(work, ids, models, which, key=key)]
        late = np.flatnonzero(ids == self.client)
        if self.comes:
            self.delayed = list(self.engine.run(work, ids[late], models, which[late], key=key))
        return self.engine.run(work, np.delete(ids, late), models, np.delete(which, late), key=key)


def test_a_late_answer_to_the_group_cold_start_is_none_to_the_client_cold_start() -> None:
    """Both are asked in the same round, of the same client."""
    client = int(np.flatnonzero(cold_start()[0].member >= 0)[4])
    method = as_algorithm(ct.fedgroup(groups=3, alpha=3))
    found = []
    for comes in (True, False):
        with Clients(
            Tardy(make_engine(), client, comes), shape=ModelShape(POPULATION.classes)
        ) as clients:
            state = method.init(initial_models(small_net(), KEY), N)
            after, notes = method.step(state, Round(0, KEY.at(0), np.array([client]), clients))
            found.append((after, notes, clients.ledger.read().refused))
    (late, _, refused), (lost, notes, _) = found
    assert dict(refused) == {"late": 1}
    assert notes["newcomers"] == 1
    assert torch.equal(late.models, lost.models)
    assert np.array_equal(late.member, lost.member)


@pytest.mark.parametrize("rule", ["normalized_difference", "convex"])
def test_groups_pull_on_each_other_after_the_round(rule: Any) -> None:
    untouched, pulled = (
        run_covering(ct.fedgroup(groups=3, alpha=3, eta_g=eta, inter_group_rule=rule), 1)[0]
        for eta in (0.0, 0.3)
    )
    pull = inter_group(0.3, rule)
    assert pull is not None
    assert torch.equal(pulled.groups.models, pull(untouched.groups).models)
    assert not torch.equal(pulled.groups.models, untouched.groups.models)
    assert [r.row["notes"]["exchange"] for r in (untouched, pulled)] == [0, 3]


def test_the_rule_is_a_record_of_its_parameters() -> None:
    rule = ct.fedgroup(groups=4, alpha=7, measure="madc").assign
    assert isinstance(rule, ByDirection)
    assert rule == replace(rule)
    first = rule.cold_start
    assert (first.groups, first.alpha, first.measure) == (4, 7, "madc")


@pytest.mark.parametrize(("groups", "seed"), [(3, 0), (3, 1), (1, 1)])
def test_tiny_clients_are_not_counted_and_join_as_newcomers(groups: int, seed: int) -> None:
    partition = {
        "kind": "planted",
        "how": "rotate",
        "clients": 60,
        "groups": groups,
        "copies": True,
    }
    data = ct.load("digits", partition=partition, seed=seed)
    sizes = np.random.default_rng(seed).permutation(np.geomspace(1, 50, 60).astype(int))
    train = tuple(rows[:size] for rows, size in zip(data.train, sizes, strict=True))
    result = ct.run(
        ct.fedgroup(groups="auto"),
        data=replace(data, train=train),
        model="mclr",
        local=ct.Solver(lr=0.1),
        rounds=1,
        clients_per_round=60,
        seed=seed,
        engine="serial",
    )
    assert set(result.groups) == set(range(groups))
    # A client of one or two images may be placed wrongly.
    large = sizes >= 10
    assert data.planted is not None
    assert len(set(zip(data.planted[large], result.groups[large], strict=True))) == groups

"""Training of a round: chains of clients, and budgets already spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.engine import Engine
from coterie.core.groups import Groups
from coterie.core.keep import layers_to_keep
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.process import threads
from coterie.core.training import Epochs, How, Steps
from coterie.core.updates import Updates
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import PoolEngine, SerialEngine, make_clients
from coterie.local import LocalRunner
from coterie.objectives import proximal
from coterie.rules.training import train
from tests.conftest import blobs, round_of, small_net
from tests.faults import Faults, FaultyEngine

SOLVER = ct.Solver(epochs=3, batch_size=5, lr=0.1)
POPULATION = blobs()
KEY = Key(8).at(4).of("train")
W0 = flatten(small_net())
MODELS = torch.stack([W0, -W0, 0.5 * W0])
GROUPS = Groups(MODELS, np.arange(12) % 3)
CHAINS = {
    0: [4, 9, 2],
    1: [7, 0],
    2: [11, 1, 5, 3],
}  # clients of a chain in turn; chain j trains model j


def runner() -> LocalRunner:
    return LocalRunner(POPULATION, small_net(), SOLVER)


def go(
    plan: Plan,
    faults: Faults | None = None,
    engine: Engine | None = None,
    work: Train | None = None,
) -> Updates:
    engine = engine or SerialEngine(runner())
    with Clients(engine if faults is None else FaultyEngine(engine, faults)) as clients:
        return train(work or Train(), GROUPS, plan, round_of(clients, [], KEY))


def plan_of(chains: dict[int, list[int]], turn: list[int] | None = None) -> Plan:
    """The plan of some chains, one after the other, or as ``turn`` says whose next client comes
    next."""
    turn = [c for c, ids in chains.items() for _ in ids] if turn is None else turn
    left = {c: iter(ids) for c, ids in chains.items()}
    ids = np.array([next(left[c]) for c in turn])
    return Plan(ids, np.array(turn), chain=np.array(turn))


def wave_key(wave: int, key: Key = KEY) -> Key:
    """The key of the request to the clients that come ``wave``-th in their chains."""
    if wave:
        return key.of(str(wave))
    return key


def by_hand(
    chains: dict[int, list[int]], how: How = Epochs(), absent: Any = (), key: Key = KEY
) -> Updates:
    """Clients trained one after another, each from where the last one that answered ended."""
    found = []
    for row, ids in chains.items():
        moved = torch.zeros_like(W0)
        out = torch.empty_like(W0)
        last = -1
        size = 0.0
        loss = 0.0
        for wave, id in enumerate(ids):
            if id in absent:
                continue
            with threads(1):
                done = runner().train(
                    Train(how=how), id, MODELS[row] + moved, out, wave_key(wave, key)
                )
            moved = moved + out
            last, size, loss = id, size + done.size, loss + done.loss * done.size
        if last >= 0:
            found.append((last, row, moved, size, loss / size))
    found.sort(key=lambda each: each[0])
    last_ids, rows, deltas, sizes, losses = zip(*found, strict=True)
    return Updates(
        np.array(last_ids), np.array(rows), torch.stack(deltas), np.array(sizes), np.array(losses)
    )


def same(a: Updates, b: Updates) -> None:
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.row, b.row)
    assert torch.equal(a.delta, b.delta)
    assert np.array_equal(a.size, b.size)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-12)


@pytest.mark.parametrize("how", [Epochs(), Steps(4), Epochs(1)], ids=["solver", "steps", "epochs"])
@pytest.mark.parametrize("row", [0, 2])
def test_a_chain_is_its_clients_one_after_another(row: int, how: How) -> None:
    updates = go(plan_of({row: CHAINS[0]}), work=Train(how=how))
    same(updates, by_hand({row: CHAINS[0]}, how))
    assert updates.ids.tolist() == CHAINS[0][-1:]
    assert updates.row.tolist() == [row]
    assert updates.size.tolist() == [POPULATION.sizes("train")[CHAINS[0]].sum()]


def test_the_update_of_a_chain_counts_from_the_model_of_the_start() -> None:
    """Walking from model to model, by values and not by sums of updates, ends at the same place."""
    walk = W0
    for wave, id in enumerate(CHAINS[0]):
        out = torch.empty_like(W0)
        runner().train(Train(), id, walk, out, wave_key(wave))
        walk = walk + out
    updates = go(plan_of({0: CHAINS[0]}))
    torch.testing.assert_close(W0 + updates.delta[0], walk, rtol=1e-5, atol=1e-6)


def test_the_proximal_term_pulls_each_client_to_the_model_it_got() -> None:
    start, pulled = (go(plan_of(CHAINS), work=Train(proximal(mu))).delta for mu in (0.0, 5.0))
    assert (pulled.norm(dim=1) < start.norm(dim=1)).all()


def test_the_order_inside_a_chain_matters() -> None:
    forth, back = (go(plan_of({0: ids})) for ids in (CHAINS[0], CHAINS[0][::-1]))
    assert not torch.equal(forth.delta, back.delta)


def test_chains_side_by_side_are_each_as_alone() -> None:
    together = go(plan_of(CHAINS))
    assert together.ids.tolist() == sorted(ids[-1] for ids in CHAINS.values())
    for at, row in enumerate(together.row.tolist()):
        alone = go(plan_of({row: CHAINS[row]}))
        same(Updates(*(part[at : at + 1] for part in parts(together))), alone)


def parts(updates: Updates) -> tuple[Any, ...]:
    return updates.ids, updates.row, updates.delta, updates.size, updates.loss


@given(st.permutations([c for c, ids in CHAINS.items() for _ in ids]))
def test_how_chains_are_interleaved_does_not_matter(turn: list[int]) -> None:
    same(go(plan_of(CHAINS, turn)), go(plan_of(CHAINS)))


def test_numbers_of_chains_do_not_matter() -> None:
    plan = plan_of(CHAINS)
    assert plan.chain is not None
    other = Plan(plan.ids, plan.row, chain=np.array([70, -3, 12])[plan.chain])
    same(go(other), go(plan))


def test_chains_of_one_are_everybody_alone() -> None:
    ids = np.array([8, 1, 5])
    row = np.array([2, 0, 0])
    same(go(Plan(ids, row, chain=np.array([0, 1, 2]))), go(Plan(ids, row)))


def test_a_chain_may_start_from_a_mixture() -> None:
    """Its update counts from the mixture, and moves the model that it counts for accordingly."""
    ids = np.array([4, 9])
    share = np.array([[0.25, 0.0, 0.75]])
    plan = Plan(ids, np.array([3, 3]), chain=np.array([0, 0]), mixtures=share)
    start = (0.25 * MODELS[0] + 0.75 * MODELS[2])[None]
    updates = go(plan)
    with Clients(SerialEngine(runner())) as clients:
        groups = Groups(start, np.zeros(12, np.int64))
        alone = replace(plan, row=np.array([0, 0]), mixtures=None)
        expected = train(Train(), groups, alone, round_of(clients, [], KEY))
    torch.testing.assert_close(updates.delta, expected.delta)
    torch.testing.assert_close(updates.solutions(MODELS), start + expected.delta)
    relative = replace(updates, row=np.array([1])).relative_to(MODELS)
    torch.testing.assert_close(relative, start + expected.delta - MODELS[1])


def test_a_chain_passes_on_what_its_clients_do_not_keep() -> None:
    net = small_net()
    keep = layers_to_keep(net, ["2"])
    plan = Plan(np.array([4, 9]), np.array([0, 0]), chain=np.array([0, 0]))
    with make_clients(POPULATION, net, SOLVER, "serial") as clients:
        updates = train(Train(keep=keep), GROUPS, plan, round_of(clients, [], KEY))
        stored = clients.stores.parts.get(np.array([4, 9]))
    assert updates.ids.tolist() == [9]
    assert not updates.delta[0, keep.kept()].any(), "the head stays"
    assert updates.delta[0, keep.shared(len(W0))].any()
    assert not np.array_equal(stored[0], stored[1])


def test_chains_in_a_pool_are_the_same_to_the_bit() -> None:
    same(go(plan_of(CHAINS), engine=PoolEngine(runner(), 2)), go(plan_of(CHAINS)))


@pytest.mark.parametrize("how", ["nan", "shape", "keys", "no samples"])
@pytest.mark.parametrize("lost", CHAINS[0])
def test_a_refused_client_is_skipped_and_its_chain_goes_on(lost: int, how: str) -> None:
    updates = go(plan_of(CHAINS), Faults(hostile={lost: how}))
    same(updates, by_hand(CHAINS, absent=[lost]))


@pytest.mark.parametrize("faults", [Faults(lose=0.4), Faults(delay=0.4)], ids=["lost", "late"])
@pytest.mark.parametrize("seed", range(4))
def test_lost_and_late_clients_are_skipped(faults: Faults, seed: int) -> None:
    """A late reply reaches the next wave, which refuses it."""
    key = KEY.at(seed)
    absent = set()
    for ids in CHAINS.values():
        for wave, id in enumerate(ids):
            with Clients(FaultyEngine(SerialEngine(runner()), faults)) as clients:
                alone = clients.run(
                    Train(), np.array([id]), MODELS, np.zeros(1, int), key=wave_key(wave, key)
                )
            absent |= set() if len(alone) else {id}
    with Clients(FaultyEngine(SerialEngine(runner()), faults)) as clients:
        updates = train(Train(), GROUPS, plan_of(CHAINS), round_of(clients, [], key))
    assert 0 < len(absent) < 9
    same(updates, by_hand(CHAINS, absent=absent, key=key))


def test_a_chain_without_any_answer_leaves_no_update() -> None:
    hostile = dict.fromkeys(CHAINS[1], "inf")
    updates = go(plan_of(CHAINS), Faults(hostile=hostile))
    assert sorted(updates.row.tolist()) == [0, 2]
    assert len(go(plan_of(CHAINS), Faults(lose=1.0))) == 0


def test_every_client_of_a_chain_is_sent_one_model_and_sends_one() -> None:
    with Clients(SerialEngine(runner())) as clients:
        train(Train(), GROUPS, plan_of(CHAINS), round_of(clients, [], KEY))
        blocks = clients.ledger.read().blocks
    for up in (False, True):
        ids = np.concatenate([block.clients for block in blocks if block.up is up])
        models = np.concatenate([block.models for block in blocks if block.up is up])
        assert sorted(ids.tolist()) == sorted(id for chain in CHAINS.values() for id in chain)
        assert models.tolist() == [1] * len(ids)


def test_spent_epochs_are_taken_off_each_ones_budget() -> None:
    ids = np.array([3, 10, 6, 1])
    row = np.array([0, 1, 1, 2])
    spent = np.array([1, 0, 2, 1])
    updates = go(Plan(ids, row, spent=spent))
    assert updates.ids.tolist() == [1, 3, 6, 10]
    for id, model, gone in zip(ids.tolist(), row.tolist(), spent.tolist(), strict=True):
        at = slice(updates.ids.tolist().index(id), updates.ids.tolist().index(id) + 1)
        same(
            Updates(*(part[at] for part in parts(updates))),
            by_hand({model: [id]}, Epochs(SOLVER.epochs - gone)),
        )


def test_nothing_spent_is_a_plan_without_it() -> None:
    ids = np.array([8, 1, 5])
    row = np.array([2, 0, 0])
    same(go(Plan(ids, row, spent=np.zeros(3, int))), go(Plan(ids, row)))


def test_a_budget_that_is_spent_leaves_the_model_where_it_was() -> None:
    updates = go(Plan(np.array([2, 4]), np.array([0, 1]), spent=np.array([3, 5])))
    assert not updates.delta.any()
    assert updates.size.tolist() == POPULATION.sizes("train")[[2, 4]].tolist()


def test_budgets_inside_a_chain_are_each_clients_own() -> None:
    ids = CHAINS[0]
    updates = go(Plan(np.array(ids), np.zeros(3, int), np.zeros(3, int), spent=np.array([0, 2, 1])))
    moved = torch.zeros_like(W0)
    out = torch.empty_like(W0)
    for wave, (id, gone) in enumerate(zip(ids, (0, 2, 1), strict=True)):
        runner().train(Train(how=Epochs(spent=gone)), id, W0 + moved, out, wave_key(wave))
        moved = moved + out
    assert torch.equal(updates.delta[0], moved)

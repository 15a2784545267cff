"""Coordinates that stay with their client."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.clients import wire
from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keep import ClientStore, Keep, layers_to_keep
from coterie.core.keys import Key
from coterie.core.served import Served
from coterie.core.training import Phase, Phases, Steps
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Score, Train, Work
from coterie.engines import KeepingEngine, PoolEngine, SerialEngine, VmapEngine, make_clients
from coterie.errors import Code
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net
from tests.faults import Faults, FaultyEngine
from tests.refusals import refuses

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)
NET = small_net()
LAYOUT = Layout.of(NET)
HEAD = layers_to_keep(NET, ["2"])
LOCAL = Train(keep=HEAD)
START = flatten(NET)[None]
KEY = Key(3).of("train")


def runner() -> LocalRunner:
    return LocalRunner(blobs(), NET, SOLVER)


def zeros(n: int) -> IntArray:
    return np.zeros(n, np.int64)


def test_only_what_is_shared_is_in_a_reply_and_the_rest_is_stored() -> None:
    ids = np.arange(4)
    (whole,) = SerialEngine(runner()).run(Train(), ids, START, zeros(4), key=KEY)
    engine = KeepingEngine(SerialEngine(runner()))
    (reply,) = engine.run(LOCAL, ids, START, zeros(4), key=KEY)
    shared = HEAD.shared(LAYOUT.d)
    assert reply.fields["delta"].shape == (4, LAYOUT.d - HEAD.size)
    np.testing.assert_array_equal(reply.fields["delta"], whole.fields["delta"][:, shared])
    state = engine.store.state()
    trained = START.numpy()[:, HEAD.kept()] + whole.fields["delta"][:, HEAD.kept()]
    np.testing.assert_array_equal(state.ids, ids)
    np.testing.assert_array_equal(state.vectors, trained)


@pytest.mark.parametrize("kind", [SerialEngine, PoolEngine, VmapEngine])
def test_a_client_gets_its_own_back(kind: Any) -> None:
    """Two rounds equal those of clients that get their own last head by hand."""
    ids = np.arange(4)
    plain_engine = kind(runner())
    with closing(KeepingEngine(kind(runner()))) as engine:
        engine.run(LOCAL, ids, START, zeros(4), key=KEY)
        heads = engine.store.state().vectors
        moved = START + 0.01
        (found,) = engine.run(LOCAL, ids, moved, zeros(4), key=KEY.at(1))
    by_hand = moved.repeat(4, 1)
    by_hand[:, HEAD.kept()] = torch.from_numpy(heads)
    (expected,) = plain_engine.run(Train(), ids, by_hand, ids, key=KEY.at(1))
    plain_engine.close()
    shared = HEAD.shared(LAYOUT.d)
    np.testing.assert_array_equal(found.fields["delta"], expected.fields["delta"][:, shared])


def test_evaluation_uses_what_clients_keep() -> None:
    engine = KeepingEngine(SerialEngine(runner()))
    ids = np.arange(6)
    engine.run(LOCAL, ids[:3], START, zeros(3), key=KEY)
    two = torch.cat([START, START + 0.1])
    which = np.tile([0, 1], (6, 1))
    score = Score("test")
    found = {}
    for reply in engine.run(score, ids, two, which, key=KEY):
        found.update(zip(reply.ids.tolist(), reply.fields["loss"].tolist(), strict=True))
    (shared,) = SerialEngine(runner()).run(score, ids, two, which, key=KEY)
    heads = engine.store.state().vectors
    for client in range(6):
        expected = shared.fields["loss"][client]
        if client < 3:
            own = two.clone()
            own[:, HEAD.kept()] = torch.from_numpy(heads[client])
            alone = SerialEngine(runner()).run(
                score, ids[client : client + 1], own, which[:1], key=KEY
            )
            expected = alone[0].fields["loss"][0]
        np.testing.assert_allclose(found[client], expected, rtol=1e-6)


def test_a_client_that_chooses_keeps_what_it_trained() -> None:
    models = START + torch.randn(3, LAYOUT.d, generator=torch.Generator().manual_seed(1))
    ids = np.arange(5)
    which = np.tile(np.arange(3), (5, 1))
    choose = Train(choose="least_loss")
    (whole,) = SerialEngine(runner()).run(choose, ids, models, which, key=KEY)
    engine = KeepingEngine(SerialEngine(runner()))
    (reply,) = engine.run(replace(choose, keep=HEAD), ids, models, which, key=KEY)
    choice = whole.fields["choice"].astype(int)
    np.testing.assert_array_equal(reply.fields["choice"], choice)
    assert len(set(choice.tolist())) > 1
    heads = models.numpy()[choice][:, HEAD.kept()] + whole.fields["delta"][:, HEAD.kept()]
    np.testing.assert_array_equal(engine.store.state().vectors, heads)


class Counting:
    """An engine of a million clients whose training adds one; it counts the models it is sent."""

    def __init__(self) -> None:
        self.models = 0

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        self.models += len(models)
        ones = np.ones(len(ids))
        if isinstance(work, Train):
            delta = np.ones((len(ids), models.shape[1]), np.float32)
            fields = {"delta": delta, "size": ones, "loss": ones}
        else:
            fields = {"correct": ones[:, None], "size": ones, "loss": ones[:, None]}
        return [Reply(key.round, ids, fields, key.purpose)]

    def close(self) -> None: ...


def test_a_million_clients_of_whom_a_thousand_were_met_cost_a_thousand_vectors() -> None:
    inner = Counting()
    engine = KeepingEngine(inner)  # type: ignore[arg-type]
    some = np.arange(0, 1_000_000, 1000)
    engine.run(LOCAL, some, START, zeros(len(some)), key=KEY)
    inner.models = 0
    everybody = np.arange(1_000_000)
    replies = engine.run(Score("test"), everybody, START, zeros(len(everybody)), key=KEY)
    assert sum(len(reply) for reply in replies) == 1_000_000
    assert inner.models == 1 + 1000
    assert engine.store.state().vectors.shape == (1000, HEAD.size)


def test_work_without_keep_is_the_bits_of_before() -> None:
    ids = np.arange(12)
    with make_clients(blobs(), NET, SOLVER, "serial") as clients:
        found = clients.run(Train(), ids, START, zeros(12), key=KEY)
        assert len(clients.stores.parts.state().ids) == 0
        assert clients.stores.parts.state().vectors.size == 0
    (expected,) = SerialEngine(runner()).run(Train(), ids, START, zeros(12), key=KEY)
    for name, values in expected.fields.items():
        np.testing.assert_array_equal(found.fields[name], values)


def test_the_state_goes_on_and_forgets() -> None:
    engine = KeepingEngine(SerialEngine(runner()))
    engine.run(LOCAL, np.array([5, 2]), START, zeros(2), key=KEY)
    state = engine.store.state()
    again = KeepingEngine(SerialEngine(runner()))
    again.store.restore(state)
    ids = np.arange(6)
    for work in (LOCAL, Score("test")):
        before = engine.run(work, ids, START, zeros(6), key=KEY.at(1))
        after = again.run(work, ids, START, zeros(6), key=KEY.at(1))
        for one, other in zip(before, after, strict=True):
            for name, values in one.fields.items():
                np.testing.assert_array_equal(values, other.fields[name])
    again.store.forget(np.array([2, 77]))
    assert 2 not in again.store.state().ids
    empty = ClientStore().state()
    assert [values.size for values in (empty.ids, empty.vectors, empty.spans)] == [0, 0, 0]
    again.store.restore(empty)
    assert again.store.keep is None


def test_an_update_that_is_not_finite_is_not_kept() -> None:
    inner = FaultyEngine(SerialEngine(runner()), Faults(hostile={1: "nan"}))
    engine = KeepingEngine(inner)
    engine.run(LOCAL, np.arange(3), START, zeros(3), key=KEY)
    assert engine.store.state().ids.tolist() == [0, 2]


def test_the_ledger_counts_what_passes() -> None:
    with make_clients(blobs(), NET, SOLVER, "serial") as clients:
        ids = np.arange(3)
        clients.run(LOCAL, ids, START, zeros(3), key=KEY)
        clients.run(Score("train"), ids, START + 1, zeros(3), key=KEY.of("choose"))
        down, up, scored, _ = clients.ledger.blocks
    moves = LAYOUT.d - HEAD.size
    assert down.bytes.tolist() == scored.bytes.tolist() == [4 * moves] * 3
    assert up.models.tolist() == [1] * 3
    assert up.bytes.tolist() == [4 * moves + 2 * 4] * 3
    assert "delta" in up.fields


def test_validation_expects_what_moves() -> None:
    everything = Counting()  # an engine that lets everything out
    with Clients(everything) as clients:  # type: ignore[arg-type]
        reply = clients.run(LOCAL, np.arange(3), START, zeros(3), key=KEY)
    assert len(reply) == 0
    assert dict(clients.ledger.refused) == {"shape": 3}


def test_a_trial_starts_as_it_was_sent_and_leaves_no_trace() -> None:
    engine = KeepingEngine(SerialEngine(runner()))
    ids = np.arange(4)
    trial = replace(LOCAL, trial=True)
    (first,) = engine.run(trial, ids, START, zeros(4), key=KEY)
    assert not len(engine.store.ids())
    engine.run(LOCAL, ids, START, zeros(4), key=KEY)
    heads = engine.store.state().vectors
    (again,) = engine.run(trial, ids, START, zeros(4), key=KEY)
    np.testing.assert_array_equal(again.fields["delta"], first.fields["delta"])
    np.testing.assert_array_equal(engine.store.state().vectors, heads)


def test_a_slice_leaves_beside_what_stays() -> None:
    """FedClust's clients send one layer; here another one stays."""
    ids = np.arange(4)
    (whole,) = SerialEngine(runner()).run(Train(), ids, START, zeros(4), key=KEY)
    work = replace(LOCAL, upload=(3, 9))
    for one in (work, replace(work, trial=True)):
        (reply,) = KeepingEngine(SerialEngine(runner())).run(one, ids, START, zeros(4), key=KEY)
        np.testing.assert_array_equal(reply.fields["delta"], whole.fields["delta"][:, 3:9])


class Net(nn.Module):
    """Named layers, and a normalisation with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Linear(2, 2)
        self.bn = nn.BatchNorm1d(2)
        self.conv2 = nn.Linear(2, 2)
        self.conv20 = nn.Linear(2, 2)
        self.fc = nn.Linear(2, 1)


@pytest.mark.parametrize(
    ("names", "spans"),
    [
        (["conv2"], [(10, 16)]),
        (["conv2*"], [(10, 22)]),
        (["*.bias", "conv1"], [(0, 6), (8, 10), (14, 16), (20, 22), (24, 25)]),
        (["fc.weight"], [(22, 24)]),
        (["head"], [(22, 25)]),
        (["body"], [(0, 22), (25, 29)]),
        (["norm"], [(6, 10), (25, 29)]),
        (["head", "norm"], [(6, 10), (22, 29)]),
    ],
)
def test_layers_by_name(names: list[str], spans: list[tuple[int, int]]) -> None:
    assert layers_to_keep(Net(), names) == Keep(tuple(spans))


def test_names_that_are_no_layers() -> None:
    wrong: list[tuple[list[str], Code]] = [
        (["conv3"], "not-found"),
        ([], "missing"),
        (["body", "head"], "out-of-range"),
    ]
    for names, code in wrong:
        with refuses(ct.ConfigError, code, "a.layers"):
            layers_to_keep(Net(), names, "a.layers")
    with refuses(ct.ConfigError, "not-found", "algorithm.layers"):
        layers_to_keep(NET, ["norm"])


@pytest.mark.parametrize("spans", [(), ((2, 2),), ((0, 3), (2, 4)), ((4, 6), (0, 1)), ((-1, 2),)])
def test_spans_that_are_none(spans: Any) -> None:
    with pytest.raises(ValueError, match="spans"):
        Keep(spans)


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="upload"):
        Train(upload=(0, LAYOUT.d), keep=HEAD)
    engine = KeepingEngine(SerialEngine(runner()))
    engine.run(LOCAL, np.arange(2), START, zeros(2), key=KEY)
    with pytest.raises(ValueError, match="changed in a run"):
        engine.run(Train(keep=Keep(((0, 1),))), np.arange(2), START, zeros(2), key=KEY)
    with pytest.raises(ValueError, match="beyond the model"):
        Keep(((0, 99),)).shared(10)
    with refuses(ct.ConfigError, "differs", "algorithm.name"):
        wire.dumps(LOCAL, Train())
    phases = (Phase(HEAD, 1),)
    with refuses(ct.ConfigError, "differs", "algorithm.name"):
        wire.dumps(Train(how=Phases(phases)), Train(how=Phases(phases * 2)))


@pytest.mark.parametrize(
    "work",
    [
        LOCAL,
        Train(how=Steps(5), keep=HEAD, trial=True),
        Train(how=Phases((Phase(HEAD, 1),)), keep=HEAD),
        Score("test", served_by=LOCAL),
    ],
)
def test_clients_of_a_deployment_are_told_only_whether_something_stays(work: Work) -> None:
    local = LOCAL
    if isinstance(work, Train) and isinstance(work.how, Phases):
        local = work
    text = wire.dumps(work, local)
    assert wire.loads(text, wire.Known(local)) == work
    assert "spans" not in text


def test_an_experiment_starts_from_what_clients_keep_and_leaves_no_trace() -> None:
    """What measures see of the clients, and what they leave behind."""
    with make_clients(blobs(), NET, SOLVER, "serial", remember_networks=True) as clients:
        assert clients.stores.networks is not None
        clients.run(LOCAL, np.arange(2), START, zeros(2), key=KEY)
        kept = clients.stores.parts.state()
        remembered = clients.stores.networks.state()
        ids = np.arange(3)
        served = clients.served_models(ids, Served(START, zeros(4)), KEY)
        for client in ids.tolist():
            assert torch.equal(served[client], kept.put_into(START[0], client))
        trial = clients.on_trial()
        again = trial.run(LOCAL, ids, START, zeros(3), key=KEY.of("again"))
        first = clients.on_trial().run(LOCAL, ids, START, zeros(3), key=KEY.of("again"))
        clients.forgetful().run(Train(), ids, served, ids, key=KEY, counts=False)
        # A trial begins with what the clients kept before it, and a second one as the first.
        assert (again.fields["delta"] == first.fields["delta"]).all()
        assert trial.simulated is not None
        for store, before in ((clients.stores.parts, kept), (clients.stores.networks, remembered)):
            assert store.ids().tolist() == before.ids.tolist() == [0, 1]
            assert (store.state().vectors == before.vectors).all()
        moved = trial.served_models(ids, Served(START, zeros(4)), KEY)
        assert not torch.equal(moved[0], served[0])
        assert not torch.equal(moved[2], START[0])
        # Two clients were sent a model in the run, and no client in an experiment.
        assert [block.clients.tolist() for block in clients.ledger.read().blocks] == [[0, 1]] * 2

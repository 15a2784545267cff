"""Ray: the bits of serial on a cluster of several nodes, one of which dies in mid-run."""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.cli.main import invoke
from coterie.clients.clients import Clients
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.training import Steps
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train
from coterie.engines import SerialEngine
from coterie.experiment import check
from coterie.local import LocalRunner
from coterie.local.device import Device
from coterie.methods.algorithm import as_algorithm
from coterie.runs.data import read_inputs
from coterie.tasks import CLASSIFICATION
from tests.conftest import PATIENCE, assert_near, blobs, small_net
from tests.contract import test_algorithms as contract
from tests.refusals import refuses

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed"
)
SOLVER = Solver(epochs=1, batch_size=10, lr=0.1)
MEMORY = 80 * 2**20


@contextmanager
def cluster_of(nodes: int) -> Iterator[Any]:
    """A head without cores, and nodes of one core each."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


class Crew:
    """``(runner, options) -> engine``; an engine takes up the actors of the one before."""

    def __init__(self, address: str) -> None:
        from coterie.engines.ray import connect

        self.address = address
        self.engine = None
        connect(address)

    def __call__(self, runner: LocalRunner, **options: Any) -> Any:
        from coterie.engines.ray import ActorOptions, Cluster, RayEngine

        spare = self.engine.release() if self.engine else []
        cluster = Cluster(self.address, patience=90.0)
        self.engine = RayEngine(runner, cluster, ActorOptions(**options), spare=spare)
        return self.engine


@pytest.mark.slow
def test_on_a_cluster_of_three_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that needs one, in one test, since a cluster takes long to start. The last but one kills
    a node."""
    with cluster_of(2) as cluster:
        crew = Crew(cluster.address)
        with monkeypatch.context() as brief:
            every_algorithm_gives_the_bits_of_serial(crew, brief)
        actors_score_for_the_main_process(crew, monkeypatch)
        a_shift_reaches_the_actors(crew)
        samples_read_where_the_actor_is(crew, tmp_path)
        actors_that_train_many_clients_at_once(crew)
        a_client_that_raises_is_named(crew)
        a_lost_actor_is_replaced(crew, tmp_path)
        a_node_that_joins_in_mid_run_gets_work(crew, cluster, monkeypatch)
        a_node_killed_in_mid_run_changes_nothing(crew, cluster)
        a_round_timeout_leaves_stragglers_out(crew)


class Kept:
    """An engine that its clients do not close."""

    def __init__(self, engine: Any) -> None:
        self.run = engine.run
        self.set_population = engine.set_population

    def close(self) -> None:
        pass


def ask(engine: Any, net: nn.Module, clients: int, work: Train = Train(), round: int = 0) -> Reply:
    ids = np.arange(clients)
    models = torch.stack([flatten(net), 0.9 * flatten(net)])
    return Clients(Kept(engine)).run(work, ids, models, ids % 2, key=Key(1).at(round))


def same(a: Reply, b: Reply) -> None:
    assert np.array_equal(a.ids, b.ids)
    assert all(np.array_equal(a.fields[name], b.fields[name]) for name in a.fields)


def every_algorithm_gives_the_bits_of_serial(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of each. Actors are made once for all methods that train the same network."""
    monkeypatch.setattr(contract, "ROUNDS", 2)
    monkeypatch.setattr(contract, "SOLVER", SOLVER)
    data = blobs()
    engine = None
    cases = {name: make(2) for name, make in contract.CASES.items()}
    for name, method in cases.items():
        net = contract.net_for(method)
        if engine is None or engine.runner.layout != LocalRunner(data, net, SOLVER).layout:
            engine = crew(LocalRunner(data, net, SOLVER))
        engine.set_population(data)
        over = contract.states(as_algorithm(method), data, Kept(engine))
        for a, b in zip(contract.run(method, population=data), over, strict=True):
            contract.same(a.groups, b.groups)
            assert contract.timeless(a.row) == contract.timeless(b.row), name


class Tuned(nn.Module):
    """Slow, or failing, or dying once per mark on the disk, as ``how`` says."""

    def __init__(self, how: str, mark: str = "") -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4))
        self.how = how
        self.mark = mark
        self.home = os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "raise" and os.getpid() != self.home:
            raise RuntimeError("no such layer")
        if self.how == "slow" and os.getpid() != self.home:
            time.sleep(0.01)
        if self.how == "die" and os.getpid() != self.home and not Path(self.mark).exists():
            Path(self.mark).touch()
            os._exit(1)
        return self.body(x)


def actors_score_for_the_main_process(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network without compiled code, whose test samples the actors score."""
    from coterie.local.scoring.network import NetworkScorer
    from tests.engines.test_pool_parts import CLIENTS, Residual, population, scores, serial

    torch.manual_seed(0)
    data = population()
    net = Residual()
    which = np.arange(CLIENTS) % 3
    expected = scores(serial(data, net), net, Score("test"), which)
    engine = crew(LocalRunner(data, net, SOLVER))
    ask(engine, net, CLIENTS)
    while engine.members.coming():
        ask(engine, net, CLIENTS)
    with monkeypatch.context() as here:
        here.setattr(NetworkScorer, "per_sample", lambda *_: pytest.fail("no actor scored"))
        found = scores(engine, net, Score("test"), which)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def a_shift_reaches_the_actors(crew: Crew) -> None:
    """Clients that swap their samples, and labels that change, are trained on what they hold
    now."""
    data = blobs()
    net = small_net()
    swapped = data.with_parts((*data.train[6:], *data.train[:6]), data.test)
    relabelled = ct.Population(data.x, (data.y + 1) % 4, data.train, data.test, 4)
    over = crew(LocalRunner(data, net, SOLVER))
    alone = SerialEngine(LocalRunner(data, net, SOLVER))
    before = ask(over, net, 12)
    for population in (data, swapped, relabelled):
        over.set_population(population)
        alone.set_population(population)
        same(ask(alone, net, 12), ask(over, net, 12))
    assert not np.array_equal(before.fields["delta"], ask(over, net, 12).fields["delta"])


def read(path: str) -> Tensor:
    return torch.from_numpy(np.load(path))


def samples_read_where_the_actor_is(crew: Crew, tmp_path: Path) -> None:
    data = blobs()
    net = small_net()
    file = str(tmp_path / "x.npy")
    np.save(file, data.x.numpy())
    over = crew(LocalRunner(data, net, SOLVER), load=partial(read, file))
    same(ask(SerialEngine(LocalRunner(data, net, SOLVER)), net, 12), ask(over, net, 12))
    other = ct.Population(data.x + 1, data.y, data.train, data.test, 4)
    with refuses(ct.DataError, "differs", "engine.samples"):
        ask(crew(LocalRunner(other, net, SOLVER), load=partial(read, file)), net, 12)


def test_samples_as_a_configuration_names_them() -> None:
    tables: dict[str, Any] = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 6}},
        "model": {"name": "mclr"},
        "train": {"rounds": 1, "clients_per_round": 6},
        "algorithm": {"name": "fedavg"},
    }
    found = read_inputs(check(tables).resolved())
    assert torch.equal(found, ct.load("digits", partition={"kind": "iid", "clients": 6}).x)


def actors_that_train_many_clients_at_once(crew: Crew) -> None:
    data = blobs()
    net = Tuned("").body
    over = ask(crew(LocalRunner(data, net, SOLVER), each="vmap", device=Device("cpu")), net, 12)
    alone = ask(SerialEngine(LocalRunner(data, net, SOLVER)), net, 12)
    assert_near(over.fields["delta"], alone.fields["delta"], 1e-4)


def a_client_that_raises_is_named(crew: Crew) -> None:
    with pytest.raises(ct.CoterieError) as caught:
        ask(crew(LocalRunner(blobs(), Tuned("raise"), SOLVER)), Tuned("raise"), 1, round=7)
    assert caught.value.code == 2
    assert caught.value.problems[0].path == "client 0"
    assert "no such layer" in str(caught.value)


def a_lost_actor_is_replaced(crew: Crew, tmp_path: Path) -> None:
    data = blobs()
    net = Tuned("die", str(tmp_path / "died"))
    same(
        ask(SerialEngine(LocalRunner(data, net, SOLVER)), net, 12),
        ask(crew(LocalRunner(data, net, SOLVER)), net, 12),
    )
    assert (tmp_path / "died").exists()


def a_node_that_joins_in_mid_run_gets_work(
    crew: Crew, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.engines.ray import members

    monkeypatch.setattr(members, "LOOK", 0.0)
    data = blobs(clients=24)
    net = Tuned("slow")
    engine = crew(LocalRunner(data, net, SOLVER))
    alone = SerialEngine(LocalRunner(data, net, SOLVER))
    same(ask(alone, net, 24), ask(engine, net, 24))
    before = engine.members.count
    cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        same(ask(alone, net, 24, round=1), ask(engine, net, 24, round=1))
        if engine.members.count > before and not engine.members.coming():
            break
    assert engine.members.count == len(engine.members.all) == before + 1
    assert not engine.members.coming(), "its actor answered"


def a_node_killed_in_mid_run_changes_nothing(crew: Crew, cluster: Any) -> None:
    data = blobs(clients=24)
    net = Tuned("slow")
    long = Solver(epochs=3, batch_size=5, lr=0.1)
    engine = crew(LocalRunner(data, net, long))
    alone = SerialEngine(LocalRunner(data, net, long))
    end = time.monotonic() + PATIENCE
    ask(engine, net, 1)
    while engine.members.coming() and time.monotonic() < end:
        ask(engine, net, 2)
    before = list(engine.members.all)
    node = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    killer = threading.Timer(0.4, lambda: cluster.remove_node(node, allow_graceful=False))
    killer.start()
    found = ask(engine, net, 24)
    killer.join()
    same(ask(alone, net, 24), found)
    left = [member for member in before if member in engine.members.all]
    assert len(left) == len(before) - 1, "the node took its actor with it"
    same(ask(alone, net, 24, round=1), ask(engine, net, 24, round=1))


def a_round_timeout_leaves_stragglers_out(crew: Crew) -> None:
    data = blobs(clients=40)
    net = Tuned("slow")
    engine = crew(LocalRunner(data, net, SOLVER))
    ask(engine, net, 1)  # the actors are there
    engine.round_timeout = 1.0
    reply = ask(engine, net, 40, Train(how=Steps(10)))
    assert 0 < len(reply) < 40
    expected = ask(SerialEngine(LocalRunner(data, net, SOLVER)), net, 40, Train(how=Steps(10)))
    assert np.array_equal(reply.fields["delta"], expected.fields["delta"][reply.ids])


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from coterie.engines.ray import connect

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        ray, "init", lambda **given: (_ for _ in ()).throw(ConnectionError("nobody\nlistens"))
    )
    with refuses(ct.ConfigError, "unreachable", "engine.address"):
        connect("auto")
    with refuses(ct.ConfigError, "unreachable", "engine.address"):
        connect("127.0.0.1:1")


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options arrive; the engine itself is tried above."""
    from coterie.engines import ray as module

    made: list[tuple[Any, ...]] = []

    def engine(runner: LocalRunner, *given: Any) -> SerialEngine:
        made.append(given)
        return SerialEngine(runner)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "RayEngine", engine)
    Path("run.toml").write_text(
        'data = {source = "digits", partition = {kind = "planted", clients = 8, groups = 2}}\n'
        'model = {name = "mclr"}\nlocal = {epochs = 1}\ntrain = {rounds = 1, clients_per_round = 4}\n'
        'algorithm = {name = "fedavg"}\n'
    )
    at = (
        "--ray-address",
        "head:6379",
        "--workers",
        "3",
        "--set",
        "engine.samples=path",
        "--set",
        "engine.each=vmap",
    )
    assert invoke(["run", "run.toml", "--engine", "ray", *at, "--out", "one"]) == 0
    cluster, actors, timeout = made[0]
    assert (cluster.address, cluster.workers, timeout) == ("head:6379", 3, None)
    assert (actors.each, actors.device) == ("vmap", Device("auto"))
    assert len(actors.load()) == 1797
    assert invoke(["run", "run.toml", "--ray-address", "auto", "--out", "two"]) == 2


def test_an_actor_trains_as_serial_does_and_keeps_what_it_was_sent() -> None:
    """What an actor does, in this process: shards come once, and are forgotten when it is told
    so."""
    from coterie.engines.ray.actor import Actor, ActorJob, ActorOptions, Equipment

    data = blobs(clients=3)
    net = small_net()
    x = data.x[torch.from_numpy(np.concatenate(data.train))].numpy()
    ends = np.cumsum([0, *(len(rows) for rows in data.train)]).tolist()
    labels = tuple(data.y[torch.from_numpy(rows)].numpy() for rows in data.train)
    places = tuple((("all", 1), slice(a, b)) for a, b in pairwise(ends))
    keys = tuple(Key(1).at(0).client(i) for i in range(3))
    models = torch.stack([flatten(net), 0.9 * flatten(net)]).numpy()
    which = np.array([0, 1, 0])
    job = ActorJob(Train(), keys, which, labels, places, (("all", 1),))
    expected = ask(SerialEngine(LocalRunner(data, net, SOLVER)), net, 3)
    for each, within in (("serial", 0.0), ("vmap", 1e-4)):
        actor = Actor()
        equipment = Equipment(
            net, SOLVER, (), CLASSIFICATION, ActorOptions(each, device=Device("cpu"))
        )
        assert actor.equip(equipment) == ""
        for given, shards in ((job, (x,)), (replace(job, fresh=()), ())):
            delta, size, loss, seconds = actor.train(given, models, *shards)
            assert_near(delta, expected.fields["delta"], within)
            assert size.tolist() == expected.fields["size"].tolist()
            assert_near(loss, expected.fields["loss"], within)
            assert seconds > 0
        error, _ = actor.train(replace(job, fresh=(), stale=(("all", 1),)), models)
        assert isinstance(error, ct.CoterieError)
        assert not actor.shards


def test_an_actor_trains_on_the_threads_that_it_is_told() -> None:
    from coterie.engines.ray.actor import Actor, ActorJob, ActorOptions, Equipment
    from tests.engines.test_engine_threads import OnThreads

    data = blobs(clients=1)
    net = OnThreads(2)
    (rows,) = data.train
    index = torch.from_numpy(rows)
    actor = Actor()
    equipment = Equipment(net, SOLVER, (), CLASSIFICATION, ActorOptions(threads=2))
    actor.equip(equipment)
    labels = (data.y[index].numpy(),)
    places = ((("all", 1), slice(None)),)
    key = Key(1).at(0).client(0)
    job = ActorJob(Train(), (key,), np.zeros(1, np.int64), labels, places, (("all", 1),))
    delta, *_ = actor.train(job, flatten(net)[None].numpy(), data.x[index].numpy())
    expected = ask(SerialEngine(LocalRunner(data, net, SOLVER), threads=2), net, 1)
    assert np.array_equal(delta, expected.fields["delta"])


class FakeRay:
    """A cluster in words, which notes what it is asked for and starts nothing.

    Args:
        cores: of each node; of one that has died, with a minus sign.
        memory: bytes of its object store.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *cores: int, memory: float = 0.0) -> None:
        self.begun: list[int | None] = []
        self.needs: list[dict[str, int]] = []
        self.equipped: list[Any] = []
        nodes = [{"Alive": n >= 0, "Resources": {"CPU": float(abs(n))}} for n in cores]
        resources = {"CPU": float(sum(n for n in cores if n > 0)), "object_store_memory": memory}
        monkeypatch.setattr("ray.nodes", lambda: nodes)
        monkeypatch.setattr("ray.cluster_resources", lambda: resources)
        monkeypatch.setattr("ray.put", lambda value: value)
        monkeypatch.setattr("ray.remote", self._remote)
        monkeypatch.setattr(
            "coterie.engines.ray.members.connect", lambda _, cores: self.begun.append(cores)
        )

    def _remote(self, **needs: Any) -> Any:
        self.needs.append(needs)
        return lambda actor: SimpleNamespace(remote=self._handle)

    def _handle(self) -> Any:
        equip = SimpleNamespace(remote=lambda *given: self.equipped.append(given))
        return SimpleNamespace(extend_path=SimpleNamespace(remote=lambda path: None), equip=equip)


def test_an_actor_asks_for_cores_for_its_threads_on_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coterie.engines.ray import ActorOptions, Cluster, RayEngine

    fake = FakeRay(monkeypatch, 3, 3, -8, 0)
    # A cluster that is started here has cores for all of them.
    monkeypatch.setattr("coterie.engines.ray.members.cores", lambda: 4)

    def actors(workers: int | None, threads: int) -> int:
        runner = LocalRunner(blobs(), small_net(), SOLVER)
        options = ActorOptions(threads=threads)
        members = RayEngine(runner, Cluster(None, workers), options).members
        members.ensure()
        assert fake.needs.pop()["num_cpus"] == threads
        return len(members.all)

    assert [actors(None, 2), actors(None, 1), actors(3, 2)] == [2, 6, 3]
    assert fake.begun == [None, None, 6]
    fake.begun.clear()
    for threads in (4, 5):
        actors(None, threads)
    assert fake.begun == [None, 5]


def test_actors_score_the_test_samples_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What actors and the main process do, in this process: the bits of one that scores alone, by
    samples that are stored once."""
    from coterie.engines.ray import RayEngine
    from coterie.engines.ray.actor import Actor, Equipment
    from tests.engines.test_pool_parts import CLIENTS, Residual, population, scores, serial

    torch.manual_seed(0)
    data = population()
    net = Residual()
    stored: list[Any] = []
    monkeypatch.setattr("ray.put", lambda value: stored.append(value) or value)
    monkeypatch.setattr("ray.get", lambda values: values)
    engine = RayEngine(LocalRunner(data, net, SOLVER))
    equipment = Equipment(net, SOLVER, (), CLASSIFICATION)
    answered: list[int] = []

    def member() -> Any:
        actor = Actor()
        actor.equip(equipment)

        def score(job: Any, *given: Any) -> Any:
            answered.append(sum(len(rows) for rows in job.rows))
            return actor.score(job, *given)

        return SimpleNamespace(
            coming=None, handle=SimpleNamespace(score=SimpleNamespace(remote=score))
        )

    engine.members.all = [member() for _ in range(3)]
    engine.members.room = 2**20
    which = np.arange(CLIENTS) % 3
    # Twice, and not the same: what is known is not scored again.
    for work in (Score("test"), Score("test", loss=False)):
        expected = scores(serial(data, net), net, work, which)
        found = scores(engine, net, work, which)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert len(answered) == 6
    assert sum(answered) == 2 * expected["size"].sum()
    assert len(stored) == 4, "inputs and targets once, models in each of two rounds"

    # Samples that only changed hands stay where they are.
    later = replace(data, test=(*data.test[1:], data.test[0]))
    engine.set_population(later)
    found = scores(engine, net, Score("test"), which)
    expected = scores(serial(later, net), net, Score("test"), which)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert len(stored) == 5

    # What does not fit the store, and what an actor cannot score, is scored by this process.
    answered.clear()
    fewer = replace(later, test=(later.test[0][:-1], *later.test[1:]))
    engine.set_population(fewer)
    engine.members.room = 10.0
    scores(engine, net, Score("test"), which)
    assert not answered
    engine.members.room = 2**20
    monkeypatch.setattr(Actor, "score", lambda *_: None)
    without_loss = Score("test", loss=False)
    found = scores(engine, net, without_loss, which)
    assert len(answered) == 3
    expected = scores(serial(fewer, net), net, without_loss, which)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_shards_that_were_not_used_for_long_leave_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coterie.engines.ray import RayEngine

    monkeypatch.setattr("ray.put", lambda x: x)
    data = ct.load("synthetic", partition={"kind": "given"}, clients=6, lazy=True)
    store = RayEngine(LocalRunner(data, nn.Linear(60, 10), SOLVER)).store
    first = store.get(0)
    assert list(first.where) == [0], "made alone, not with its neighbours"
    store.room = float(first.size + store.get(1).size + store.get(2).size)
    for number in (0, 1, 2, 0, 3):
        assert store.get(number).size > 0
        assert store.stored == sum(shard.size for shard in store.shards.values())
        assert store.stored <= store.room or len(store.shards) == 1
    assert 1 not in store.shards
    assert store.get(1).name != (1, 2), "it comes back under a new name"


def test_an_actor_is_sent_a_shard_once_and_told_to_forget_the_oldest() -> None:
    from coterie.engines.ray import Member

    member = Member(None, None)
    assert [member.take((number, 1), 10) for number in (0, 1, 0, 2)] == [True, True, False, True]
    assert member.forget(30, {(2, 1)}) == ()
    assert member.forget(20, {(2, 1)}) == ((1, 1),)
    assert member.take((1, 1), 10)


def sent_at_the_start(monkeypatch: pytest.MonkeyPatch, data: Any, memory: float, **options: Any):
    """The shards that the only actor of a cluster gets before it trains."""
    from coterie.engines.ray import ActorOptions, RayEngine

    fake = FakeRay(monkeypatch, 1, memory=memory)
    net = small_net() if data.shape == (6,) else nn.Linear(60, 10)
    members = RayEngine(LocalRunner(data, net, SOLVER), actors=ActorOptions(**options)).members
    members.ensure()
    (member,) = members.all
    ((_, names, *shards),) = fake.equipped
    assert list(member.held) == names
    assert len(names) == len(shards)
    return shards


def test_an_actor_is_sent_few_samples_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    data = blobs()
    samples = int(data.sizes("train").sum())
    first = partial(sent_at_the_start, monkeypatch)
    assert sum(len(shard) for shard in first(data, 1e6)) == samples
    # Where there are more than it may keep, shards are sent when a client of theirs trains.
    assert not first(data, 10.0)
    lazy = ct.load("synthetic", partition={"kind": "given"}, clients=6, lazy=True)
    assert not first(lazy, 1e9)
    # Tokens have eight bytes each. Half of the store is for models and updates.
    tokens = replace(data, x=data.x.to(torch.int64))
    size = 8 * 6 * samples
    assert not first(tokens, 2.0 * size - 1)
    assert sum(len(shard) for shard in first(tokens, 2.0 * size)) == samples
    # Nor where each node reads its own.
    assert not first(data, 1e6, load=lambda: data.x)

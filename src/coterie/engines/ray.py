"""Actors over a Ray cluster, one a core or a GPU. Nothing else imports Ray.

Models go into the object store once a round, and a node reads its copy without copying again; small
ones, and small updates, travel with the call, which takes a tenth of the time. Samples go there
once, too, in shards of a few neighbouring clients that a node fetches when it first needs one; or
each actor reads them from its own node's disk. Which of its samples a client holds travels with the
work, so an actor keeps nothing that a shift could change, and any actor can train any client: what
a lost actor or node was at is done again by another. Since each client draws from its own key, the
result is that of ``serial`` to the bit.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.work import Train
from coterie.data.population import Population
from coterie.engines.actor import Actor, Each, Equipment, Job, Load, fingerprint
from coterie.engines.simulation import SimulationEngine
from coterie.errors import ConfigError, CoterieError, DataError, RemoteError
from coterie.local import LocalRunner
from coterie.local.device import Device, Precision

_SHARD = (
    2 * 2**20
)  # bytes; large enough that a transfer is worth its call, small enough to hold what is not asked for
_SHORT = 0.2  # seconds of work for an actor, below which a round is dealt in one call each
_LEAST = 0.05  # seconds that a call is worth
_SMALL = 96 * 2**10  # bytes of a value that Ray sends with the call, without its object store
_PIECES = 64  # values of that size that are still faster than one in the store
_DEEP = 2  # calls an actor has at hand, so that it need not wait for the next


@dataclass(frozen=True, slots=True)
class Shard:
    """The samples of some clients in the object store, and which rows are whose; what changes gets
    a new name."""

    name: tuple[int, int]
    ref: Any
    size: int
    where: dict[int, slice]


@dataclass(eq=False)
class Member:
    """An actor as the driver sees it: the call that says it is there, and what it is at."""

    handle: Any
    coming: Any
    at: dict[Any, IntArray] = field(default_factory=dict)
    pieces: dict[Any, list[Any]] = field(default_factory=dict)  # of a call's updates
    held: OrderedDict[tuple[int, int], int] = field(
        default_factory=OrderedDict
    )  # shards and their bytes

    def take(self, name: tuple[int, int], size: int) -> bool:
        """Whether the actor must be sent a shard; from now on it holds it."""
        new = name not in self.held
        self.held[name] = size
        self.held.move_to_end(name)
        return new

    def forget(self, room: float, needed: set[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """The shards to be dropped so that the others take no more than ``room`` bytes."""
        total = sum(self.held.values())
        stale = []
        for name in [name for name in self.held if name not in needed]:
            if total <= room:
                break
            total -= self.held.pop(name)
            stale.append(name)
        return tuple(stale)


class RayEngine(SimulationEngine):
    """Deals clients to actors over a cluster, longest first.

    Args:
        runner: the population, the module and the solver.
        address: of the cluster, ``auto`` for the one that runs on this machine; ``None``: that of
            ``RAY_ADDRESS``, else one is started here.
        workers: actors; default one per core of the cluster, or per GPU where ``each`` is ``vmap``
            and it has some.
        round_timeout: seconds after which clients without an update are left out, ``None``: wait
            for all.
        each: how an actor trains, ``serial`` or ``vmap``.
        load: reads all samples ``[S, ...]`` on the actor's node; ``None``: they are sent in shards.
        device: of a ``vmap`` actor, ``auto``: the GPU that Ray gives it.
        precision: of a ``vmap`` actor.
        graphs: of a ``vmap`` actor.
        memory: of a ``vmap`` actor, GiB.
        retries: how often a client is run again after its actor was lost.
        patience: seconds without a single actor after which the run ends.
        spare: actors that another engine let go (``release``), taken up before new ones are asked
            for.

    Raises:
        ConfigError: when it first trains, if there is no such cluster.
        ConfigError: for ``load`` where samples are made client by client.
        DataError: if a node reads other samples than the run's.
    """

    def __init__(
        self,
        runner: LocalRunner,
        address: str | None = None,
        workers: int | None = None,
        round_timeout: float | None = None,
        each: Each = "serial",
        load: Load | None = None,
        device: str = "auto",
        precision: Precision = "float32",
        graphs: bool = False,
        memory: float | None = None,
        retries: int = 3,
        patience: float = 120.0,
        spare: Sequence[Any] = (),
    ) -> None:
        if load is not None and runner.population.lazy:
            what = "nobody holds all samples of a federation that is made client by client"
            raise ConfigError(f"engine.samples: {what}, got 'path'; expected 'shard'")
        super().__init__(runner)
        self.address = address
        self.workers = workers
        self.round_timeout = round_timeout
        self.each = each
        self.load = load
        self.memory = memory
        self.device = Device(device, precision, graphs)
        self.retries = retries
        self.patience = patience
        self.members: list[Member] = []
        self.count = 0
        self.pace = float("inf")
        self.room = 0.0
        self.spare = list(spare)
        self.ours = False
        self.lost = 0
        self.print = ""
        self._deal_shards()

    # --- samples ----------------------------------------------------------------------------------

    def _deal_shards(self) -> None:
        """Which shard each client is in: neighbours, a few MB of samples in each; alone where
        samples are made."""
        population = self.runner.population
        sample = int(np.prod(population.shape, dtype=np.int64)) * 4
        ends = np.cumsum(population.sizes("train") * sample)
        alone = np.arange(population.clients)
        self.shard_of = alone if population.lazy else np.concatenate([[0], ends[:-1]]) // _SHARD
        self.shards: OrderedDict[int, Shard] = OrderedDict()
        self.version = self.stored = 0

    def _shard(self, number: int) -> Shard:
        """A shard, put into the object store if it is not there as it is now; those unused the
        longest leave it."""
        if number not in self.shards:
            population = self.runner.population
            first, last = np.searchsorted(self.shard_of, [number, number + 1])
            clients = range(int(first), int(last))
            ends = np.cumsum([0, *(len(population.train[i]) for i in clients)]).tolist()
            held = np.concatenate([population.train[i] for i in clients])
            x = population.x[torch.from_numpy(held)].numpy()
            where = {i: slice(a, b) for i, a, b in zip(clients, ends, ends[1:], strict=False)}
            self.version += 1
            self.shards[number] = Shard((number, self.version), ray.put(x), x.nbytes, where)
            self.stored += x.nbytes
            while self.stored > self.room * self.count and len(self.shards) > 1:
                self._drop(next(iter(self.shards)))
        self.shards.move_to_end(number)
        return self.shards[number]

    def _drop(self, number: int) -> None:
        """Let a shard leave the object store, as soon as no call needs it."""
        if number in self.shards:
            self.stored -= self.shards.pop(number).size

    def set_population(self, population: Population) -> None:
        before = self.runner.population
        if population.x is not before.x:
            self.shards.clear()
            self.stored = 0
        for at, (old, new) in enumerate(zip(before.train, population.train, strict=True)):
            if old is not new:
                self._drop(int(self.shard_of[at]))
        self.runner.set_population(population)

    # --- a round ----------------------------------------------------------------------------------

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        self._ensure()
        end = None if self.round_timeout is None else time.monotonic() + self.round_timeout
        delta = np.empty((len(ids), models.shape[1]), np.float32)
        told = np.zeros((2, len(ids)))
        done = np.zeros(len(ids), bool)
        spent = 0.0
        for places, result in self._results(work, ids, models, which, key, end):
            delta[places], told[0, places], told[1, places], seconds = result
            done[places] = True
            spent = spent + seconds
        steps = float(self.runner.steps(work, ids[done]).sum())
        self.pace = spent / steps if steps else self.pace
        fields = {"delta": work.uploaded(delta[done]), "size": told[0, done], "loss": told[1, done]}
        return [Reply(key.round, ids[done], fields, key.purpose)]

    def _results(
        self,
        work: Train,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
        end: float | None,
    ) -> Iterator[tuple[IntArray, Any]]:
        """What comes home, call by call, until all is there or the time is over."""
        calls = self._caller(work, ids, models, which, key)
        tasks = deque(self._cut(work, ids))
        lost = Counter[int]()
        alone = time.monotonic() + self.patience
        try:
            while tasks or any(member.at for member in self.members):
                for _ in range(_DEEP):
                    for member in self.members:
                        if tasks and member.coming is None and len(member.at) < _DEEP:
                            places = tasks.popleft()
                            member.at[calls(member, places)] = places
                now = time.monotonic()
                alone = (
                    now + self.patience
                    if any(member.coming is None for member in self.members)
                    else alone
                )
                if now > alone:
                    raise RemoteError(self._nobody())
                if end is not None and now > end:
                    return
                for member, call in self._wait(
                    min(1.0, alone - now, *([end - now] if end else []))
                ):
                    places, result = self._take(member, call)
                    if result is not None:
                        yield places, result
                    elif member not in self.members:
                        tasks.extendleft(member.at.values())
                        lost.update(int(place) for places in member.at.values() for place in places)
                        self._check(lost, ids, key)
        finally:
            for member in [member for member in self.members if member.at]:
                ray.kill(member.handle)  # what it is still at is of no use any more
                self.members.remove(member)

    def _caller(self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key) -> Any:
        """``(actor, places in ids) -> call``. Models that clients share go into the object store,
        once."""
        used, rows = np.unique(which, return_inverse=True)
        values = models.numpy()
        population = self.runner.population
        shared = values[used] if len(used) < len(ids) else None
        if shared is not None and shared.nbytes > _SMALL:
            shared = ray.put(shared)

        def call(member: Member, places: IntArray) -> Any:
            some = ids[places].tolist()
            held = [torch.from_numpy(population.train[i]) for i in some]
            fresh: list[Shard] = []
            where: list[tuple[Any, Any]] = []
            for i, mine in zip(some, held, strict=True):
                if self.load is not None:
                    where.append((None, mine.numpy()))
                    continue
                shard = self._shard(int(self.shard_of[i]))
                fresh += [shard] if member.take(shard.name, shard.size) else []
                where.append((shard.name, shard.where[i]))
            stale = member.forget(self.room, {name for name, _ in where})
            row = rows[places] if shared is not None else np.arange(len(places))
            keys = tuple(key.client(i) for i in some)
            labels = tuple(population.y[mine].numpy() for mine in held)
            pieces = -(-len(places) * values[0].nbytes // _SMALL)
            pieces = pieces if pieces <= _PIECES else 0
            job = Job(
                work,
                keys,
                row,
                labels,
                tuple(where),
                tuple(shard.name for shard in fresh),
                stale,
                pieces,
            )
            given = values[which[places]] if shared is None else shared
            calling = member.handle.call.options(num_returns=1 + pieces)
            told = calling.remote(job, given, *(shard.ref for shard in fresh))
            if pieces:
                told, *rest = told
                member.pieces[told] = rest
            return told

        return call

    def _cut(self, work: Train, ids: IntArray) -> list[IntArray]:
        """Calls, the longest clients first, each a part of what is left; one for each actor where a
        round is short.

        A call costs milliseconds, ten and more where updates go through the object store: so each
        has work for several times that, and where a round is short, an even share of the steps is
        better than a choice at the end.
        """
        steps = self.runner.steps(work, ids)
        order = np.argsort(-steps, kind="stable")
        actors = max(1, len(self.members))
        if self.round_timeout is not None and self.each == "serial":
            return np.split(order, range(1, len(order)))  # what is done in time comes home
        if self.pace * steps.sum() < _SHORT * actors:
            return shares(order, steps, actors)
        part = actors if self.each == "vmap" else 2 * actors
        least = _LEAST / self.pace if self.pace < float("inf") else 0
        before = np.concatenate([[0], np.cumsum(steps[order])])
        calls = []
        at = 0
        while at < len(order):
            aim = before[at] + max(least, (before[-1] - before[at]) / part)
            to = max(at + 1, int(np.searchsorted(before, aim, side="right")) - 1)
            calls.append(order[at:to])
            at = to
        return calls

    def _wait(self, seconds: float) -> list[tuple[Member, Any]]:
        """The calls that ended, and whose they are."""
        known = {
            call: member
            for member in self.members
            for call in ([member.coming] if member.coming else member.at)
        }
        if not known:
            time.sleep(seconds)
            return []
        ended, _ = ray.wait(list(known), num_returns=1, timeout=max(0.0, seconds))
        return [(known[call], call) for call in ended]

    def _take(self, member: Member, call: Any) -> tuple[IntArray, Any]:
        """What a call gave; ``None`` where the actor only said that it is there, or was lost and
        replaced."""
        nothing = np.empty(0, np.int64)
        try:
            found = ray.get(call)
            pieces = ray.get(member.pieces.pop(call, []))
        except RayTaskError as error:
            raise self._failed(error) from error
        except RayError as error:
            self.lost += 1
            if self.lost > self.retries + len(self.members):
                line = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise RemoteError(
                    f"engine: {self.lost} actors were lost, and nothing came home ({line})"
                ) from error
            self._replace(member)
            return nothing, None
        if call is member.coming:
            member.coming = None
            if found != self.print:
                what = "a node reads other samples than this one"
                raise DataError(f"engine.samples: {what}, got {found}; expected {self.print}")
            return nothing, None
        self.lost = 0
        if isinstance(found[0], Exception):
            raise found[0] from (RuntimeError(found[1]) if found[1] else None)
        places = member.at.pop(call)
        if pieces:
            found = (np.concatenate(pieces).reshape(len(places), -1), *found[1:])
        return places, found

    def _failed(self, error: RayTaskError) -> Exception:
        """What went wrong in an actor before or beside the training."""
        cause = error.cause
        if isinstance(cause, CoterieError):
            return cause
        if isinstance(cause, ImportError):
            return ConfigError(
                f"engine.name: a node cannot import what the run needs: {cause}; expected it installed"
            )
        return error

    def _check(self, lost: Counter[int], ids: IntArray, key: Key) -> None:
        place, times = lost.most_common(1)[0] if lost else (0, 0)
        if times > self.retries:
            raise RemoteError(
                f"engine: actors were lost {times} times in round {key.round} at client {ids[place]}; "
                f"expected at most {self.retries} times"
            )

    def _nobody(self) -> str:
        got = {
            name: value for name, value in ray.cluster_resources().items() if name in ("CPU", "GPU")
        }
        return (
            f"engine.workers: no node has taken an actor for {self.patience:g} s, got a cluster with {got}; "
            f"expected room for one that asks for {self._asked()}"
        )

    # --- actors -----------------------------------------------------------------------------------

    def _asked(self) -> dict[str, int]:
        gpu = (
            self.each == "vmap"
            and self.device.name != "cpu"
            and ray.cluster_resources().get("GPU", 0) > 0
        )
        if gpu:
            return {"num_cpus": 1, "num_gpus": 1}
        return {"num_cpus": 1}

    def _ensure(self) -> None:
        """A connection, and as many actors as there should be; those that are not there yet may
        come later."""
        if not self.count:
            self._begin()
        self.members += [self._hire() for _ in range(self.count - len(self.members))]

    def _begin(self) -> None:
        self.ours = connect(self.address, self.workers)
        asked = self._asked()
        runner = self.runner
        self.print = "" if self.load is None else fingerprint(torch.as_tensor(runner.population.x))
        own = Equipment(
            runner.module,
            runner.solver,
            runner.decay,
            self.each,
            self.device,
            self.memory,
            self.load,
        )
        self.own = ray.put(own)
        self.remote = ray.remote(**asked, scheduling_strategy="SPREAD", max_restarts=0)(Actor)
        room = ray.cluster_resources().get("GPU" if "num_gpus" in asked else "CPU", 1)
        self.count = self.workers or max(1, int(room))
        self.room = ray.cluster_resources().get("object_store_memory", 0.0) / (2 * self.count)

    def _hire(self) -> Member:
        handle = self.spare.pop() if self.spare else self.remote.remote()
        handle.look_in.remote(list(sys.path))
        return Member(handle, handle.equip.remote(self.own))

    def release(self) -> list[Any]:
        """Let the actors go without ending them: another engine may take them up, which saves their
        start."""
        handles = [member.handle for member in self.members]
        self.members = []
        self.count = 0
        return handles

    def _replace(self, member: Member) -> None:
        """Let an actor go, and ask for another in its place."""
        ray.kill(member.handle)
        self.members[self.members.index(member)] = self._hire()

    def close(self) -> None:
        if ray.is_initialized():
            for member in self.members:
                ray.kill(member.handle)
            if self.ours:
                ray.shutdown()
        self.members = []
        self.count = 0
        self.ours = False
        self.shards.clear()
        self.stored = 0


def shares(order: IntArray, steps: IntArray, count: int) -> list[IntArray]:
    """At most ``count`` even shares: each client, the longest first, goes to the share with the
    fewest steps.

    Example:
        >>> [share.tolist() for share in shares(np.array([2, 0, 1]), np.array([3, 2, 5]), 2)]
        [[2], [0, 1]]
    """
    mine: list[list[int]] = [[] for _ in range(count)]
    total = np.zeros(count)
    for place in order.tolist():
        least = int(total.argmin())
        mine[least].append(place)
        total[least] += max(1, steps[place])
    return [np.array(share, np.int64) for share in mine if share]


def connect(address: str | None, workers: int | None = None) -> bool:
    """Join a cluster, unless this process is in one; whether it is now.

    Raises:
        ConfigError: if there is none at this address.
    """
    if ray.is_initialized():
        return False
    here = (
        {}
        if address or os.environ.get("RAY_ADDRESS")
        else {"num_cpus": workers, "include_dashboard": False}
    )
    try:
        _knock(address)
        with _own_signals():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **here)
    except (RayError, ConnectionError, ValueError, RuntimeError, AssertionError, OSError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        expected = "a cluster that runs (ray start --head), or none to start one here"
        raise ConfigError(
            f"engine.address: cannot join ({line}), got {address!r}; expected {expected}"
        ) from error
    return True


def _knock(address: str | None) -> None:
    """See whether anybody listens at ``host:port``: Ray itself would wait for a minute."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=5).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes over SIGTERM when it starts; who had it gets it back."""
    try:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        yield
    finally:
        for number, handler in before.items():
            try:
                signal.signal(number, handler)
            except ValueError:
                break  # not the main thread, where nobody can have taken them

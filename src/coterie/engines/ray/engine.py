"""Actors over a Ray cluster, one a core or a GPU.

Models go into the object store once a round, and a node reads its copy without copying again; small
ones, and small updates, travel with the call, which takes a tenth of the time. Samples go there
once, too, in shards of a few neighbouring clients that a node fetches when it first needs one; or
each actor reads them from its own node's disk. Which of its samples a client holds travels with the
work, so an actor keeps nothing that a shift could change, and any actor can train any client: what
a lost actor or node was at is done again by another. Since each client draws from its own key, the
result is that of ``serial`` to the bit. Actors score, too, where the network itself does it.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core import IntArray, Key, Reply, Train
from coterie.data.population import Population
from coterie.engines.ray.actor import ActorJob, ActorOptions
from coterie.engines.ray.cluster import Cluster
from coterie.engines.ray.members import Member, Members
from coterie.engines.ray.scoring import ActorScoring
from coterie.engines.ray.shards import ShardStore
from coterie.engines.silence import Silence
from coterie.engines.simulation import CohortUpdates, SimulationEngine
from coterie.errors import RemoteError
from coterie.local import LocalRunner
from coterie.terminal import counted

_SHORT = 0.2  # seconds of work for an actor, below which a round is cut into one call for each
_LEAST = 0.05  # seconds of work that are worth a call
_SMALL = 96 * 2**10  # bytes of a value that Ray sends with the call, without its object store
_PIECES = 64  # values of that size that are still faster than one in the store
_DEEP = 2  # calls an actor has at hand, so that it need not wait for the next


@dataclass(slots=True)
class Pace:
    """How long a step takes an actor, measured in the round before; infinite as long as nothing was
    measured."""

    seconds_per_step: float = math.inf

    def measured(self, seconds: float, steps: float) -> None:
        if steps:
            self.seconds_per_step = seconds / steps

    @property
    def least_steps(self) -> float:
        """Steps that are worth a call; any where nothing was measured."""
        if math.isinf(self.seconds_per_step):
            return 0.0
        return _LEAST / self.seconds_per_step


def cut(steps: IntArray, actors: int, parts: int, pace: Pace) -> list[IntArray]:
    """The calls of a round, as places in ``steps``, the longest clients first. Each has one of
    ``parts`` of the steps left by then.

    A call costs milliseconds, ten and more where updates go through the object store. So each has
    work for several times that, and calls get shorter towards the end, so that actors end together.
    Where a round is short, an even share of the steps for each actor is better than a choice at the
    end.

    Example:
        >>> [call.tolist() for call in cut(np.array([4, 1, 2, 1]), 1, 2, Pace())]
        [[0], [2], [1], [3]]
    """
    order = np.argsort(-steps, kind="stable")
    if pace.seconds_per_step * (steps.sum() / actors) < _SHORT:
        return even_shares(order, steps, actors)
    before = np.concatenate([[0], np.cumsum(steps[order])])
    calls = []
    at = 0
    while at < len(order):
        # A client is not divided. So a call ends with the last client that keeps it within its aim,
        # and has one client at least.
        aim = before[at] + max(pace.least_steps, (before[-1] - before[at]) / parts)
        to = max(at + 1, int(np.searchsorted(before, aim, side="right")) - 1)
        calls.append(order[at:to])
        at = to
    return calls


def even_shares(order: IntArray, steps: IntArray, count: int) -> list[IntArray]:
    """At most ``count`` even shares: each client, the longest first, goes to the share with the
    fewest steps.

    Example:
        >>> [share.tolist() for share in even_shares(np.array([2, 0, 1]), np.array([3, 2, 5]), 2)]
        [[2], [0, 1]]
    """
    mine: list[list[int]] = [[] for _ in range(count)]
    total = np.zeros(count)
    for place in order.tolist():
        least = int(total.argmin())
        mine[least].append(place)
        total[least] += max(1, steps[place])
    return [np.array(share, np.int64) for share in mine if share]


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A request to train, as calls are made of it. ``shared`` is ``None`` where each client has its
    own model, which then travels with the call."""

    work: Train
    ids: IntArray
    models: NDArray[np.float32]
    which: IntArray
    rows: IntArray
    shared: Any
    key: Key


class RayEngine(SimulationEngine):
    """Deals clients to actors over a cluster, longest first.

    Args:
        round_timeout: seconds after which clients without an update are left out, ``None``: wait
            for all.
        spare: actors that another engine let go (``release``), taken up before new ones are asked
            for.
    """

    def __init__(
        self,
        runner: LocalRunner,
        cluster: Cluster | None = None,
        actors: ActorOptions | None = None,
        round_timeout: float | None = None,
        spare: Sequence[Any] = (),
    ) -> None:
        self.actors = actors or ActorOptions()
        super().__init__(runner, round_timeout, self.actors.threads)
        self.cluster = cluster or Cluster()
        self.store = ShardStore(runner.population)
        self.members = Members(runner, self.cluster, self.actors, spare, self.store)
        self.scoring = ActorScoring(runner, self.members)
        self.helpers = self.scoring
        self.pace = Pace()

    def set_population(self, population: Population) -> None:
        self.store.set_population(population)
        self.scoring.samples.set_population(population)
        super().set_population(population)

    # --- a round ----------------------------------------------------------------------------------

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        self.members.ensure()
        end = self.deadline()
        request = _request(work, ids, models, which, key)
        updates = CohortUpdates.room(len(ids), models.shape[1])
        delta = updates.delta.numpy()
        spent = 0.0
        for places, result in self._results(request, end):
            delta[places], updates.size[places], updates.loss[places], seconds = result
            updates.done[places] = True
            spent = spent + seconds
        self.pace.measured(spent, float(self.runner.steps(work, ids[updates.done]).sum()))
        return [updates.reply(work, ids, key)]

    def _results(self, request: TrainRequest, end: float | None) -> Iterator[tuple[IntArray, Any]]:
        """What actors answer, call by call, until all is there or the time is over."""
        members = self.members
        calls = deque(self._cut(request))
        lost = Counter[int]()
        patience = self.cluster.patience
        give_up = time.monotonic() + patience
        silence = Silence()
        try:
            while calls or any(member.at for member in members.all):
                self._hand_out(request, calls)
                now = time.monotonic()
                # Patience is for a cluster without a single actor; with one, the round continues.
                if any(member.coming is None for member in members.all):
                    give_up = now + patience
                if now > give_up:
                    raise members.none_came()
                if end is not None and now > end:
                    return
                seconds = min(1.0, give_up - now)
                if end is not None:
                    seconds = min(seconds, end - now)
                silence.look()
                for member, call in members.wait(seconds):
                    silence.end()
                    places, result = members.result(member, call)
                    if result is not None:
                        yield places, result
                    elif member not in members.all:
                        # It was lost: another actor does again what it was at.
                        for places in member.at.values():
                            calls.appendleft(places)
                            lost.update(places.tolist())
                        self._check_lost(lost, request)
        finally:
            members.end_those_at_work()

    def _hand_out(self, request: TrainRequest, calls: deque[IntArray]) -> None:
        """Give every actor that is there its next calls, one each before any gets a second."""
        for _ in range(_DEEP):
            for member in self.members.all:
                if calls and member.coming is None and len(member.at) < _DEEP:
                    places = calls.popleft()
                    member.at[self._call(request, member, places)] = places

    def _cut(self, request: TrainRequest) -> list[IntArray]:
        """The calls of a round, as places in the request."""
        steps = self.runner.steps(request.work, request.ids)
        if self.round_timeout is not None and self.actors.each == "serial":
            # One client a call: what is done in time is there when the time is over.
            order = np.argsort(-steps, kind="stable")
            return np.split(order, range(1, len(order)))
        actors = max(1, len(self.members.all))
        parts = 2 * actors
        if self.actors.each == "vmap":  # the more clients at once, the better
            parts = actors
        return cut(steps, actors, parts, self.pace)

    def _call(self, request: TrainRequest, member: Member, places: IntArray) -> Any:
        population = self.runner.population
        clients = request.ids[places].tolist()
        held = [torch.from_numpy(population.train[client]) for client in clients]
        where: list[tuple[Any, Any]] = []
        fresh = []
        for client, mine in zip(clients, held, strict=True):
            if self.actors.load is not None:
                where.append((None, mine.numpy()))
                continue
            # An actor that holds the shard already is sent only the shard's name.
            shard = self.store.holding(client)
            if member.take(shard.name, shard.size):
                fresh.append(shard)
            where.append((shard.name, shard.where[client]))
        stale = member.forget(self.members.room, {name for name, _ in where})
        models = request.shared
        rows = request.rows[places]
        if models is None:  # each client has its own start, as in a chain: it goes with the call
            models = request.models[request.which[places]]
            rows = np.arange(len(places))
        # Values below Ray's limit come back with the answer itself, not through the object store.
        pieces = _pieces(4 * request.models.shape[1] * len(places))
        job = ActorJob(
            work=request.work,
            keys=tuple(request.key.client(client) for client in clients),
            which=rows,
            labels=tuple(population.y[mine].numpy() for mine in held),
            places=tuple(where),
            fresh=tuple(shard.name for shard in fresh),
            stale=stale,
            pieces=pieces,
        )
        calling = member.handle.call.options(num_returns=1 + pieces)
        call = calling.remote(job, models, *(shard.ref for shard in fresh))
        if pieces:
            call, *rest = call
            member.pieces[call] = rest
        return call

    def _check_lost(self, lost: Counter[int], request: TrainRequest) -> None:
        """Whether the same client went down with its actor too often: it may be what kills them."""
        if not lost:
            return
        place, times = lost.most_common(1)[0]
        if times > self.cluster.retries:
            what = f"actors were lost {counted(times, 'time')} in round {request.key.round} at client {request.ids[place]}"
            expected = f"at most {self.cluster.retries} times"
            raise RemoteError("unreachable", "engine", what, allowed=expected)

    def release(self) -> list[Any]:
        """Let the actors go without ending them: another engine may take them up, which saves their
        start."""
        return self.members.release()

    def close(self) -> None:
        self.members.close()
        self.store.clear()
        self.scoring.samples.clear()


def _request(work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key) -> TrainRequest:
    """A request whose shared models are in the object store, if they are too large to travel with
    every call."""
    values = models.numpy()
    used, rows = np.unique(which, return_inverse=True)
    shared: Any = None
    if len(used) < len(ids):
        shared = values[used]
        if shared.nbytes > _SMALL:
            shared = ray.put(shared)
    return TrainRequest(work, ids, values, which, rows, shared, key)


def _pieces(size: int) -> int:
    """In how many values updates of so many bytes come back besides the first; 0: in the first."""
    pieces = -(-size // _SMALL)
    if pieces <= _PIECES:
        return pieces
    return 0

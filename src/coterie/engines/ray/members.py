"""The actors of a run as this process sees them: who is there, at what, and what to do if one is
lost."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError

from coterie.core.arrays import IntArray
from coterie.core.process import cores
from coterie.engines.ray.actor import Actor, ActorOptions, Equipment, samples_fingerprint
from coterie.engines.ray.cluster import Cluster, connect
from coterie.engines.ray.shards import Name, ShardStore
from coterie.errors import ConfigError, CoterieError, DataError, RemoteError, first_line
from coterie.local import LocalRunner

LOOK = 10.0  # seconds between two looks for nodes that joined


@dataclass(eq=False)
class Member:
    """An actor: ``coming`` is the call that says it has started, ``pieces`` those whose updates
    come in several values, ``held`` the bytes of its shards, the longest unused first."""

    handle: Any
    coming: Any
    at: dict[Any, IntArray] = field(default_factory=dict)
    pieces: dict[Any, list[Any]] = field(default_factory=dict)
    held: OrderedDict[Name, int] = field(default_factory=OrderedDict)

    def take(self, name: Name, size: int) -> bool:
        """Whether the actor must be sent a shard; from now on it holds it."""
        new = name not in self.held
        self.held[name] = size
        self.held.move_to_end(name)
        return new

    def forget(self, room: float, needed: set[Name]) -> tuple[Name, ...]:
        """The shards to be dropped so that the others take no more than ``room`` bytes."""
        total = sum(self.held.values())
        stale = []
        for name in [name for name in self.held if name not in needed]:
            if total <= room:
                break
            total -= self.held.pop(name)
            stale.append(name)
        return tuple(stale)


class Members:
    """All actors of a run. A lost actor is replaced; those that have not come yet may come
    later."""

    def __init__(
        self,
        runner: LocalRunner,
        cluster: Cluster,
        options: ActorOptions,
        spare: Sequence[Any],
        store: ShardStore,
    ) -> None:
        self.runner = runner
        self.store = store
        self.cluster = cluster
        self.options = options
        self.all: list[Member] = []
        # how many there should be; 0 before the cluster was joined
        self.count = 0
        # bytes of shards that an actor may keep
        self.room = 0.0
        self._spare = list(spare)
        # actors lost in a row, without an answer in between
        self._lost = 0
        self._started_here = False
        self._fingerprint = ""
        # the resource that an actor takes one of
        self._kind = "CPU"
        # on the monotonic clock
        self._next_look = 0.0

    # --- who is there -----------------------------------------------------------------------------

    def ensure(self) -> None:
        """A connection, and as many actors as there should be."""
        if not self.count:
            self._begin()
        elif time.monotonic() > self._next_look:
            self._size_up()
        self.all += [self._new_member() for _ in range(self.count - len(self.all))]

    def coming(self) -> bool:
        return any(member.coming is not None for member in self.all)

    def _begin(self) -> None:
        self._started_here = connect(self.cluster.address, self._cores())
        needs = self._needs()
        runner = self.runner
        options = self.options
        if options.load is not None:
            self._fingerprint = samples_fingerprint(torch.as_tensor(runner.population.x))
        equipment = Equipment(runner.module, runner.solver, runner.decay, runner.task, options)
        # Into the object store once: a network may be large, and every actor needs it.
        self._equipment = ray.put(equipment)
        # Actors are replaced here and not restarted by Ray, which would not equip them again.
        self._actor = ray.remote(**needs, scheduling_strategy="SPREAD", max_restarts=0)(Actor)
        self._kind = "GPU" if "num_gpus" in needs else "CPU"
        self._size_up()

    def _size_up(self) -> None:
        """As many actors as the cluster has room for, unless the user named a number. Nodes that join in
        mid-run get actors; of nodes that leave, the actors wait for another one."""
        resources = ray.cluster_resources()
        self.count = self.cluster.workers or max(self.count, self._places(), 1)
        # Half of the object store is left to models and updates.
        self.room = resources.get("object_store_memory", 0.0) / (2 * self.count)
        # The store may hold what all actors together may keep of it.
        self.store.room = self.room * self.count
        self._next_look = time.monotonic() + LOOK

    def _cores(self) -> int | None:
        """The cores of a cluster that is started here; ``None``: those of this machine."""
        threads = self.options.threads
        if self.cluster.workers:
            return self.cluster.workers * threads
        # More threads than this machine has cores are slow, and run all the same.
        if threads > cores():
            return threads
        return None

    def _places(self) -> int:
        """How many actors the cluster has room for. An actor has all that it needs on one node."""
        needs = {"CPU": self.options.threads}
        if self._kind == "GPU":
            needs["GPU"] = 1
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(
            min(int(node.get(kind, 0) // number) for kind, number in needs.items())
            for node in nodes
        )

    def _needs(self) -> dict[str, int]:
        batched = self.options.each == "vmap" and self.options.device.name != "cpu"
        if batched and ray.cluster_resources().get("GPU", 0) > 0:
            return {"num_cpus": self.options.threads, "num_gpus": 1}
        return {"num_cpus": self.options.threads}

    def _new_member(self) -> Member:
        if self._spare:
            handle = self._spare.pop()
        else:
            handle = self._actor.remote()
        # An actor's calls run in their order, so the path is there before the network is unpickled.
        handle.extend_path.remote(list(sys.path))
        shards = []
        if self.options.load is None:
            shards = self.store.few(self.room)
        names = [shard.name for shard in shards]
        refs = [shard.ref for shard in shards]
        member = Member(handle, handle.equip.remote(self._equipment, names, *refs))
        for shard in shards:
            member.take(shard.name, shard.size)
        return member

    def replace(self, member: Member) -> None:
        """Let an actor go, and ask for another in its place."""
        ray.kill(member.handle)
        self.all[self.all.index(member)] = self._new_member()

    def end_those_at_work(self) -> None:
        """End the actors that still train: what they are at is of no use any more."""
        # A task under way cannot be cancelled in an actor; it can only be ended with it.
        for member in [member for member in self.all if member.at]:
            ray.kill(member.handle)
            self.all.remove(member)

    def release(self) -> list[Any]:
        """Let the actors go without ending them: another engine may take them up, which saves their
        start."""
        handles = [member.handle for member in self.all]
        self.all = []
        self.count = 0
        return handles

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        if ray.is_initialized():
            for member in self.all:
                ray.kill(member.handle)
            if self._started_here:
                ray.shutdown()
        self.all = []
        self.count = 0
        self._started_here = False

    # --- what they answer -------------------------------------------------------------------------

    def wait(self, seconds: float) -> list[tuple[Member, Any]]:
        """The calls that ended, and whose they are."""
        known = {}
        for member in self.all:
            calls = list(member.at)
            if member.coming:
                calls = [member.coming]
            known.update(dict.fromkeys(calls, member))
        if not known:
            time.sleep(seconds)
            return []
        ended, _ = ray.wait(list(known), num_returns=1, timeout=max(0.0, seconds))
        return [(known[call], call) for call in ended]

    def result(self, member: Member, call: Any) -> tuple[IntArray, Any]:
        """What a call gave; ``None`` where the actor only said that it is there, or was lost and
        replaced."""
        nothing = np.empty(0, np.int64)
        try:
            found = ray.get(call)
            pieces = ray.get(member.pieces.pop(call, []))
        except RayTaskError as error:
            raise _cause(error) from error
        except RayError as error:
            # A node takes all its actors with it, so as many as there are may be lost at once.
            self._lost += 1
            if self._lost > self.cluster.retries + len(self.all):
                what = f"{self._lost} actors were lost, and no reply arrived ({first_line(error)})"
                raise RemoteError("unreachable", "engine", what) from error
            self.replace(member)
            return nothing, None
        if call is member.coming:
            member.coming = None
            if found != self._fingerprint:
                what = "a node reads different samples"
                expected = self._fingerprint
                raise DataError("differs", "engine.samples", what, found=found, allowed=expected)
            return nothing, None
        self._lost = 0
        if isinstance(found[0], Exception):
            # An exception travels without its traceback, which came as text.
            if found[1]:
                raise found[0] from RuntimeError(found[1])
            raise found[0]
        places = member.at.pop(call)
        if pieces:
            found = (np.concatenate(pieces).reshape(len(places), -1), *found[1:])
        return places, found

    def none_came(self) -> RemoteError:
        """No actor was there for as long as the cluster's patience."""
        resources = ray.cluster_resources()
        got = {name: value for name, value in resources.items() if name in ("CPU", "GPU")}
        option = "engine.workers" if self.options.threads == 1 else "engine.threads"
        what = f"no node has started an actor for {self.cluster.patience:g} s"
        expected = f"enough resources for an actor that needs {self._needs()}"
        return RemoteError(
            "unreachable", option, what, found=f"a cluster with {got}", allowed=expected
        )


def _cause(error: RayTaskError) -> Exception:
    """What went wrong in an actor before or outside of the training."""
    cause = error.cause
    if isinstance(cause, CoterieError):
        return cause
    if isinstance(cause, ImportError):
        what = f"a node cannot import what the run needs: {cause}"
        return ConfigError("not-installed", "engine.name", f"{what}; install it there")
    return error

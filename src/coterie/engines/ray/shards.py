"""Training samples in Ray's object store, in shards of a few neighbouring clients."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch

from coterie.data.population import Population

# Bytes of a shard: large enough that a transfer is worth its call, small enough that a node does
# not hold much that it was not asked for.
_SHARD = 2 * 2**20
# Bytes of all samples that are sent to every actor before it trains.
_FEW = 2**28
Name = tuple[int, int]  # a shard's number and its version


@dataclass(frozen=True, slots=True)
class Shard:
    """The samples of some clients in the object store. What changes gets a new name, so that no
    actor takes an old shard for a new one."""

    name: Name
    ref: Any
    size: int
    where: dict[int, slice]


class ShardStore:
    """Which shards are in the object store; those unused the longest leave it when it is full.
    Neighbouring clients share a shard; lazy clients have their own, so that only requested ones are
    made."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.shards: OrderedDict[int, Shard] = OrderedDict()
        self.stored = 0
        # bytes that shards may take in the object store
        self.room = 0.0
        self._version = 0
        self._shard_of = np.arange(population.clients)
        if not population.lazy:
            ends = np.cumsum(population.sizes("train") * _sample_bytes(population))
            self._shard_of = np.concatenate([[0], ends[:-1]]) // _SHARD

    def holding(self, client: int) -> Shard:
        return self.get(int(self._shard_of[client]))

    def get(self, number: int) -> Shard:
        """A shard, put into the object store if it is not there as it is now."""
        if number not in self.shards:
            self._put(number)
            # The one just made stays even where there is no room for it: it is wanted now.
            while self.stored > self.room and len(self.shards) > 1:
                self._drop(next(iter(self.shards)))
        self.shards.move_to_end(number)
        return self.shards[number]

    def few(self, room: float) -> list[Shard]:
        """All shards, where they are few and an actor may keep them all: it is then sent all of them
        at once, and waits for none in a round. Else nothing."""
        population = self.population
        if population.lazy:
            return []
        size = int(population.sizes("train").sum()) * _sample_bytes(population)
        if size > min(room, _FEW):
            return []
        return [self.get(number) for number in np.unique(self._shard_of).tolist()]

    def _put(self, number: int) -> None:
        population = self.population
        first, last = np.searchsorted(self._shard_of, [number, number + 1])
        clients = range(int(first), int(last))
        held = np.concatenate([population.train[i] for i in clients])
        x = population.x[torch.from_numpy(held)].numpy()
        where = {}
        end = 0
        for client in clients:
            begin = end
            end = begin + len(population.train[client])
            where[client] = slice(begin, end)
        self._version += 1
        self.shards[number] = Shard((number, self._version), ray.put(x), x.nbytes, where)
        self.stored += x.nbytes

    def _drop(self, number: int) -> None:
        """Let a shard leave the object store, as soon as no call needs it."""
        if number in self.shards:
            self.stored -= self.shards.pop(number).size

    def set_population(self, population: Population) -> None:
        """Take over who holds what; shards of clients that hold other samples leave."""
        before = self.population
        if population.x is not before.x:
            self.clear()
        for client, (old, new) in enumerate(zip(before.train, population.train, strict=True)):
            if old is not new:
                self._drop(int(self._shard_of[client]))
        self.population = population

    def clear(self) -> None:
        self.shards.clear()
        self.stored = 0


def _sample_bytes(population: Population) -> int:
    return population.x.element_size() * int(np.prod(population.shape, dtype=np.int64))

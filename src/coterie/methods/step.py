"""One round of a method."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.errors import ConfigError
from coterie.methods.discrepancy import discrepancy
from coterie.methods.method import Method, Starts, unchanged
from coterie.methods.streaming import fold, streamable
from coterie.methods.training import train
from coterie.rules import inter_group as between
from coterie.rules.server import combine, fed


class Algorithm(Protocol):
    """A method that runs: ``init`` makes the state, ``step`` does a round and returns a new
    state."""

    def init(self, starts: Starts, clients: int) -> Groups: ...

    def step(
        self, state: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Clustered:
    """Turn a ``Method`` into an ``Algorithm``."""

    method: Method

    @property
    def samples(self) -> bool:
        """Whether the method draws its clients itself."""
        return self.method.samples

    def init(self, starts: Starts, clients: int) -> Groups:
        """The first models, ``starts(j)``, and nobody has a group yet.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        k = min(self.method.groups, clients) if self.method.counted else self.method.groups
        if clients < k:
            raise ConfigError(
                f"algorithm.groups: more groups than clients, got {k}; expected 1 to {clients}"
            )
        models = torch.stack(
            [starts(j if self.method.apart else 0).to(torch.float32) for j in range(k)]
        )
        return Groups(models, np.full(clients, NO_GROUP)).remember(start=models[0])

    def step(
        self, state: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Mapping[str, Any]]:
        if not len(cohort):
            return state, {}
        method = self.method
        begun = time.perf_counter()
        groups, plan = method.assign(state, np.sort(cohort), door, key.of("assign"))
        seconds = {"grouping": time.perf_counter() - begun - door.ledger.training}
        folded = None
        if method.recluster is unchanged and streamable(
            method.local, method.weigh, plan, groups.models.shape[1]
        ):
            folded, updates = fold(method.local, groups, plan, door, key.of("train"), method.weigh)
        else:
            updates = train(method.local, groups, plan, door, key.of("train"))
        exchange = groups.k if method.inter_group is not between.none else 0
        notes = {
            **plan.notes,
            "seconds": seconds,
            "replies": len(updates),
            "exchange": exchange,
            "plan": plan,
        }
        begun = time.perf_counter()
        too_few = len(updates) < max(1, door.quorum.min_replies)
        groups, updates = method.recluster(groups, updates.first(0) if too_few else updates)
        if too_few:
            return groups, {**notes, "exchange": 0, "skipped": True}
        before = groups.models
        weights = method.weigh(groups, updates)
        update, trained = (
            (folded, fed(weights)) if folded is not None else combine(weights, updates.delta)
        )
        groups = method.inter_group(method.server(groups, update, trained)).remember(
            trained=trained
        )
        seconds["aggregation"] = time.perf_counter() - begun
        loss = float(np.average(updates.loss, weights=updates.size))
        apart = None if folded is not None else discrepancy(before, groups.models, updates)
        notes |= {"loss": loss, "discrepancy": apart}
        return groups, {**notes, "ids": updates.ids, "weights": weights}


def as_algorithm(method: Method | Algorithm) -> Algorithm:
    """A method as an algorithm; an algorithm as it is."""
    if isinstance(method, Method):
        return Clustered(method)
    return method

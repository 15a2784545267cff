"""Rounds of the methods that group their clients once, which their tests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.methods.algorithm import as_algorithm
from coterie.rules.signatures import SignatureMemory
from tests.conftest import remembered, round_of, small_net
from tests.faults import Faults
from tests.simulations import serial_engine

SOLVER = ct.Solver(epochs=3, batch_size=5, lr=0.1)
METHODS: dict[str, Callable[[], ct.Method]] = {
    "fedclust": ct.fedclust,
    "pacfl": lambda: ct.pacfl(vectors=1, angle="principal"),
    "flhc": lambda: ct.flhc(warmup_rounds=0),
}
each = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())


class Run:
    """A method that goes on round by round with the clients that are there."""

    def __init__(
        self, method: ct.Method, population: ct.Population, faults: Faults | None = None
    ) -> None:
        self.net = small_net(population.classes)
        self.key = Key(3)
        self.round = 0
        self.algorithm: Any = as_algorithm(method)
        self.engine: Any = serial_engine(population, self.net, SOLVER, faults)
        self.clients = Clients(
            self.engine, shape=ModelShape(population.classes, 6, Layout.of(self.net))
        )
        self.w0 = flatten(self.net)
        self.state = self.algorithm.init(lambda j: self.w0, population.clients)

    def step(self, cohort: list[int], able: list[int] | None = None) -> Any:
        round = round_of(self.clients, cohort, self.key.at(self.round), able)
        self.state, notes = self.algorithm.step(self.state, round)
        self.round += 1
        return notes

    def reach(self, engine: Any) -> None:
        """From now on clients are reached by another engine."""
        self.clients = replace(self.clients, engine=engine)

    def hold(self, population: ct.Population) -> None:
        """From now on clients hold other data."""
        self.clients = self.clients.holding(population)

    @property
    def member(self) -> list[int]:
        return self.state.member.tolist()


def signatures(run: Run) -> SignatureMemory:
    """What the rule remembers of the clients' signatures."""
    return remembered(run.state, SignatureMemory)


def exchanged(population: ct.Population) -> ct.Population:
    """Clients 0 and 1 hold each other's training data."""
    return population.with_parts(
        (population.train[1], population.train[0], *population.train[2:]), population.test
    )


MOVING = {
    "fedclust": ct.fedclust(migration="per_label"),
    "pacfl": ct.pacfl(vectors=1, angle="principal", migration="per_label"),
    "flhc": ct.flhc(warmup_rounds=0, migration="per_label"),
}
each_moving = pytest.mark.parametrize("method", MOVING.values(), ids=MOVING)

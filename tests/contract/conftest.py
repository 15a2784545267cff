"""Processes that one method after another trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch import nn

import coterie as ct
from coterie.engines import PoolEngine
from coterie.local import LocalRunner

SOLVER = ct.Solver(epochs=2, batch_size=5, lr=0.1)


class Lasting:
    """A pool that serves one method after another: to start its processes takes longer than a
    run."""

    def __init__(self, pool: PoolEngine) -> None:
        self.run = pool.run
        self.set_population = pool.set_population

    def close(self) -> None:
        """Nothing: the fixture that made the pool closes it."""


# From a network and a number of workers.
FindPool = Callable[[nn.Module, int], Lasting]


@pytest.fixture(scope="module")
def lasting_pool(population: ct.Population) -> Iterator[FindPool]:
    """The pool for a network and a number of workers. Who holds what is as in `population`."""
    pools: dict[tuple[str, int], PoolEngine] = {}

    def find(net: nn.Module, workers: int) -> Lasting:
        # Models are sent, so that pools differ in the kinds of layers alone.
        key = (repr(net), workers)
        if key not in pools:
            pools[key] = PoolEngine(LocalRunner(population, net, SOLVER), workers)
        # The method before may have had a shift.
        pools[key].set_population(population)
        return Lasting(pools[key])

    yield find
    for pool in pools.values():
        pool.close()

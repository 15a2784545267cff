"""One client that reports false losses, beside methods that group clients by losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import coterie as ct
from coterie.clients.clients import Clients, ModelShape
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.work import Work
from coterie.math.labellings import adjusted_rand_index
from coterie.methods.method import Method
from tests.conftest import blobs, small_net
from tests.simulations import serial_engine, simulated, uniform

LIAR = 4
SOLVER = ct.Solver(epochs=3, batch_size=5, lr=0.1)


class FalseLosses:
    """An engine whose client 4 reports ``factor`` times its losses."""

    def __init__(self, engine: Engine, factor: float) -> None:
        self._engine = engine
        self._factor = factor

    def run(self, work: Work, ids: IntArray, models: Tensor, *rest: Any, **key: Any) -> list[Reply]:
        return [self._changed(reply) for reply in self._engine.run(work, ids, models, *rest, **key)]

    def close(self) -> None:
        self._engine.close()

    def _changed(self, reply: Reply) -> Reply:
        fields = dict(reply.fields)
        for name in ("loss", "train_loss"):
            if name in fields:
                fields[name] = fields[name].astype(float)
                fields[name][reply.ids == LIAR] *= self._factor
        return replace(reply, fields=fields)


def agreement(method: Method, factor: float) -> float:
    """The adjusted Rand index of honest clients' groups, when all twelve are in each round."""
    population = blobs()
    engine: Engine = serial_engine(population, small_net(population.classes), SOLVER)
    honest = np.arange(population.clients)
    if factor != 1:
        engine = FalseLosses(engine, factor)
        honest = honest[honest != LIAR]
    clients = Clients(engine, shape=ModelShape(population.classes))
    states = simulated(method, population, clients, uniform(population, 12), rounds=6)
    assert population.planted is not None
    return adjusted_rand_index(states[-1].groups.member[honest], population.planted[honest])


METHODS = {
    "clove": lambda **options: ct.clove(2, **options),
    "sr_fca": lambda **options: ct.sr_fca(steps_alone=150, refine_every=3, **options),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1, 0, 20, 1e12])
def test_groups_are_found_beside_one_client_with_false_losses(method: str, factor: float) -> None:
    assert agreement(METHODS[method](), factor) == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_without_the_default_one_client_with_endless_losses_hides_them(method: str) -> None:
    assert agreement(METHODS[method](outliers="keep"), 1) == 1.0
    assert agreement(METHODS[method](outliers="keep"), 1e12) < 0.5

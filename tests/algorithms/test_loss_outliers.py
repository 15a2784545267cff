"""One client that reports endless losses, beside methods that group clients by losses."""

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


class EndlessLosses:
    """An engine whose client 4 reports losses of ``1e12`` times what they are."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, work: Work, ids: IntArray, models: Tensor, *rest: Any, **key: Any) -> list[Reply]:
        return [self._changed(reply) for reply in self._engine.run(work, ids, models, *rest, **key)]

    def close(self) -> None:
        self._engine.close()

    def _changed(self, reply: Reply) -> Reply:
        fields = dict(reply.fields)
        for name in ("loss", "train_loss"):
            if name in fields:
                fields[name] = fields[name].astype(float)
                fields[name][reply.ids == LIAR] *= 1e12
        return replace(reply, fields=fields)


def agreement(method: Method, lies: bool) -> float:
    """The adjusted Rand index of honest clients' groups, when all twelve are in each round."""
    population = blobs()
    engine = serial_engine(population, small_net(population.classes), SOLVER)
    honest = np.arange(population.clients)
    if lies:
        engine = EndlessLosses(engine)
        honest = honest[honest != LIAR]
    clients = Clients(engine, shape=ModelShape(population.classes))
    states = simulated(method, population, clients, uniform(population, 12), rounds=6)
    assert population.planted is not None
    return adjusted_rand_index(states[-1].groups.member[honest], population.planted[honest])


METHODS = {
    "clove": lambda outliers: ct.clove(2, outliers=outliers),
    "sr_fca": lambda outliers: ct.sr_fca(steps_alone=150, refine_every=3, outliers=outliers),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lies", [False, True])
def test_groups_are_found_where_outliers_are_left_out(method: str, lies: bool) -> None:
    assert agreement(METHODS[method]("leave_out"), lies) == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_one_liar_hides_them_by_default(method: str) -> None:
    assert agreement(METHODS[method]("keep"), lies=False) == 1.0
    assert agreement(METHODS[method]("keep"), lies=True) < 0.5

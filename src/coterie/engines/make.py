"""An engine by name, behind its door."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from torch import nn

from coterie.client import Bench
from coterie.data.population import Population
from coterie.engines.door import Door, Quorum
from coterie.engines.gate import Gate
from coterie.engines.pool import PoolEngine
from coterie.engines.serial import SerialEngine
from coterie.types import Engine, Solver
from coterie.vectors import Layout

ENGINES = ("pool", "serial")


def make_door(
    name: Literal["pool", "serial"],
    population: Population,
    module: nn.Module,
    solver: Solver,
    *,
    decay: tuple[str, ...] = (),
    workers: int | None = None,
    round_timeout: float | None = None,
    min_replies: int = 1,
    max_skipped_rounds: int = 10,
) -> Door:
    """Build an engine and the door in front of it. The door is a context manager; leaving it ends the workers.

    Args:
        name: ``pool`` or ``serial``.
        population: who holds what.
        module: the network, its parameters' values do not matter.
        solver: local SGD.
        decay: names of the kernels that carry L2.
        workers: processes of the pool; default one per core.
        round_timeout: seconds after which a request is closed.
        min_replies: quorum of a round.
        max_skipped_rounds: how many rounds in a row may miss it.
    """
    bench = Bench(population, module, solver, decay)
    engine: Engine = (
        PoolEngine(bench, workers, round_timeout) if name == "pool" else SerialEngine(bench, round_timeout)
    )  # fmt: skip
    cap = float(max(1, population.sizes("train").max()))
    able = np.flatnonzero(population.sizes("train") > 0)
    quorum, features = Quorum(min_replies, max_skipped_rounds), math.prod(population.shape)
    return Door(engine, Gate(cap), quorum, population.classes, able, Layout.of(module), features)

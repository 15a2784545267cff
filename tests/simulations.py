"""Short runs in memory that tests share, and engines that record or withhold answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from coterie.clients.clients import Clients, ModelShape
from coterie.clients.cohort import Sampler
from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.engine import Engine, Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.solver import Solver
from coterie.core.work import Work
from coterie.data.population import Population
from coterie.engines import PoolEngine, SerialEngine
from coterie.experiment import Training
from coterie.local import LocalRunner
from coterie.measures.optional import Measure
from coterie.measures.scoring import Evaluation
from coterie.methods.algorithm import Algorithm, as_algorithm
from coterie.methods.method import Method
from coterie.models import initial_models
from coterie.runs.loop import RoundResult, StartingPoint, simulate
from coterie.runs.schedule import Schedule
from tests.conftest import blobs, small_net
from tests.faults import Faults, FaultyEngine

KEY = Key(3)
ONE_EPOCH = Solver(epochs=1, batch_size=5, lr=0.1)


def uniform(population: Population, cohort: int) -> Sampler:
    """So many clients a round, each as likely as any other."""
    return Sampler("uniform", np.arange(population.clients), cohort, KEY)


def covering(population: Population, cohort: int) -> Sampler:
    """So many clients a round, all of them in turn before anybody is asked twice."""
    return Sampler("cover_then_uniform", np.arange(population.clients), cohort, KEY)


def serial_engine(
    population: Population, net: nn.Module, solver: Solver, faults: Faults | None = None
) -> Engine:
    """Clients that train one after another, with faults where there are any."""
    engine = SerialEngine(LocalRunner(population, net, solver))
    if faults is None:
        return engine
    return FaultyEngine(engine, faults)


def simulated(
    method: Method | Algorithm,
    population: Population,
    clients: Clients,
    sampler: Callable[..., IntArray],
    rounds: int,
    net: nn.Module | None = None,
    start: StartingPoint | None = None,
    **options: Any,
) -> list[RoundResult]:
    """What every round of a run left. The network is the small one where none is given."""
    first = initial_models(net or small_net(population.classes), KEY)
    algorithm = as_algorithm(method)
    schedule = Schedule(sampler, Training(rounds), KEY, **options)
    with clients:
        return list(simulate(algorithm, clients, population, first, schedule, start=start))


def play(
    method: Method,
    population: Population | None = None,
    rounds: int = 4,
    *,
    sampler: Callable[..., IntArray] | None = None,
    faults: Faults | None = None,
    measures: Sequence[Measure] = (),
    **options: Any,
) -> list[RoundResult]:
    """A run of the small network, by default with six of twelve clients a round."""
    population = population or blobs()
    engine = serial_engine(population, small_net(population.classes), ONE_EPOCH, faults)
    return simulated(
        method,
        population,
        Clients(engine, shape=ModelShape(population.classes)),
        sampler or uniform(population, 6),
        rounds,
        evaluation=Evaluation(measures=measures),
        **options,
    )


def plans(
    method: Method, population: Population | None = None, rounds: int = 4, **options: Any
) -> list[Plan]:
    """The plan of every round of such a run."""
    made: list[Plan] = []

    def assign(*arguments: Any) -> tuple[Groups, Plan]:
        groups, plan = method.assign(*arguments)
        made.append(plan)
        return groups, plan

    play(replace(method, assign=assign), population, rounds, **options)
    return made


def play_covering(
    method: Method, population: Population, rounds: int, engine: str = "serial", **options: Any
) -> list[RoundResult]:
    """A run that meets all clients in turn, four a round, in this process or in two workers."""
    net = small_net(population.classes)
    runner = LocalRunner(population, net, Solver(epochs=1, batch_size=10, lr=0.1))
    made = SerialEngine(runner) if engine == "serial" else PoolEngine(runner, 2)
    clients = Clients(made, shape=ModelShape(population.classes))
    return simulated(method, population, clients, covering(population, 4), rounds, **options)


class RecordingEngine:
    """Passes on what clients are asked to do, and keeps it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.works: list[Work] = []

    def run(self, work: Work, *rest: Any, **named: Any) -> Sequence[Reply]:
        self.works.append(work)
        return self.engine.run(work, *rest, **named)


class LossyEngine:
    """Loses what some clients answer to one kind of request."""

    def __init__(self, engine: Engine, request: str, lost: list[int]) -> None:
        self.engine = engine
        self.request = request
        self.lost = lost

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> list[Reply]:
        request = key.what
        if isinstance(work, Describe) and work.statistic == "histogram":
            request = "histogram"
        heard = ~np.isin(ids, self.lost) | (request != self.request)
        return list(self.engine.run(work, ids[heard], models, which[heard], key=key))

    def set_population(self, population: Population) -> None:
        self.engine.set_population(population)

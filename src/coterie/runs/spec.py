"""What a run computes: its method, its data, its network and who is asked, put together.

Every run of Coterie is made of these two records, and `coterie.runs.run.Run` carries it out: from
Python, of a configuration, of a deployment, of the demonstration and of a study.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients
from coterie.clients.cohort import Sampler, SamplerName
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.task import Task
from coterie.core.vectors import Layout, state_dict
from coterie.data.population import Population
from coterie.engines import Attack, AttackingEngine, make_clients, poisoned
from coterie.methods.algorithm import Algorithm
from coterie.models import Network
from coterie.runs.schedule import Schedule

CohortSampler = Callable[..., IntArray]
# Samples computed at once: all outputs of a convolutional network may not fit in memory.
CHUNK = 1024


@dataclass(frozen=True, slots=True)
class RunSpec:
    """All that determines the rounds of a run, except for its clients."""

    algorithm: Algorithm
    population: Population
    network: Network
    schedule: Schedule
    local: Solver = field(default_factory=Solver)
    bounds: Bounds = Bounds()
    attack: Attack | None = None

    @property
    def task(self) -> Task:
        """What is learned and measured."""
        return self.schedule.evaluation.task

    @property
    def key(self) -> Key:
        """The stream of every random draw."""
        return self.schedule.key

    def make_clients(
        self,
        engine: str,
        options: Mapping[str, Any],
        load_samples: Callable[[], Tensor] | None = None,
    ) -> Clients:
        """The clients of a simulation, a context manager that ends the engine's processes."""
        attackers = np.array(self.schedule.attackers, np.int64)
        population = self.population
        if self.attack is not None:
            population = poisoned(population, self.attack, attackers)
        # What attackers have made of their samples is in no file that another machine could read.
        if population is not self.population:
            load_samples = None
        network = self.network
        clients = make_clients(
            population,
            network.module,
            self.local,
            engine,
            decay=network.decay,
            task=self.task,
            remember_networks=self.schedule.evaluation.evaluate.local,
            load_samples=load_samples,
            **options,
        )
        reached = clients.engine
        if self.attack is not None:
            reached = AttackingEngine(reached, self.attack, attackers)
        return replace(clients, engine=reached, bounds=self.bounds)


def cohort_sampler(
    name: SamplerName,
    population: Population,
    per_round: int,
    seed: int,
    *,
    shifts: bool,
    unseen: Sequence[int] = (),
) -> Sampler:
    """Who is asked in a round, of those with training samples."""
    clients = np.arange(population.clients)
    # Where data move, who holds samples is said round by round.
    if not shifts:
        clients = np.flatnonzero(population.sizes("train") > 0)
    return Sampler(name, np.setdiff1d(clients, unseen), per_round, Key(seed))


class ModelOutputs:
    """What many models of one network make of samples."""

    def __init__(self, module: nn.Module) -> None:
        # A copy: the network of a run has its first weights, from which it may be resumed.
        self._model = copy.deepcopy(module).eval()
        self._layout = Layout.of(module)

    @torch.no_grad()
    def of(self, vector: Tensor, x: Tensor) -> Tensor:
        """The outputs of a model ``[d]`` in evaluation mode for inputs ``[n, ...]``, at least one."""
        # Frozen parameters and integer buffers are in no vector; the copy has them already.
        self._model.load_state_dict(state_dict(self._layout, vector), strict=False)
        return torch.cat([self._model(part) for part in x.split(CHUNK)])


def outputs_of(module: nn.Module, vector: Tensor, x: Tensor) -> Tensor:
    """The outputs of one model, see `ModelOutputs`."""
    return ModelOutputs(module).of(vector, x)

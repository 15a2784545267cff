"""Clients of a simulation: an engine by name, and what an algorithm sees of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients, ClientStores
from coterie.clients.model_shape import ModelShape
from coterie.clients.quorum import Quorum
from coterie.clients.validation import validator_for
from coterie.core.engine import Engine
from coterie.core.keep import ClientStore
from coterie.core.task import CORRECT
from coterie.engines.experiment import Experiment
from coterie.engines.keeping import KeepingEngine
from coterie.engines.local_networks import RememberingEngine
from coterie.engines.own_models import OwnModelEngine
from coterie.engines.registry import Simulation, make_engine
from coterie.local import LocalRunner


def make_clients(
    name: str,
    runner: LocalRunner,
    *,
    quorum: Quorum | None = None,
    bounds: Bounds | None = None,
    remember_networks: bool = False,
    load_samples: Callable[[], Tensor] | None = None,
    **options: Any,
) -> Clients:
    """Build an engine, and the clients that it reaches. They are a context manager; leaving it ends
    the engine's processes.

    Args:
        name: ``pool``, ``serial``, ``vmap`` or ``ray``.
        runner: what the clients do: who holds what, the network, local SGD and the task. The values
            of the network's parameters do not matter.
        quorum: how many replies make a round.
        bounds: what one client can do to the others' models.
        remember_networks: whether each client remembers the network that it trained last
            (``ClientStores.networks``).
        load_samples: reads all samples on a Ray actor's node (``samples="path"``).
        options: of the engine, see `coterie.engines.registry.ENGINES`: ``workers``,
            ``round_timeout``, ``device``, ... Options of other engines have no effect.

    Raises:
        ConfigError: for an engine that cannot be had on this machine, or that cannot train this
            network.
    """
    trains: Engine = make_engine(name, Simulation(runner, load_samples), options)
    engine = trains
    # One set of stores: engines fill it, a checkpoint is made of what the clients have.
    stores = ClientStores(networks=ClientStore() if remember_networks else None)
    if stores.networks is not None:
        # Inside the engine that keeps parts of models: there, models and updates are whole.
        engine = RememberingEngine(engine, stores.networks, runner.layout.d)
    return Clients(
        KeepingEngine(OwnModelEngine(engine, stores.own_models), stores.parts),
        validator_for(runner.population),
        quorum or Quorum(),
        _shape_of(runner),
        bounds=bounds or Bounds(),
        stores=stores,
        simulated=Experiment(trains, stores.parts, stores.own_models),
        solver=runner.solver,
    )


def _shape_of(runner: LocalRunner) -> ModelShape:
    """What rules may ask of the model."""
    classes = 0
    if runner.task.class_labels:
        classes = runner.population.classes
    # Right answers where there are any; no more, since methods pay for what they are sent.
    sums = tuple(one for one in runner.task.sums if one in CORRECT)
    return ModelShape(classes, math.prod(runner.population.shape), runner.layout, sums)

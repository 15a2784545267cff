"""An engine by name, behind its door."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from coterie.clients.clients import Clients
from coterie.clients.quorum import Quorum
from coterie.clients.validation import validator_for
from coterie.core.client_store import ClientStore
from coterie.core.engine import Engine
from coterie.core.solver import Solver
from coterie.core.vectors import Layout
from coterie.data.population import Population
from coterie.engines.keeping import KeepingEngine
from coterie.engines.pool import PoolEngine
from coterie.engines.serial import SerialEngine
from coterie.engines.vmap import VmapEngine
from coterie.errors import ConfigError, install_command
from coterie.local import LocalRunner
from coterie.local.batched import Precision

ENGINES = ("pool", "serial", "vmap", "ray")
Name = Literal["pool", "serial", "vmap", "ray"]


def make_clients(
    name: Name,
    population: Population,
    module: nn.Module,
    solver: Solver,
    *,
    decay: tuple[str, ...] = (),
    workers: int | None = None,
    round_timeout: float | None = None,
    min_replies: int = 1,
    max_skipped_rounds: int = 10,
    device: str = "auto",
    precision: Precision = "float32",
    graphs: bool = False,
    memory: float | None = None,
    address: str | None = None,
    each: Literal["serial", "vmap"] = "serial",
    load: Callable[[], Tensor] | None = None,
) -> Clients:
    """Build an engine and the door in front of it. The door is a context manager; leaving it ends
    the workers.

    Args:
        name: ``pool``, ``serial``, ``vmap`` or ``ray``.
        population: who holds what.
        module: the network, its parameters' values do not matter.
        solver: local SGD.
        decay: names of the kernels that carry L2.
        workers: processes of the pool, or actors of Ray; default one per core.
        round_timeout: seconds after which a request is closed.
        min_replies: quorum of a round.
        max_skipped_rounds: how many rounds in a row may miss it.
        device: of ``vmap``: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: of ``vmap``.
        graphs: of ``vmap``: record CUDA graphs.
        memory: of ``vmap``: GiB of a block.
        address: of the Ray cluster.
        each: how a Ray actor trains.
        load: reads all samples on a Ray actor's node; ``None``: they are sent.

    Raises:
        ConfigError: for an engine that cannot be had here, or that cannot train this network.
    """
    bench = LocalRunner(population, module, solver, decay)
    engine: Engine
    match name:
        case "pool":
            engine = PoolEngine(bench, workers, round_timeout)
        case "serial":
            engine = SerialEngine(bench, round_timeout)
        case "vmap":
            engine = VmapEngine(bench, round_timeout, device, precision, graphs, memory)
        case "ray":
            engine = _ray()(
                bench,
                address,
                workers,
                round_timeout,
                each,
                load,
                device=device,
                precision=precision,
                graphs=graphs,
                memory=memory,
            )
    able = np.flatnonzero(population.sizes("train") > 0)
    quorum = Quorum(min_replies, max_skipped_rounds)
    features = math.prod(population.shape)
    store = ClientStore()
    return Clients(
        KeepingEngine(engine, store),
        validator_for(population),
        quorum,
        population.classes,
        able,
        Layout.of(module),
        features,
        store=store,
    )


def _ray() -> Any:
    try:
        from coterie.engines.ray import RayEngine
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ConfigError(
            f"engine.name: Ray is not installed, got 'ray'; expected {install_command('ray')}"
        ) from None
    return RayEngine

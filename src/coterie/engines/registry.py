"""The simulating engines by name, and what an algorithm sees of the clients that they reach.

Each engine has a factory with exactly the options that it takes. A configuration's ``[engine]``
table, the command line's completion and `make_clients` read the names, types, defaults and ranges of
the options from these signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from coterie.clients.clients import Clients, ClientStores, ModelShape
from coterie.clients.validation import validator_for
from coterie.config import registry
from coterie.core import ClientStore, Engine, IntArray, Key, Solver, Task, Train
from coterie.data.population import Population
from coterie.engines.keeping import KeepingEngine, RememberingEngine
from coterie.engines.own_models import OwnModelEngine
from coterie.engines.pool import PoolEngine
from coterie.engines.simulation import SerialEngine, SimulationEngine
from coterie.engines.vmap import VmapEngine
from coterie.errors import ConfigError, install_command
from coterie.local import LocalRunner
from coterie.local.device import Device, Precision
from coterie.tasks import CLASSIFICATION

Workers = Annotated[int, Field(ge=1, le=1024)]
Seconds = Annotated[float, Field(gt=0)]
GiB = Annotated[float, Field(gt=0)]
Streams = Annotated[int, Field(ge=1, le=64)]
Threads = Annotated[int, Field(ge=1, le=256)]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a run gives its engine. ``load_samples`` reads all samples on a cluster's node from its
    own disk; ``None``: they can only be sent."""

    runner: LocalRunner
    load_samples: Callable[[], Tensor] | None = None


def pool(
    simulation: Simulation,
    workers: Workers | None = None,
    round_timeout: Seconds | None = None,
    threads: Threads = 1,
) -> SimulationEngine:
    """A process per core: the default on a CPU.

    Args:
        workers: number of processes; default: as many as there are cores for their threads.
        round_timeout: seconds after which a request is closed.
        threads: number of threads for the training of one client.
    """
    return PoolEngine(simulation.runner, workers, round_timeout, threads=threads)


def serial(
    simulation: Simulation, round_timeout: Seconds | None = None, threads: Threads = 1
) -> SimulationEngine:
    """One client after another in this process: the reference, and for debugging.

    Args:
        round_timeout: seconds after which a request is closed.
        threads: number of threads for the training of one client.
    """
    return SerialEngine(simulation.runner, round_timeout, threads)


def vmap(
    simulation: Simulation,
    round_timeout: Seconds | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    graphs: bool = False,
    memory: GiB | None = None,
    streams: Streams | None = None,
) -> SimulationEngine:
    """Many clients at once on one device, for a GPU.

    Args:
        round_timeout: seconds after which a request is closed.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: ``float32``; ``tf32`` and ``bfloat16`` are faster on a GPU, but their results
            differ from those of the other engines.
        graphs: whether to record steps as CUDA graphs if their shapes repeat; needs a GPU.
        memory: GiB that a block of clients may take; default: half of the free memory of a GPU, or
            a quarter GiB on a CPU.
        streams: number of clients at a time if each trains separately, as with running statistics;
            default 4 on a GPU, 1 on a CPU.
    """
    return VmapEngine(simulation.runner, round_timeout, device, precision, graphs, memory, streams)


def ray(
    simulation: Simulation,
    workers: Workers | None = None,
    round_timeout: Seconds | None = None,
    address: str | None = None,
    each: Literal["serial", "vmap"] = "serial",
    samples: Literal["shard", "path"] = "shard",
    device: str = "auto",
    precision: Precision = "float32",
    graphs: bool = False,
    memory: GiB | None = None,
    threads: Threads = 1,
) -> SimulationEngine:
    """Actors over a Ray cluster.

    Args:
        workers: number of actors; default: as many as the cluster has cores for their threads.
        round_timeout: seconds after which a request is closed.
        address: the address of the cluster; ``auto``: the one that runs on this machine.
        each: how an actor trains.
        samples: ``shard``: they are sent; ``path``: each node reads them from its own disk.
        device: the device of a ``vmap`` actor.
        precision: the precision of a ``vmap`` actor.
        graphs: the option ``graphs`` of a ``vmap`` actor.
        memory: the memory of a ``vmap`` actor, in GiB.
        threads: number of threads for the training of one client; an actor requests as many cores.

    Raises:
        ConfigError: if Ray is not installed.
    """
    # Imported when it is chosen: Ray is an extra, and takes seconds to import.
    try:
        from coterie.engines.ray import ActorOptions, Cluster, RayEngine
    except ModuleNotFoundError as error:
        # Where Ray is there and misses a module of its own, to install Ray is no help.
        if error.name != "ray":
            raise
        do = f"run {install_command('ray')}"
        raise ConfigError("not-installed", "engine.name", "Ray is not installed", do=do) from None
    load = None
    if samples == "path":
        load = simulation.load_samples
    actors = ActorOptions(each, load, Device(device, precision, graphs), memory, threads)
    return RayEngine(simulation.runner, Cluster(address, workers), actors, round_timeout)


ENGINES: Mapping[str, Callable[..., SimulationEngine]] = MappingProxyType(
    {"pool": pool, "serial": serial, "vmap": vmap, "ray": ray}
)


def make_engine(name: str, simulation: Simulation, options: Mapping[str, Any]) -> SimulationEngine:
    """The engine of a name. Options of the other engines are left out, so that one table serves
    any.

    Raises:
        ConfigError: for an unknown engine, an option that no engine has, or a value out of range.
    """
    chosen = registry.options("engine", name)
    known = {option for one in (*ENGINES, name) for option in registry.options("engine", one)}
    for option, value in options.items():
        if option not in known:
            expected = f"one of {', '.join(sorted(known))}"
            raise ConfigError("unknown-key", f"engine.{option}", got=value, allowed=expected)
    table = {option: options[option] for option in chosen if option in options}
    engine: SimulationEngine = registry.build(
        "engine", {"name": name, **table}, simulation=simulation
    )
    return engine


# --- the clients of a simulation ------------------------------------------------------------------


class SimulatedClients:
    """The clients of a simulation as an experimenter sees them: what serves each, and what a
    training without trace would do. Measures need this, and no server could have it. ``trains``:
    the engine without what remembers anything."""

    def __init__(self, trains: Engine, stores: ClientStores) -> None:
        self.trains = trains
        self.stores = stores
        self._own = OwnModelEngine(trains, stores.own_models)
        self._engine = KeepingEngine(self._own, stores.parts)

    @property
    def engine(self) -> Engine:
        return self._engine

    def served_models(
        self, ids: IntArray, models: Tensor, which: IntArray, personal: Train | None, key: Key
    ) -> Tensor:
        if personal is not None:
            return self._own.served_models(personal, ids, models, which, key)
        return self._engine.served_models(ids, models, which)

    def on_trial(self) -> SimulatedClients:
        """The same clients with copies of what they have stored."""
        stores = ClientStores(self.stores.parts.copy(), self.stores.own_models.copy())
        return SimulatedClients(self.trains, stores)


def make_clients(
    population: Population,
    module: nn.Module,
    solver: Solver | None = None,
    engine: str = "pool",
    *,
    decay: tuple[str, ...] | None = None,
    task: Task = CLASSIFICATION,
    remember_networks: bool = False,
    load_samples: Callable[[], Tensor] | None = None,
    **options: Any,
) -> Clients:
    """Create the clients of a simulation. They are a context manager; leaving it ends the engine's
    processes.

    Args:
        population: which client holds which samples.
        module: the network. The values of its parameters are not used, because clients are sent
            models.
        solver: the local training of a client.
        engine: ``pool``, ``serial``, ``vmap`` or ``ray``.
        decay: names of the weights that have the L2 penalty ``solver.l2``; by default all with two or
            more dimensions, as in a run of your own network.
        task: what is learned and measured, fitted to the population's targets.
        remember_networks: whether each client remembers the network that it trained last
            (``ClientStores.networks``).
        load_samples: reads all samples on a Ray actor's node (``samples="path"``).
        options: options of the engine, see `coterie.engines.registry.ENGINES`: ``workers``,
            ``round_timeout``, ``device``, ... Options of other engines have no effect.

    Raises:
        ConfigError: for an engine that is not available on this machine, or that cannot train this
            network.
    """
    solver = solver or Solver()
    known = {"population": (population, Population), "module": (module, nn.Module)}
    for name, (value, kind) in {**known, "solver": (solver, Solver)}.items():
        if not isinstance(value, kind):
            raise ConfigError("wrong-type", name, got=value, allowed=f"a {kind.__name__}")
    runner = LocalRunner(population, module, solver, decay, task=task)
    trains: Engine = make_engine(engine, Simulation(runner, load_samples), options)
    # One set of stores: engines fill it, a checkpoint is made of what the clients have.
    stores = ClientStores()
    below = trains
    if remember_networks:
        # Inside the engine that keeps parts of models: there, models and updates are whole.
        networks = ClientStore()
        stores = ClientStores(networks=networks)
        below = RememberingEngine(trains, networks, runner.layout.d)
    return Clients(
        KeepingEngine(OwnModelEngine(below, stores.own_models), stores.parts),
        validator_for(population),
        ModelShape.of(task, population.classes, population.shape, runner.layout),
        stores=stores,
        simulated=SimulatedClients(trains, stores),
        solver=runner.solver,
    )

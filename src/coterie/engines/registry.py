"""The simulating engines by name: one factory each, with exactly the options that it takes.

A configuration's ``[engine]`` table, the command line's completion and `make_clients` read the
names, types, defaults and ranges of the options from these signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from coterie.config import registry
from coterie.engines.pool import PoolEngine
from coterie.engines.serial import SerialEngine
from coterie.engines.simulation import SimulationEngine
from coterie.engines.vmap import VmapEngine
from coterie.errors import ConfigError, install_command
from coterie.local import LocalRunner
from coterie.local.device import Device, Precision

Workers = Annotated[int, Field(ge=1, le=1024)]
Seconds = Annotated[float, Field(gt=0)]
GiB = Annotated[float, Field(gt=0)]
Streams = Annotated[int, Field(ge=1, le=64)]
Threads = Annotated[int, Field(ge=1, le=256)]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a run gives its engine; the rest are the engine's own options.

    Args:
        runner: the population, the network and the solver.
        load_samples: reads all samples ``[S, ...]``; called where a cluster's node reads them from
            its own disk. ``None``: they can only be sent.
    """

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
        simulation: what the run gives.
        workers: processes; default as many as there are cores for their threads.
        round_timeout: seconds after which a request is closed.
        threads: how many the training of one client uses.
    """
    return PoolEngine(simulation.runner, workers, round_timeout, threads=threads)


def serial(
    simulation: Simulation, round_timeout: Seconds | None = None, threads: Threads = 1
) -> SimulationEngine:
    """One client after another in this process: the reference, and for the debugger.

    Args:
        simulation: what the run gives.
        round_timeout: seconds after which a request is closed.
        threads: how many the training of one client uses.
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
        simulation: what the run gives.
        round_timeout: seconds after which a request is closed.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: of the arithmetic; ``tf32`` and ``bfloat16`` do not equal the other engines.
        graphs: record CUDA graphs.
        memory: GiB of a block of clients.
        streams: clients at a time where each trains by itself, as with running statistics.
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
        simulation: what the run gives.
        workers: actors; default as many as the cluster has cores for their threads.
        round_timeout: seconds after which a request is closed.
        address: of the cluster, ``auto`` for the one that runs on this machine.
        each: how an actor trains.
        samples: ``shard``: they are sent; ``path``: each node reads them from its own disk.
        device: of a ``vmap`` actor.
        precision: of a ``vmap`` actor.
        graphs: of a ``vmap`` actor.
        memory: of a ``vmap`` actor, GiB.
        threads: how many the training of one client uses; an actor asks for as many cores.

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
        raise ConfigError(
            f"engine.name: Ray is not installed, got 'ray'; expected {install_command('ray')}"
        ) from None
    load = None
    if samples == "path":
        load = simulation.load_samples
    actors = ActorOptions(each, load, Device(device, precision, graphs), memory, threads)
    return RayEngine(simulation.runner, Cluster(address, workers), actors, round_timeout)


ENGINES: Mapping[str, Callable[..., SimulationEngine]] = MappingProxyType(
    {"pool": pool, "serial": serial, "vmap": vmap, "ray": ray}
)


def make_engine(name: str, simulation: Simulation, options: Mapping[str, Any]) -> SimulationEngine:
    """The engine of a name.

    Args:
        name: a key of `ENGINES`.
        simulation: what the run gives.
        options: of this engine. Those of the other engines may be among them, and are left out, so
            that one table of options serves whichever engine is chosen.

    Raises:
        ConfigError: for an unknown engine, an option that no engine has, or a value out of range.
    """
    chosen = registry.options("engine", name)
    known = {option for one in (*ENGINES, name) for option in registry.options("engine", one)}
    for option, value in options.items():
        if option not in known:
            raise ConfigError(
                f"engine.{option}: unknown key, got {value!r}; "
                f"expected one of {', '.join(sorted(known))}"
            )
    table = {option: options[option] for option in chosen if option in options}
    engine: SimulationEngine = registry.build(
        "engine", {"name": name, **table}, simulation=simulation
    )
    return engine

"""From a configuration to all that a run needs before its engine starts: data, network, method."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients
from coterie.clients.quorum import Quorum
from coterie.config import RunConfig, check, registry
from coterie.config.reading import fit_to_clients
from coterie.config.tables import ChoiceKind
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.task import Task, headline_of, is_classes
from coterie.data import (
    Partition,
    Population,
    Samples,
    load_partition,
    load_samples,
    make_partition,
    populate,
)
from coterie.data.samples import Targets
from coterie.data.shifts import make_shift
from coterie.engines import Attack
from coterie.errors import ConfigError
from coterie.headline import Headline
from coterie.measures.optional import make_measures
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import override
from coterie.rules.migration import Migration
from coterie.runs.fitting import fit_together
from coterie.runs.schedule import Evaluation
from coterie.runs.spec import Network, RunSpec, cohort_sampler
from coterie.tasks import CLASSIFICATION


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration with all that its run needs before its engine starts.

    Args:
        config: the configuration.
        spec: what the run computes.
        partition: who holds which samples, to be saved with the run.
        label_names: of the classes, or none.
    """

    config: RunConfig
    spec: RunSpec
    partition: Partition
    label_names: tuple[str, ...] = ()

    @property
    def population(self) -> Population:
        """The clients and their data."""
        return self.spec.population

    @property
    def module(self) -> nn.Module:
        """The network with its first weights ``w_0``."""
        return self.spec.network.module

    @property
    def algorithm(self) -> Algorithm:
        """What runs."""
        return self.spec.algorithm

    @property
    def stem(self) -> str:
        """The default name of the run's folder, without its number."""
        config = self.config
        return f"{config.algorithm.name}-{config.data.source}-{config.seed}"

    def clients(self) -> Clients:
        """The clients, reached as ``[engine]`` says. They are a context manager; leaving it ends
        the engine's processes."""
        engine = self.config.engine
        # A Ray actor on another machine reads the samples there, by the configuration.
        load = partial(read_inputs, self.config.resolved())
        return self.spec.make_clients(engine.name, engine.options, load)


def prepare(config: RunConfig, saved: Path | None = None) -> Prepared:
    """Load the data, build the network and the algorithm.

    Args:
        config: the configuration.
        saved: the partition of an earlier run, used where it is there.

    Raises:
        DataError: if the data cannot be read.
        ConfigError: if data, network and options do not go together.
    """
    samples, partition, population = load_data(config, saved)
    config = fit_to_clients(config, population.clients)
    return prepare_on(config, population, partition, tuple(samples.label_names))


def prepare_on(
    config: RunConfig, population: Population, partition: Partition, label_names: tuple[str, ...]
) -> Prepared:
    """Build the network and the algorithm for data that are at hand.

    Args:
        config: the configuration.
        population: the clients and their data.
        partition: who holds which samples.
        label_names: of the classes, or none.

    Raises:
        ConfigError: if data, network and options do not go together.
    """
    train = config.train
    fitted = fit_together(
        make_method(config),
        make_task(config),
        partial(make_network, config, population.shape),
        population,
        make_solver(config),
        train.clients_per_round,
        config.seed,
    )
    population = fitted.population
    shift = make_shift(config.shifts())
    measures = make_measures(train.measures, fitted.local, fitted.algorithm, fitted.task)
    spec = RunSpec(
        fitted.algorithm,
        population,
        fitted.network,
        rounds=train.rounds,
        seed=config.seed,
        sampler=cohort_sampler(
            train.sampler, population, train.clients_per_round, config.seed, shifts=bool(shift)
        ),
        local=fitted.local,
        quorum=make_quorum(config),
        shift=shift,
        evaluation=Evaluation(
            every=train.evaluate_every,
            clients=train.evaluate_clients,
            loss=train.evaluate_loss,
            local=train.evaluate_local,
            measures=measures,
            task=fitted.task,
        ),
        attack=make_attack(config),
        bounds=make_bounds(config),
    )
    return Prepared(config, spec, partition, label_names)


# --- data -----------------------------------------------------------------------------------------


def load_data(
    config: RunConfig, saved: Path | None = None
) -> tuple[Samples, Partition, Population]:
    """The samples, who holds them (read from ``saved`` where that is there), and both as a
    population.

    Raises:
        DataError: if the data cannot be read.
        ConfigError: if the configuration asks for more than the data hold.
    """
    samples = read_samples(config)
    if saved is not None and saved.exists():
        # A resumed run has the saved one, whatever a later version of a partition would draw.
        partition = load_partition(saved)
    else:
        partition = split_samples(config, samples)
    population = populate(samples, partition)
    # For its errors alone: too few clients are better named before a network is built.
    fit_to_clients(config, population.clients)
    return samples, partition, population


def read_samples(config: RunConfig) -> Samples:
    """The samples of a configuration.

    Raises:
        DataError: if they cannot be read.
    """
    root = None
    if config.data.root:
        root = Path(config.data.root)
    task = make_task(config)
    targets: Targets = "classes"
    if task is not None and not task.class_labels:
        targets = "numbers"
    source = {"kind": config.data.source, **config.options("source")}
    return load_samples(source, root=root, targets=targets)


def split_samples(config: RunConfig, samples: Samples) -> Partition:
    """Who holds which of the samples, as the partition and the seed of a configuration say.

    Raises:
        DataError: if the samples do not suffice.
    """
    partition = {"kind": config.data.partition.kind, **config.options("partition")}
    return make_partition(samples, partition, Key(config.seed).of("data"))


def read_inputs(resolved: dict[str, Any]) -> Tensor:
    """The inputs of a resolved configuration's samples, as this machine has them.

    Raises:
        DataError: if they cannot be read on this machine.
    """
    # Every node of a cluster may have the datasets in another folder.
    if "COTERIE_DATA" in os.environ:
        data = {name: value for name, value in resolved["data"].items() if name != "root"}
        resolved = {**resolved, "data": data}
    _, _, population = load_data(check(resolved))
    return population.x


# --- what the other tables make -------------------------------------------------------------------


def make_solver(config: RunConfig) -> Solver:
    """Local SGD, as ``[local]`` says."""
    return Solver(**config.local.model_dump())


def make_quorum(config: RunConfig) -> Quorum:
    """When a round counts, as ``[quorum]`` says."""
    return Quorum(**config.quorum.model_dump())


def make_bounds(config: RunConfig) -> Bounds:
    """How far one client may be from the others, as ``[bounds]`` says."""
    table = config.bounds
    return replace(Bounds.between(table.floor, table.ceiling), enabled=table.enabled)


def make_attack(config: RunConfig) -> Attack | None:
    """What some clients do to the run, as ``[attack]`` says; ``None``: all are honest."""
    if config.attack is None:
        return None
    table = {"kind": config.attack.kind, **config.attack.options}
    attack: Attack = registry.build("attack", table)
    return attack


def make_network(config: RunConfig, shape: tuple[int, ...], outputs: int) -> Network:
    """The network of ``[model]``, with weights from the seed.

    Raises:
        ConfigError: for a network that does not fit the data.
    """
    name = config.model.name
    return Network.of(name, shape, outputs, config.seed, config.local.l2, config.options("model"))


def make_task(config: RunConfig) -> Task | None:
    """The task of ``[task]``, not fitted to its targets; ``None`` without the table.

    Raises:
        ConfigError: for options that do not go together, and a factory that makes no task.
    """
    return _make(config, "task", lambda made: isinstance(made, Task), "tasks")


def task_headline(config: RunConfig) -> Headline:
    """What runs of a configuration are measured by."""
    return headline_of(make_task(config) or CLASSIFICATION)


def only_classification(config: RunConfig, what: str) -> None:
    """Refuse another task where only a classification can be had so far.

    Args:
        config: the configuration.
        what: is asked for, as ``export``.

    Raises:
        ConfigError: for another task.
    """
    task = make_task(config)
    if task is not None and not is_classes(task):
        raise ConfigError(
            f"task.kind: {what} knows classifications only so far, got {task.name!r}; "
            "expected 'classification'"
        )


def make_method(config: RunConfig) -> Method | Algorithm:
    """The method that a configuration names, with its options, and with the server, the weighing,
    the objective and the migration of their tables.

    Raises:
        ConfigError: for a factory of the user's own that fails, and if there is nothing that a
            table could replace.
    """
    server = _make(config, "server", callable, "rules.server")
    weigh = _make(config, "weigh", callable, "rules.robust")
    objective = _make(config, "objective", lambda made: isinstance(made, Objective), "objectives")
    migration = None
    if config.migration is not None:
        migration = Migration(config.migration.detector, config.migration.tau)
    name = config.algorithm.name
    method = registry.build("algorithm", {"name": name, **config.algorithm.options})
    return override(
        method, name, server=server, objective=objective, migration=migration, weigh=weigh
    )


def can_migrate(algorithm: str) -> bool:
    """Whether an algorithm takes ``[migration]``: whether it places clients in groups."""
    try:
        # Tried, not listed: so it also holds for algorithms of plugins and of the user's own.
        override(registry.build("algorithm", {"name": algorithm}), migration=Migration())
    except ConfigError:
        return False
    return True


def _make(config: RunConfig, kind: ChoiceKind, fits: Callable[[Any], bool], home: str) -> Any:
    """What the factory of an optional table makes; ``None`` without the table."""
    table = config.choice(kind)
    if table is None:
        return None
    selector = registry.KINDS[kind].selector
    name = getattr(table, selector)
    made = registry.build(kind, {selector: name, **table.options})
    # The factory may be a user's, and what it makes would fail only in the first round.
    if not fits(made):
        what = f"makes no {kind}, got {name!r}"
        expected = f"a factory like those of coterie.{home}"
        raise ConfigError(f"{registry.KINDS[kind].path}: {what}; expected {expected}")
    return made

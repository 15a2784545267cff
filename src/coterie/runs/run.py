"""From a configuration to a run: data, network, algorithm, engine, the rounds, and what the store
keeps of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from coterie.clients.clients import Clients
from coterie.clients.quorum import Quorum
from coterie.config import RunConfig, check, registry
from coterie.config.reading import check_against
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.vectors import Layout
from coterie.data import (
    Population,
    Samples,
    load_partition,
    load_samples,
    make_partition,
    populate,
    save_partition,
)
from coterie.data.partitions import Partition
from coterie.data.shifts import FederationSnapshot, make_shift
from coterie.engines import make_clients
from coterie.errors import ConfigError, CoterieError, QuorumError
from coterie.measures.optional import make_measures
from coterie.measures.scoring import each_client
from coterie.methods.method import Method
from coterie.methods.override import fit_to_model, override
from coterie.methods.serving import served_by
from coterie.methods.step import Algorithm, as_algorithm
from coterie.models import build, decay_for, starts
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.cohort import Sampler
from coterie.runs.loop import RoundResult, simulate
from coterie.runs.store import RunFolder
from coterie.runs.summary import summarise
from coterie.runs.tracking import check_installed, tracked

OnRound = Callable[[RoundResult], None]


class Stopped(CoterieError):
    """The run was asked to stop by a signal; its state is saved."""

    def __init__(self, signal: int, message: str) -> None:
        super().__init__(message)
        self.code = 128 + signal


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a run needs before its engine starts.

    Args:
        config: the configuration.
        population: the clients and their data.
        parts: how the samples were dealt, to be saved with the run.
        module: the network with its first weights ``w_0``.
        decay: kernels that carry L2.
        algorithm: what runs.
        label_names: of the classes, or none.
    """

    config: RunConfig
    population: Population
    parts: Partition
    module: nn.Module
    decay: tuple[str, ...]
    algorithm: Algorithm
    label_names: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The default name of the run's folder, without its number."""
        config = self.config
        return f"{config.algorithm.name}-{config.data.source}-{config.seed}"


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
    parts = load_partition(saved) if saved is not None and saved.exists() else deal(config, samples)
    population = populate(samples, parts)
    check_against(config, population.clients)
    return samples, parts, population


def read_samples(config: RunConfig) -> Samples:
    """The samples of a configuration.

    Raises:
        DataError: if they cannot be read.
    """
    root = getattr(config.data, "root", None)
    return load_samples(
        {"kind": config.data.source, **config.options("source")}, root=Path(root) if root else None
    )


def deal(config: RunConfig, samples: Samples) -> Partition:
    """Who holds which of the samples, as the partition and the seed of a configuration say.

    Raises:
        DataError: if the samples do not suffice.
    """
    partition = {"kind": config.data.partition.kind, **config.options("partition")}
    return make_partition(samples, partition, Key(config.seed).of("data"))


def prepare(config: RunConfig, saved: Path | None = None) -> Prepared:
    """Load the data, build the network and the algorithm.

    Args:
        config: the configuration.
        saved: the partition of an earlier run, used where it is there.

    Raises:
        DataError: if the data cannot be read.
        ConfigError: if data, network and options do not go together.
    """
    samples, parts, population = load_data(config, saved)
    return prepare_on(config, population, parts, tuple(samples.label_names))


def prepare_on(
    config: RunConfig, population: Population, parts: Partition, label_names: tuple[str, ...]
) -> Prepared:
    """Build the network and the algorithm for data that are at hand.

    Args:
        config: the configuration.
        population: the clients and their data.
        parts: how the samples were dealt.
        label_names: of the classes, or none.

    Raises:
        ConfigError: if data, network and options do not go together.
    """
    name = config.model.name
    options = config.options("model")
    module = build(
        name, population.shape, population.classes, Key(config.seed).of("model"), **options
    )
    decay = decay_for(name, module, config.local.l2, **options)
    method, module = fit_to_model(make_method(config), module, Key(config.seed).of("model"))
    return Prepared(config, population, parts, module, decay, as_algorithm(method), label_names)


def make_method(config: RunConfig) -> Method | Algorithm:
    """The method that a configuration names, with its options, and with the server and the
    objective of their tables.

    Raises:
        ConfigError: for a factory of the user's own that fails, and if there is nothing that a
            table could replace.
    """
    rules: dict[str, Any] = {}
    if config.server is not None:
        rules["server"] = _make(config, "server")
        if not callable(rules["server"]):
            what = f"makes no server, got {config.server.name!r}"
            raise ConfigError(
                f"server.name: {what}; expected a factory like those of coterie.rules.server"
            )
    if config.objective is not None:
        rules["objective"] = _make(config, "objective")
        if not isinstance(rules["objective"], Objective):
            what = f"makes no objective, got {config.objective.name!r}"
            raise ConfigError(
                f"objective.name: {what}; expected a factory like those of coterie.objectives"
            )
    return override(_make(config, "algorithm"), config.algorithm.name, **rules)


def _make(config: RunConfig, kind: Literal["algorithm", "server", "objective"]) -> Any:
    """What the factory of a table makes: a registered one, or the user's own."""
    return registry.build(kind, {"name": getattr(config, kind).name, **config.options(kind)})


def run_config(
    config: RunConfig, out: Path | str | None = None, on_round: OnRound | None = None
) -> dict[str, Any]:
    """Execute a configuration; returns what ``summary.json`` holds.

    Args:
        config: the configuration.
        out: the folder of the run, new; default ``runs/<algorithm>-<dataset>-<seed>-<n>``.
        on_round: called after each round, when its row is stored.

    Raises:
        CoterieError: for anything expected; the state is saved where there is one.

    Example:
        >>> import tempfile
        >>> from coterie.config import check
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        ...           "model": {"name": "mclr"}, "local": {"epochs": 1}, "engine": {"name": "serial"},
        ...           "train": {"rounds": 2, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = run_config(check(tables), f"{folder}/run")
        >>> summary["rounds"], summary["clients"], summary["accuracy"]["final"] > 0.1
        (2, 4, True)
    """
    if out is not None:
        RunFolder.check_free(Path(out))
    prepared = prepare(config)
    return execute(prepared, make_folder(prepared, out), on_round)


def make_folder(prepared: Prepared, out: Path | str | None = None) -> RunFolder:
    """The folder of a new run, with its configuration and its partition."""
    check_installed(prepared.config.log.to)
    resolved = prepared.config.resolved()
    folder = (
        RunFolder.create_next("runs", prepared.stem, resolved)
        if out is None
        else RunFolder.create(out, resolved)
    )
    save_partition(folder.path / "partition.npz", prepared.parts)
    return folder


@dataclass(slots=True)
class Progress:
    """What the loop carries from round to round: the last state stored, and since when each client
    is where it is."""

    round: int
    groups: Groups | None
    since: IntArray
    skipped: int = 0
    waited: float = 0.0
    saved: int = field(default=-1)
    scene: FederationSnapshot | None = None

    @classmethod
    def start(
        cls, population: Population, checkpoint: Checkpoint | None, rows: list[dict[str, Any]]
    ) -> Progress:
        """From nothing, or from a checkpoint and the rows before it."""
        if checkpoint is None:
            return cls(0, None, np.full(population.clients, -1))
        since = np.asarray(checkpoint.extra["since"], np.int64)
        scene = (
            FederationSnapshot.restore(population, checkpoint.snapshot)
            if checkpoint.snapshot
            else None
        )
        progress = cls(
            checkpoint.round, checkpoint.groups, since, saved=checkpoint.round, scene=scene
        )
        for row in rows:
            progress._wait(row)
        return progress

    def take(self, result: RoundResult) -> None:
        """A round is done and its row is stored."""
        member = result.groups.member
        before = np.full_like(member, -1) if self.groups is None else self.groups.member
        self.since = np.where(member == before, self.since, np.where(member < 0, -1, result.round))
        self.round = result.round + 1
        self.groups = result.groups
        self.scene = result.scene
        self._wait(result.row)

    def _wait(self, row: dict[str, Any]) -> None:
        self.skipped = self.skipped + 1 if row.get("skipped") else 0
        self.waited = (
            self.waited + (row.get("seconds") or {}).get("total", 0.0)
            if row.get("skipped")
            else 0.0
        )


def execute(
    prepared: Prepared,
    folder: RunFolder,
    on_round: OnRound | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    stop: Callable[[], int] | None = None,
) -> dict[str, Any]:
    """Run the rounds that are left and store what comes of them; returns the summary.

    Args:
        prepared: data, network, algorithm.
        folder: of the run.
        on_round: called after each round, when its row is stored.
        checkpoint: to go on from, ``None``: from the first round.
        resume: whether the folder may hold rows already; those after the checkpoint are forgotten.
        stop: asked after each round; the number of a signal, or 0 to go on.

    Raises:
        Stopped: if ``stop`` said so; the state is saved.
        QuorumError: if too few clients answered for too long; the state is saved.
    """
    log = prepared.config.log
    start = checkpoint.round if checkpoint else 0
    check_installed(log.to)
    rows = folder.rewind(start) if resume else []
    progress = Progress.start(prepared.population, checkpoint, rows)
    with tracked(log, prepared.config.resolved(), folder.path, start) as tell:
        try:
            with make_engine(prepared) as door:
                _loop(prepared, folder, door, progress, _both(tell, on_round), stop)
                _write_clients(prepared, folder, door, progress)
        finally:
            _save(prepared.config, folder, progress, prepared.population)
        return finish(prepared, folder, progress)


def _both(tell: Callable[[dict[str, Any]], None], on_round: OnRound | None) -> OnRound:
    """Tell of a round that is stored: the trackers, then who asked to be told."""

    def told(result: RoundResult) -> None:
        tell(result.row)
        if on_round is not None:
            on_round(result)

    return told


def make_engine(prepared: Prepared) -> Clients:
    """The door to the clients, as ``[engine]``, ``[local]`` and ``[quorum]`` say."""
    config = prepared.config
    quorum = config.quorum
    options = config.engine.model_dump()
    return make_clients(
        options.pop("name"),
        prepared.population,
        prepared.module,
        Solver(**config.local.model_dump()),
        decay=prepared.decay,
        quorum=Quorum(quorum.min_replies, quorum.max_skipped_rounds),
        load_samples=partial(samples_here, config.resolved()),
        **options,
    )


def samples_here(resolved: dict[str, Any]) -> Tensor:
    """The inputs of a resolved configuration's samples, as this machine has them: what an actor of
    Ray reads.

    Raises:
        DataError: if they cannot be read here.
    """
    if "COTERIE_DATA" in os.environ:  # where they lie is each node's own
        resolved = {
            **resolved,
            "data": {name: v for name, v in resolved["data"].items() if name != "root"},
        }
    return load_data(check(resolved))[2].x


def _loop(
    prepared: Prepared,
    folder: RunFolder,
    door: Clients,
    progress: Progress,
    on_round: OnRound | None,
    stop: Callable[[], int] | None,
) -> None:
    config = prepared.config
    saved_at = time.monotonic()
    for result in _simulate(prepared, door, progress):
        folder.append_round(result.row)
        progress.take(result)
        if on_round is not None:
            on_round(result)
        if time.monotonic() - saved_at >= config.checkpoint.seconds:
            _save(config, folder, progress, prepared.population)
            saved_at = time.monotonic()
        _check_wait(config, progress)
        signal = stop() if stop is not None else 0
        if signal and progress.round < config.train.rounds:
            done = f"stopped after {progress.round} of {config.train.rounds} rounds"
            raise Stopped(signal, f"{done}; `coterie resume {folder.path}` goes on")


def _simulate(prepared: Prepared, door: Clients, progress: Progress) -> Any:
    config, key = prepared.config, Key(prepared.config.seed)
    shift = make_shift(config.shifts())
    population = prepared.population
    # who holds samples changes with a shift, and is then said round by round
    clients = (
        np.arange(population.clients) if shift else np.flatnonzero(population.sizes("train") > 0)
    )
    return simulate(
        prepared.algorithm,
        door,
        population,
        starts(prepared.module, key),
        Sampler(config.train.sampler, clients, config.train.clients_per_round, key),
        config.train.rounds,
        key,
        shift=shift,
        state=progress.groups,
        scene=progress.scene,
        start=progress.round,
        skipped=progress.skipped,
        evaluate_every=config.train.evaluate_every,
        evaluate_clients=config.train.evaluate_clients,
        measures=make_measures(
            config.train.measures, Solver(**config.local.model_dump()), config.options("algorithm")
        ),
    )


def _write_clients(
    prepared: Prepared, folder: RunFolder, door: Clients, progress: Progress
) -> None:
    """What the model that serves each client makes of its test samples, after the last round; not
    of a sample."""
    if progress.groups is None or prepared.config.train.evaluate_clients is not None:
        return
    scene = progress.scene or FederationSnapshot.start(prepared.population)
    last = prepared.config.train.rounds - 1
    models, which = served_by(progress.groups)
    testable = np.flatnonzero((scene.population.sizes("test") > 0) & scene.present)
    key = Key(prepared.config.seed).at(last).of("evaluate")
    correct, size = each_client(door, testable, models, which, key)
    folder.write_clients(prepared.population.names, progress.groups.member, correct, size)


def _check_wait(config: RunConfig, progress: Progress) -> None:
    longest = config.quorum.max_wait
    if longest is not None and progress.waited > longest:
        raise QuorumError(
            f"quorum.max_wait: {progress.skipped} skipped rounds in a row, got {progress.waited:.1f} s; "
            f"expected at most {longest:g} s"
        )


def _save(config: RunConfig, folder: RunFolder, progress: Progress, population: Population) -> None:
    if progress.groups is not None and progress.round != progress.saved:
        extra = {"since": progress.since}
        scene = (
            progress.scene.tensors(population)
            if config.shifts() and progress.scene is not None
            else None
        )
        folder.save_checkpoint(
            progress.groups, progress.round, extra, config.checkpoint.keep, scene
        )
        progress.saved = progress.round


def finish(prepared: Prepared, folder: RunFolder, progress: Progress) -> dict[str, Any]:
    """Write models, groups and summary of a run that is done; returns the summary."""
    groups = progress.groups
    if groups is None:
        raise ConfigError(f"{folder.path}: no round was run, got none; expected at least one")
    folder.write_models(Layout.of(prepared.module), groups.models)
    folder.write_groups(prepared.population.names, groups.member, progress.since)
    summary = summarise(prepared.config.resolved(), folder.rows(), prepared.population.clients)
    folder.write_summary(summary)
    return summary

"""The server of a deployment: the rounds of a simulation, with real clients behind the door."""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.clients.identity import Identity, signature
from coterie.clients.quorum import Quorum
from coterie.clients.validation import ReplyValidator
from coterie.config import RunConfig
from coterie.core.keys import Key
from coterie.core.vectors import Layout
from coterie.data import Population, save_partition
from coterie.data.partitions import Partition
from coterie.data.shifts import FederationSnapshot
from coterie.deploy.built import Built
from coterie.deploy.settings import Settings
from coterie.engines.flower import FlowerEngine, Terms
from coterie.errors import CheckpointError, ConfigError, QuorumError
from coterie.runs.cohort import Sampler
from coterie.runs.files import plain
from coterie.runs.loop import RoundResult
from coterie.runs.prepare import make_quorum
from coterie.runs.run import Run, make_progress, write_results
from coterie.runs.spec import RunSpec
from coterie.runs.store import NODES, RunFolder

MARK = "@coterie "
Tell = Callable[[str, Any], None]


def teller() -> Tell:
    """Writes numbered lines into the server's log, which ``coterie deploy run`` reads."""
    numbers = itertools.count()

    def tell(what: str, value: Any) -> None:
        print(MARK + json.dumps({"number": next(numbers), what: plain(value)}), flush=True)

    return tell


@dataclass(frozen=True, slots=True)
class Register:
    """Names of clients in the order of their numbers, on disk before a number is used; and what
    they work on.

    Args:
        path: the file.
        shape: of one input.
        classes: their names, in the order of the labels.
    """

    path: Path
    shape: tuple[int, ...]
    classes: tuple[str, ...]

    def read(self) -> tuple[str, list[str]]:
        """The run's name and the clients' names.

        Raises:
            CheckpointError: if the file is damaged.
        """
        if not self.path.exists():
            return secrets.token_hex(8), []
        try:
            kept = json.loads(self.path.read_bytes())
            return str(kept["run"]), [str(name) for name in kept["clients"]]
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{self.path}: damaged, got no list of clients; expected one"
            ) from None

    def write(self, run: str, names: Sequence[str]) -> None:
        """Written beside, synced, and renamed into place."""
        hidden = self.path.with_name(f".{self.path.name}.tmp-{os.getpid()}")
        with hidden.open("w", encoding="utf-8") as file:
            told = {
                "run": run,
                "shape": self.shape,
                "classes": self.classes,
                "clients": list(names),
            }
            file.write(json.dumps(told, ensure_ascii=False, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(self.path)


def nobodys(names: Sequence[str], clients: int) -> Partition:
    """A partition that knows the clients' names and none of their samples, for who reads the run's
    folder."""
    none = (np.empty(0, np.int64),) * clients
    return Partition(none, none, (*names, *("" for _ in range(clients - len(names)))))


def view(engine: FlowerEngine, shape: tuple[int, ...], classes: int) -> Population:
    """What the rounds have to know of the clients: who can train and be scored. The one sample is
    nobody's."""
    one = np.zeros(1, np.int64)
    none = np.empty(0, np.int64)
    names = [
        *engine.register.names,
        *("" for _ in range(engine.terms.capacity - len(engine.register.names))),
    ]
    parts = [
        tuple(one if able else none for able in kind)
        for kind in (engine.register.trains, engine.register.tests)
    ]
    return Population(
        torch.zeros(1, *shape),
        torch.zeros(1, dtype=torch.int64),
        parts[0],
        parts[1],
        classes,
        tuple(names),
    )


@dataclass(slots=True)
class Attendance:
    """Who is there, looked up before every round; the place of a simulation's shift.

    Args:
        engine: knows the nodes.
        settings: how many to wait for, and how long.
        shape: of one input.
        classes: number of classes.
    """

    engine: FlowerEngine
    settings: Settings
    shape: tuple[int, ...]
    classes: int
    last: NDArray[np.bool_] | None = field(default=None)

    def gather(self, round: int) -> None:
        """Wait for enough clients.

        Raises:
            QuorumError: if they are not there in time.
        """
        engine = self.engine
        least = self.settings.min_clients
        longest = self.settings.longest_wait
        engine.gather(least, longest)
        able = int((engine.register.present & engine.register.trains).sum())
        if able < least:
            raise QuorumError(
                f"deploy.toml: min_clients: too few clients before round {round} after {longest:g} s, got {able}; "
                f"expected at least {least}"
            )

    def __call__(
        self,
        scene: FederationSnapshot,
        initial: Population,
        round: int,
        warm: NDArray[np.bool_],
        key: Key,
    ) -> FederationSnapshot:
        """The scene of this round. See ``coterie.data.shifts.Shift``.

        Raises:
            QuorumError: if too few clients are there for too long.
        """
        engine = self.engine
        before = engine.register.present if self.last is None else self.last
        self.gather(round)
        here = engine.register.present
        named = {
            "joined": [engine.register.names[i] for i in np.flatnonzero(here & ~before)],
            "left": [engine.register.names[i] for i in np.flatnonzero(before & ~here)],
        }
        events = tuple({"kind": what, "clients": names} for what, names in named.items() if names)
        self.last = here
        return FederationSnapshot(view(engine, self.shape, self.classes), here, events)


def serve(grid: Any, given: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Run the rounds that are left on the clients of a grid; returns the summary.

    Args:
        grid: Flower's.
        given: ``config`` (TOML), ``settings`` (JSON), ``out`` (folder of the run) and ``resume``.
        tell: told of the start, of every round, of who comes and goes, and of the end.

    Raises:
        CoterieError: for anything expected; the state is saved after every round.
    """
    config = parse(str(given["config"]))
    settings = Settings.loads(str(given["settings"]))
    built = Built.of(config, settings.shape, settings.classes)
    if config.train.clients_per_round > settings.clients:
        got = f"got {config.train.clients_per_round}; expected at most {settings.clients} (deploy.toml: clients)"
        raise ConfigError(f"train.clients_per_round: more than there are clients, {got}")
    folder, checkpoint = open_folder(
        Path(str(given["out"])), config, bool(given["resume"]), settings
    )
    register = Register(folder.path / NODES, settings.shape, settings.classes)
    run, names = register.read()
    layout = Layout.of(built.module)
    ours = Identity(
        "server", version("coterie"), signature(layout), settings.shape, settings.classes
    )

    def joined(names: Sequence[str]) -> None:
        register.write(run, names)
        save_partition(folder.path / "partition.npz", nobodys(names, settings.clients))

    terms = Terms(ours, built.objective, settings.clients, run, timeout=settings.reply_wait)
    engine = FlowerEngine(
        grid, terms, names=names, say=lambda line: tell("say", line), joined=joined
    )
    joined(names)
    quorum = make_quorum(config)
    door = Clients(
        engine,
        ReplyValidator(cap=settings.most_samples),
        quorum,
        built.classes,
        None,
        layout,
        math.prod(settings.shape),
        engine,
    )
    attend = Attendance(engine, settings, settings.shape, built.classes)
    start = 0 if checkpoint is None else checkpoint.round
    tell(
        "start",
        {
            "folder": str(folder.path),
            "round": start,
            "rounds": config.train.rounds,
            "parameters": layout.d,
            "pid": os.getpid(),
        },
    )
    attend.gather(start)
    population = view(engine, settings.shape, built.classes)
    spec = _spec(built, population, attend, quorum)
    progress = make_progress(spec, folder, checkpoint, resume=bool(given["resume"]))
    federation = Run(spec, door, progress, folder, annotate=partial(_annotate, engine))
    for result in federation.rounds():
        federation.save(config.checkpoint.keep, with_snapshot=False)
        tell("round", result.row)
    summary = write_results(federation, config, tuple(engine.register.names))
    tell("done", summary)
    return summary


def parse(text: str) -> RunConfig:
    """The configuration of a run, from its TOML.

    Raises:
        ConfigError: if there is none, or it is not good.
    """
    import tomllib

    from coterie.config import check

    if not text:
        raise ConfigError(
            "coterie-config: empty, got ''; expected an app that `coterie deploy run` started"
        )
    return check(tomllib.loads(text), "run.toml")


def open_folder(
    out: Path, config: RunConfig, resume: bool, settings: Settings
) -> tuple[RunFolder, Any]:
    """The run's folder, new or to go on with, and the checkpoint to go on from.

    Raises:
        ConfigError: if a new run would overwrite one, or there is none to go on with.
        CheckpointError: if no checkpoint is valid, or it is of another configuration.
    """
    if not resume or not (out / "config.toml").exists():
        return RunFolder.create(out, config.resolved()), None
    folder = RunFolder.open(out)
    checkpoint = folder.latest_checkpoint(config.resolved())
    if checkpoint is not None and len(checkpoint.groups.member) != settings.clients:
        got = f"got {settings.clients}; expected {len(checkpoint.groups.member)}, as in {out}"
        raise ConfigError(f"deploy.toml: clients: another number than the run began with, {got}")
    return folder, checkpoint


def _spec(built: Built, population: Population, attend: Attendance, quorum: Quorum) -> RunSpec:
    """The run of a deployment: attendance is its shift, and only clients that can train are
    asked."""
    config = built.config
    train = config.train
    everyone = np.arange(population.clients)
    sampler = Sampler(train.sampler, everyone, train.clients_per_round, Key(config.seed))
    return RunSpec(
        built.algorithm,
        population,
        built.network,
        rounds=train.rounds,
        seed=config.seed,
        sampler=lambda round, present: sampler(round, present & attend.engine.register.trains),
        local=built.solver,
        quorum=quorum,
        shift=attend,
        evaluate_every=train.evaluate_every,
        evaluate_clients=train.evaluate_clients,
    )


def _annotate(engine: FlowerEngine, result: RoundResult) -> None:
    """The row of a round: who came and went, and clients that gave no reply beside those that the
    gate refused.

    Rows of a simulation say what a shift did; here nobody knows but the clients.
    """
    row = result.row
    refused = {**row["refused"]}
    for reason, count in engine.take_lost().items():
        refused[reason] = refused.get(reason, 0) + count
    row["refused"] = dict(sorted(refused.items()))
    row["attendance"] = row.pop("shift")
    del row["changed"], row["missed"]

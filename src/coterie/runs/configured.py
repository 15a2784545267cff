"""The parts of a run as the tables of its configuration say: local SGD, quorum, network, task, method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Quorum
from coterie.config import RunConfig, registry
from coterie.config.choice_tables import ChoiceKind
from coterie.config.kinds import KINDS
from coterie.core.objective import Objective
from coterie.core.own_model import OwnModel
from coterie.core.reply_times import ReplyTimes
from coterie.core.solver import Solver, solver_of
from coterie.core.task import Task, headline_of
from coterie.engines import Attack
from coterie.errors import ConfigError
from coterie.headline import Headline
from coterie.measures.own_models import Adaptation
from coterie.methods.algorithm import Algorithm
from coterie.methods.buffered import Buffering
from coterie.methods.method import Method
from coterie.methods.override import override
from coterie.privacy.private import Privacy
from coterie.privacy.secure_sums import SecureSums
from coterie.rules.migration import Migration
from coterie.runs.availability import Availability, Spans, parse_spans
from coterie.runs.participation import Participation, participation_of
from coterie.runs.spec import Network
from coterie.tasks import CLASSIFICATION


def make_solver(config: RunConfig) -> Solver:
    """Local training, as ``[local]`` says."""
    return solver_of(config.local.model_dump(), config.train.rounds)


def make_quorum(config: RunConfig) -> Quorum:
    """When a round counts, as ``[quorum]`` says."""
    return Quorum(**config.quorum.model_dump())


def make_bounds(config: RunConfig) -> Bounds:
    """How far one client may be from the others, as ``[bounds]`` says."""
    table = config.bounds
    return replace(Bounds.between(table.floor, table.ceiling), enabled=table.enabled)


def make_privacy(config: RunConfig) -> Privacy | None:
    """Differential privacy of updates, as ``[privacy]`` says; ``None``: there is none."""
    if config.privacy is None:
        return None
    return Privacy(**config.privacy.model_dump())


def make_secure_sums(config: RunConfig) -> SecureSums | None:
    """Sums as secure aggregation computes them, as ``[secure]`` says; ``None``: there are none."""
    if config.secure is None:
        return None
    return SecureSums(**config.secure.model_dump())


def make_buffering(config: RunConfig) -> Buffering | None:
    """Asynchronous rounds, as ``[asynchronous]`` says; ``None``: each waits for its clients."""
    table = config.asynchronous
    if table is None:
        return None
    times = make_reply_times(config) or ReplyTimes()
    return Buffering(table.buffer, config.train.clients_per_round, table.exponent, times)


def make_reply_times(config: RunConfig) -> ReplyTimes | None:
    """How long clients take, as ``[reply_times]`` says; ``None`` without the table."""
    if config.reply_times is None:
        return None
    return ReplyTimes(**config.reply_times.model_dump())


def make_participation(
    config: RunConfig, names: tuple[str, ...], spans_text: str | None = None
) -> Participation:
    """Who can be asked, and who answers in time, as ``[availability]``, ``[reply_times]`` and
    ``train.over_selection`` say.

    Args:
        config: of the run.
        names: of the clients.
        spans_text: of the file that ``[availability]`` names, if it names one.

    Raises:
        DataError: for a line of that file that is wrong.
    """
    availability = None
    table = config.availability
    if table is not None:
        spans: Spans = {}
        if table.file is not None:
            assert spans_text is not None, "the file was not read"
            spans = parse_spans(spans_text, Path(table.file))
        availability = Availability(
            table.kind, table.period, table.share, table.zones, spans, names
        )
    # The clock of asynchronous rounds is that of the method.
    if config.asynchronous is not None:
        return Participation(availability)
    train = config.train
    times = make_reply_times(config)
    return participation_of(availability, times, train.over_selection, train.clients_per_round)


def make_attack(config: RunConfig) -> Attack | None:
    """What some clients do to the run, as ``[attack]`` says; ``None``: all are honest."""
    if config.attack is None:
        return None
    table = {"kind": config.attack.kind, **config.attack.options}
    attack: Attack = registry.build("attack", table)
    return attack


def make_adaptation(config: RunConfig) -> Adaptation | None:
    """How models are adapted before they are scored, as ``[evaluate]`` says; ``None``: they are not."""
    if config.evaluate.adapt is None:
        return None
    return Adaptation(**config.evaluate.adapt.model_dump())


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


def make_method(config: RunConfig) -> Method | Algorithm:
    """The method that a configuration names, with its options, and with the server, the weighing,
    the objective, the migration, the personal layers and the own models of their tables.

    Raises:
        ConfigError: for a factory of the user's own that fails, and if there is nothing that a
            table could replace.
    """
    server = _make(config, "server", callable, "rules.server")
    weigh = _make(config, "weigh", callable, "rules.robust")
    objective = _make(config, "objective", lambda made: isinstance(made, Objective), "objectives")
    own_model = _make(config, "own_model", lambda made: isinstance(made, OwnModel), "algorithms")
    migration = None
    if config.migration is not None:
        migration = Migration(config.migration.detector, config.migration.tau)
    personal: tuple[str, ...] = ()
    if config.personal is not None:
        personal = config.personal.layers
    name = config.algorithm.name
    method = registry.build("algorithm", {"name": name, **config.algorithm.options})
    return override(
        method,
        name,
        server=server,
        objective=objective,
        migration=migration,
        weigh=weigh,
        personal=personal,
        own_model=own_model,
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
    selector = KINDS[kind].selector
    name = getattr(table, selector)
    made = registry.build(kind, {selector: name, **table.options})
    # The factory may be a user's, and what it makes would fail only in the first round.
    if not fits(made):
        what = f"makes no {kind}, got {name!r}"
        expected = f"a factory like those of coterie.{home}"
        raise ConfigError(f"{KINDS[kind].path}: {what}; expected {expected}")
    return made

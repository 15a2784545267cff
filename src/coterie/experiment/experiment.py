"""All that a run follows from, as one record of records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, get_args, get_type_hints

import tomli_w
from torch import nn

from coterie.clients.bounds import Bounds
from coterie.clients.cohort import Quorum
from coterie.config.choice_tables import (
    ChoiceTable,
    DataTable,
    EngineTable,
    KindTable,
    NamedTable,
)
from coterie.config.kinds import KINDS
from coterie.config.schema import to_plain
from coterie.core import Objective, OwnModel, Solver, Task
from coterie.core.availability import Availability
from coterie.core.reply_times import ReplyTimes
from coterie.data.population import Population
from coterie.data.shifts import Shift
from coterie.engines import Attack
from coterie.errors import ConfigError, Problem
from coterie.experiment.records import (
    Checkpoints,
    Log,
    PersonalLayers,
    Training,
)
from coterie.measures.scoring import Evaluate
from coterie.methods.algorithm import Algorithm
from coterie.methods.buffered import Buffering
from coterie.methods.method import Method
from coterie.models import Network
from coterie.privacy.private import Privacy
from coterie.privacy.secure_sums import SecureSums
from coterie.rules.migration import Migration
from coterie.rules.server_step import Server
from coterie.rules.weighing import Weigh

# Fields that are choices, with the kind of what they choose: a name with options, or an object.
CHOICES: Mapping[str, str] = {
    kind.place[0]: name for name, kind in KINDS.items() if len(kind.place) == 1
}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that a run follows from. Each field is a table of a configuration.

    A choice is a name with its options, or an object of Python. Only what has a name can be written
    to a file: `tables` and `toml` refuse the rest in one line.

    Args:
        seed: of every random draw.
        data: a source with its options and its partition, or a population.
        model: the network: a name with options, or a module whose parameters are the start, alone or
            with the kernels that carry L2.
        local: how clients train.
        train: rounds, and who takes part in them.
        evaluate: with which models clients are scored in addition to those that serve them.
        algorithm: what runs.
        engine: how clients are reached.
        quorum: when a round counts.
        bounds: how far one client may be from the others of a request.
        checkpoint: how often the state is saved.
        log: which trackers are sent the rounds.
        shift: what moves as the rounds go by: a table, several, or a function.
        server: a server optimiser in place of the algorithm's own.
        weigh: how much replies count in place of the algorithm's own rule.
        objective: what clients minimise in place of the algorithm's own.
        own_model: what clients have of their own in addition to the algorithm's models.
        attack: what some clients of a simulation do to the run.
        task: what is learned and measured; by default a classification.
        migration: which clients lose their group because their data drifted, in place of the
            algorithm's own rule.
        privacy: differential privacy of updates.
        personal: layers that stay with their client.
        secure: sums as secure aggregation computes them.
        availability: which clients of a simulation can be reached when.
        reply_times: how long clients of a simulation take to reply.
        asynchronous: rounds that do not wait for all of their clients.
        folder: where ``module:factory`` is found; filled in with the folder that the run was
            started in.
        given: key paths that the user set; what is not among them is a default, which may follow
            from other tables.
        file: where it was read from, for error lines.
    """

    seed: int = 0
    data: DataTable | Population
    model: NamedTable | nn.Module | Network
    local: Solver = Solver()
    train: Training
    evaluate: Evaluate = Evaluate()
    algorithm: NamedTable | Method | Algorithm
    engine: EngineTable
    quorum: Quorum = Quorum()
    bounds: Bounds = Bounds()
    checkpoint: Checkpoints = Checkpoints()
    # Made later: which trackers there are is known once the packages above are imported.
    log: Log = field(default_factory=Log)
    shift: KindTable | tuple[KindTable, ...] | Shift | None = None
    server: NamedTable | Server | None = None
    weigh: NamedTable | Weigh | None = None
    objective: NamedTable | Objective | None = None
    own_model: NamedTable | OwnModel | None = None
    attack: KindTable | Attack | None = None
    task: KindTable | Task | None = None
    migration: Migration | None = None
    privacy: Privacy | None = None
    personal: PersonalLayers | None = None
    secure: SecureSums | None = None
    availability: Availability | None = None
    reply_times: ReplyTimes | None = None
    asynchronous: Buffering | None = None
    folder: str | None = None
    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    file: str = field(default="configuration", repr=False, compare=False)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Experiment:
        """Read and check a configuration.

        Raises:
            ConfigError: with all that is wrong, one line each.
        """
        from coterie.experiment.reading import load_config

        return load_config(os.fspath(path))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Experiment:
        """Check tables as TOML has them; a choice may also be an object of Python.

        Raises:
            ConfigError: with all that is wrong, one line each.

        Example:
            >>> experiment = Experiment.from_tables({
            ...     "data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
            ...     "train": {"rounds": 3}, "algorithm": {"name": "fedgroup", "groups": 2}})
            >>> experiment.train.rounds, experiment.options("algorithm")["groups"]
            (3, 2)
        """
        from coterie.experiment.reading import check

        return check(tables)

    @property
    def solver(self) -> Solver:
        """Local training in a run of so many rounds."""
        return self.local.over_rounds(self.train.rounds)

    def choice(self, kind: str) -> Any:
        """What a choice holds: a table, an object of Python, or ``None``."""
        found: Any = self
        for part in KINDS[kind].place:
            found = getattr(found, part)
        return found

    def name(self, kind: str) -> str:
        """The name of a choice; of an object the name of its type, but for methods that a factory of
        `coterie.algorithms` made."""
        value = self.choice(kind)
        if isinstance(value, ChoiceTable):
            return str(getattr(value, KINDS[kind].selector))
        if isinstance(value, Method) and value.made_by is not None:
            return str(value.made_by["name"])
        return type(value).__name__

    def options(self, kind: str) -> dict[str, Any]:
        """The options of a choice by the names of its factory's parameters, without the choice
        itself; none for an object of Python.

        ``options("source")`` leaves out ``root``, which is a place on this machine.
        """
        table = self.choice(kind)
        if isinstance(table, ChoiceTable):
            return table.options
        return {}

    def shifts(self) -> list[dict[str, Any]]:
        """The tables of ``[shift]`` or ``[[shift]]``, each with its ``kind``.

        Example:
            >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
            ...           "train": {"rounds": 3, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
            >>> Experiment.from_tables(tables | {"shift": {"kind": "swap_all"}}).shifts()[0]["p"]
            0.05
        """
        tables = self.shift if isinstance(self.shift, tuple) else (self.shift,)
        return [
            {"kind": table.kind, **table.options}
            for table in tables
            if isinstance(table, KindTable)
        ]

    def unnamed(self) -> list[Problem]:
        """The fields that no file can hold."""
        found = []
        for name in table_names():
            value = getattr(self, name)
            if name in CHOICES and not isinstance(value, ChoiceTable | tuple | None):
                expected = "a name, or a table of a name and options"
                what = "nothing that a file can name"
                found.append(
                    Problem("cannot-be-written", name, what, f"a {type(value).__name__}", expected)
                )
        return found

    def resolved(self) -> dict[str, Any]:
        """The tables with every default filled in, as TOML can hold them (what is ``None`` is left
        out).

        Raises:
            ConfigError: for an object of Python, naming the field.
        """
        found = self.unnamed()
        if found:
            raise ConfigError.of(found)
        return to_plain({name: getattr(self, name) for name in table_names()})

    def toml(self) -> str:
        """The same as TOML."""
        return tomli_w.dumps(self.resolved())

    def with_table(self, name: str, **values: Any) -> Experiment:
        """The same with other values in the record of a table."""
        return replace(self, **{name: replace(getattr(self, name), **values)})


@cache
def table_names() -> tuple[str, ...]:
    """The fields of an experiment that a file may set, in their order."""
    return tuple(one.name for one in fields(Experiment) if one.compare)


@cache
def record_types() -> Mapping[str, type[Any]]:
    """The record of each table that is no choice."""
    kinds = get_type_hints(Experiment, include_extras=True)
    found = {}
    for name in table_names():
        parts = [kinds[name], *get_args(kinds[name])]
        records = [part for part in parts if hasattr(part, "__dataclass_fields__")]
        if name not in CHOICES and records:
            found[name] = records[0]
    return found

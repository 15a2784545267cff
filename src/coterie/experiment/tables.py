"""The tables that a run follows from, as one record of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Self, get_args, get_type_hints

import tomli_w
from torch import nn

from coterie.clients.bounds import Bounds
from coterie.clients.cohort import Quorum
from coterie.config.choice_tables import (
    Absent,
    ChoiceTable,
    DataTable,
    EngineTable,
    KindTable,
    NamedTable,
)
from coterie.config.kinds import KINDS
from coterie.config.schema import outside_tables, to_plain
from coterie.core import Objective, OwnModel, Solver, Task
from coterie.core.availability import Availability
from coterie.core.reply_times import ReplyTimes
from coterie.data.population import Population
from coterie.data.shifts import Shift
from coterie.engines import Attack
from coterie.errors import ConfigError, Problem, shown
from coterie.experiment.records import Checkpoints, Log, PersonalLayers, Training
from coterie.measures.scoring import Evaluate
from coterie.methods.algorithm import Algorithm
from coterie.methods.buffered import Buffering
from coterie.methods.method import Method
from coterie.models import Network
from coterie.privacy.private import Privacy
from coterie.privacy.secure_sums import SecureSums
from coterie.rules.migration import Migration
from coterie.rules.server import Server
from coterie.rules.weighing import Weigh

# Fields that are choices, with the kind of what they choose: a name with options, or an object.
CHOICES: Mapping[str, str] = {
    kind.place[0]: name for name, kind in KINDS.items() if len(kind.place) == 1
}
# The key that names such a choice; an engine, and data without a name, are no objects in a file.
SELECTORS: Mapping[str, str] = {
    place: KINDS[kind].selector
    for place, kind in CHOICES.items()
    if place not in ("data", "engine")
}


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The fields of `Experiment`, and what they say together."""

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
    # Of a run with a folder: what the folder says of objects, by field.
    objects: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def solver(self) -> Solver:
        """Local training in a run of so many rounds."""
        return self.local.over_rounds(self.train.rounds)

    def choice(self, kind: str) -> Any:
        """What a choice holds: a table, an object of Python, or ``None``."""
        if not isinstance(kind, str) or kind not in KINDS:
            raise ConfigError("unknown-choice", "kind", got=kind, allowed=", ".join(KINDS))
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
        if isinstance(value, Absent):
            return value.name
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
            >>> from coterie.experiment import Experiment
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
        names = [name for name in table_names() if name not in self.objects]
        return [one for name in names for one in unnamed_in(name, getattr(self, name))]

    def resolved(self) -> dict[str, Any]:
        """The tables with every default filled in, as TOML can hold them (what is ``None`` is left
        out). Of a run with a folder, also what the folder says of objects.

        Raises:
            ConfigError: for a Python object, with the name of the field.
        """
        found = self.unnamed()
        if found:
            raise ConfigError.of(found)
        values = {name: getattr(self, name) for name in table_names()}
        return to_plain({**values, **self.objects})

    def toml(self) -> str:
        """The same as TOML."""
        return tomli_w.dumps(self.resolved())

    def with_table(self, name: str, **values: Any) -> Self:
        """The same with other values in the record of a table.

        Raises:
            ConfigError: for a table that is no record, an unknown key, or a value out of its range.
        """
        if not isinstance(name, str) or name not in record_types():
            allowed = ", ".join(record_types())
            raise ConfigError("unknown-choice", "name", got=name, allowed=f"one of {allowed}")
        kind = record_types()[name]
        known = [one.name for one in fields(kind)]
        unknown = [key for key in values if key not in known]
        if unknown:
            allowed = f"one of {', '.join(known)}"
            raise ConfigError.of(
                Problem("unknown-key", f"{name}.{key}", "", shown(values[key]), allowed)
                for key in unknown
            )
        before = getattr(self, name)
        try:
            record = kind(**values) if before is None else replace(before, **values)
        except ConfigError as error:
            raise ConfigError.of(
                replace(one, path=f"{name}.{one.path}") for one in error.problems
            ) from None
        given = self.given | {f"{name}.{key}" for key in values}
        return replace(self, **{name: record}, given=given)


def unnamed_in(name: str, value: Any) -> list[Problem]:
    """What of a field's value no file can hold: an object that is a choice, or values of a table."""
    if name in CHOICES and not isinstance(value, ChoiceTable | tuple | None):
        expected = (
            f"a name, or a table such as {{'{KINDS[CHOICES[name]].selector}': 'name of it', ...}}"
        )
        if name == "model":
            expected += "; 'module:factory' names your own network"
        what = "an object that cannot be stored in a run folder"
        return [Problem("cannot-be-written", name, what, shown(value), expected)]
    return [
        Problem(
            "cannot-be-written",
            f"{name}.{key}",
            "cannot be written to a configuration",
            shown(found),
            "a value that can be written to a configuration",
        )
        for table in (value if isinstance(value, tuple) else (value,))
        for key, found in outside_tables(table).items()
    ]


@cache
def table_names() -> tuple[str, ...]:
    """The fields of an experiment that a file may set, in their order."""
    return tuple(one.name for one in fields(Tables) if one.compare)


@cache
def record_types() -> Mapping[str, type[Any]]:
    """The record of each table that is no choice."""
    kinds = get_type_hints(Tables, include_extras=True)
    found = {}
    for name in table_names():
        parts = [kinds[name], *get_args(kinds[name])]
        records = [part for part in parts if hasattr(part, "__dataclass_fields__")]
        if name not in CHOICES and records:
            found[name] = records[0]
    return found

"""The pydantic model of a configuration, made for the choices that its tables name.

Every algorithm, source or network has options of its own, so the fields of a file are known only
once its names are read. Used by `coterie.config.reading`, which validates the file with the model.
A new kind of choice is named in `coterie.config.kinds`, in `CHOICES`, and as a field in `_model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import create_model

from coterie.config import registry, schema
from coterie.config.choice_tables import ChoiceTable, DataTable, EngineTable
from coterie.config.kinds import KINDS
from coterie.config.schema import Factory
from coterie.config.tables import LogTable, MigrationTable, RunConfig, TrainTable
from coterie.errors import ConfigError

CHOICES = (
    "source",
    "partition",
    "model",
    "algorithm",
    "server",
    "weigh",
    "objective",
    "own_model",
    "attack",
    "task",
)
# Of these, the kinds whose table may be left out.
OPTIONAL = ("server", "weigh", "objective", "own_model", "attack", "task")


@dataclass(frozen=True, slots=True)
class Choice:
    """What a table chose.

    Args:
        kind: of the choice, a key of ``KINDS``.
        factory: that the name stands for; ``None`` if the name is missing or unknown.
        custom: whether the name is not a registered one, as ``module:factory``.
    """

    kind: str
    factory: Factory | None = None
    custom: bool = False

    def model(self) -> type[ChoiceTable]:
        """The pydantic model of the table."""
        return registry.table_model(self.kind, self.factory, self.custom)


def run_model(tables: Mapping[str, Any]) -> tuple[type[RunConfig], list[str]]:
    """The pydantic model of a configuration that makes the same choices as some tables.

    Args:
        tables: of a file, not validated.

    Returns:
        The model, and a line for each choice whose code cannot be used.
    """
    refused: list[str] = []
    # Pairs, not a dictionary: `_model` is cached by them, so they must be hashable.
    choices: list[tuple[str, Choice | None]] = []
    for kind in CHOICES:
        table = _table_at(tables, KINDS[kind].place)
        if table is None and kind in OPTIONAL:
            choices.append((kind, None))
        else:
            choices.append((kind, _choose(kind, table, refused)))
    shift = _choose_shifts(tables.get("shift"), refused)
    plugin_engine = _plugin_engine(tables, refused)
    detector = registry.default_detector(_name_at(tables, "algorithm"))
    return _model(tuple(choices), shift, plugin_engine, detector), refused


def _plugin_engine(tables: Mapping[str, Any], refused: list[str]) -> str | None:
    """The engine of another package that the tables name, if they do and it can be used."""
    name = _name_at(tables, "engine")
    if name is None or name not in registry.plugins("engine").usable:
        return None
    try:
        registry.find("engine", name)
    except ConfigError as error:
        refused.append(str(error))
        return None
    return name


def _table_at(tables: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    record: Any = tables
    for part in place:
        record = record.get(part) if isinstance(record, Mapping) else None
    return record


def _name_at(tables: Mapping[str, Any], key: str) -> str | None:
    return _selected(tables.get(key), "name")


def _selected(table: Any, selector: str) -> str | None:
    """The name that a table of unknown content chose."""
    name = table.get(selector) if isinstance(table, Mapping) else None
    if isinstance(name, str):
        return name
    return None


def _choose(kind: str, table: Any, refused: list[str]) -> Choice:
    """What a table of unknown content chose."""
    name = _selected(table, KINDS[kind].selector)
    if name is None:
        return Choice(kind)
    registered = name in registry.names(kind)
    custom = KINDS[kind].custom and ":" in name
    # A refused plugin goes on to `find`, whose error says which packages clash.
    if not registered and not custom and name not in registry.plugins(kind).refused:
        return Choice(kind)  # an unknown name, which its field refuses
    try:
        return Choice(kind, registry.find(kind, name), custom=not registered)
    except ConfigError as error:
        # Collected and not raised: all mistakes of a file are reported at once.
        refused.append(str(error))
        # As a custom one, so that its name is not reported once more, as an unknown one.
        return Choice(kind, custom=True)


def _choose_shifts(table: Any, refused: list[str]) -> Choice | tuple[Choice, ...] | None:
    """What ``[shift]`` chose, or each table of ``[[shift]]``; ``None`` where there is neither."""
    if table is None:
        return None
    if isinstance(table, list):
        return tuple(_choose("shift", one, refused) for one in table)
    return _choose("shift", table, refused)


# The runs of a sweep or of a report differ in values and make the same few choices. Without the
# cache a check takes 5 ms in place of 0.2 ms.
@lru_cache(maxsize=1024)
def _model(
    choices: tuple[tuple[str, Choice | None], ...],
    shift: Choice | tuple[Choice, ...] | None,
    plugin_engine: str | None,
    detector: str,
) -> type[RunConfig]:
    """The pydantic model of a configuration with these choices."""
    engine = _engine_model(plugin_engine)
    models = {kind: None if choice is None else choice.model() for kind, choice in choices}
    fields: dict[str, Any] = {
        "data": (_data_model(models["source"], models["partition"]), ...),
        "model": (models["model"], ...),
        "algorithm": (models["algorithm"], ...),
        "server": (models["server"], None),
        "weigh": (models["weigh"], None),
        "objective": (models["objective"], None),
        "own_model": (models["own_model"], None),
        "attack": (models["attack"], None),
        "task": (models["task"], None),
        "shift": (_shift_type(shift), None),
        "train": (_train_model(), ...),
        "engine": (engine, engine()),
        "migration": (MigrationTable | None, _default_migration(detector)),
        "log": (_log_model(), _log_model()()),
    }
    return create_model("RunConfig", __base__=RunConfig, **fields)


def _default_migration(detector: str) -> MigrationTable | None:
    """The algorithm's own, so that a run's folder says it."""
    if detector == "none":
        return None
    return MigrationTable.model_validate({"detector": detector})


def _data_model(source: Any, partition: Any) -> type[DataTable]:
    bases: tuple[Any, ...] = (source, DataTable)
    # The options of an unknown source are unknown, too, so none of them is refused.
    if source.model_config["extra"] == "allow":
        bases = (*bases, registry.Open)
    fields: dict[str, Any] = {"partition": (partition, ...), "root": (str | None, None)}
    return create_model("Data", __base__=bases, **fields)


def _shift_type(shift: Choice | tuple[Choice, ...] | None) -> Any:
    """The type of ``[shift]``: a table, a tuple of them, or nothing."""
    if shift is None:
        return None
    if isinstance(shift, tuple):
        return tuple.__class_getitem__(tuple(one.model() for one in shift))
    return shift.model()


# Tables whose values are names of registries that may hold plugins: which names there are is known
# only now.


def _list_of(kind: str) -> Any:
    """The type of a list of registered names."""
    known = registry.names(kind)
    return tuple.__class_getitem__((Literal[known], ...))


@lru_cache(maxsize=1)
def _train_model() -> type[TrainTable]:
    fields: dict[str, Any] = {"measures": (_list_of("measure"), ())}
    return create_model("Train", __base__=TrainTable, **fields)


@lru_cache(maxsize=32)
def _engine_model(plugin: str | None) -> type[EngineTable]:
    """The table of the engines: the options of all that Coterie has, and those of one plugin."""
    known = registry.names("engine")
    fields: dict[str, Any] = {"name": (Literal[known], "pool")}
    for name in (*registry.builtin("engine"), *([plugin] if plugin else [])):
        factory = registry.find("engine", name)
        options = schema.fields(factory, KINDS["engine"].context)
        fields |= {option: kind for option, kind in options.items() if option not in fields}
    return create_model("Engine", __base__=EngineTable, **fields)


@lru_cache(maxsize=1)
def _log_model() -> type[LogTable]:
    fields: dict[str, Any] = {"to": (_list_of("tracker"), ())}
    return create_model("Log", __base__=LogTable, **fields)

"""The pydantic model of an experiment's tables, made for the choices that they name.

Every algorithm, source or network has options of its own, so the fields of a file are known only
once its names are read. The other tables are those of the records of `Experiment`. A choice or a
record may also be given as an object of Python; its table is then not looked into.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

from pydantic import create_model

from coterie.config import registry, schema
from coterie.config.choice_tables import ChoiceTable, DataTable, EngineTable
from coterie.config.kinds import KINDS
from coterie.config.problems import default_at
from coterie.config.schema import Factory, Table, default_of, table_of
from coterie.config.toml_text import value_at
from coterie.errors import ConfigError, Problem
from coterie.experiment.tables import CHOICES, Tables, record_types
from coterie.rules.migration import Migration

PLAIN = (Mapping, list, str, int, float)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a table chose.

    Args:
        kind: the kind of the choice, a key of ``KINDS``.
        factory: the factory with this name; ``None`` if the name is missing or unknown.
        custom: whether the name is not a registered one, as ``module:factory``.
    """

    kind: str
    factory: Factory | None = None
    custom: bool = False

    def model(self) -> type[ChoiceTable]:
        return registry.table_model(self.kind, self.factory, self.custom)


def is_object(value: Any) -> bool:
    """Whether a value is an object of Python and nothing that a file could hold."""
    return value is not None and not isinstance(value, PLAIN)


def experiment_model(tables: Mapping[str, Any]) -> tuple[type[Table], list[Problem]]:
    """The pydantic model of tables that make the same choices as these.

    Returns:
        The model, and a line for each choice whose code cannot be used.
    """
    refused: list[Problem] = []
    # Pairs, not a dictionary: `_model` is cached by them, so they must be hashable.
    choices: list[tuple[str, Choice | tuple[Choice, ...] | None]] = []
    for name, kind in CHOICES.items():
        if kind != "engine":
            choices.append((kind, _choose_table(kind, tables.get(name), refused)))
    partition = value_at(tables, KINDS["partition"].place)
    choices.append(("partition", _choose("partition", partition, refused)))
    tables_of_objects = {*CHOICES, *record_types()}
    objects = frozenset(name for name in tables_of_objects if is_object(tables.get(name)))
    plugin_engine = _plugin_engine(tables, refused)
    detector = registry.default_detector(_selected(tables.get("algorithm"), "name"))
    return _model(tuple(choices), objects, plugin_engine, detector), refused


def _choose_table(
    kind: str, table: Any, refused: list[Problem]
) -> Choice | tuple[Choice, ...] | None:
    if isinstance(table, list) and kind == "shift":
        return tuple(_choose(kind, one, refused) for one in table)
    if table is None and kind not in ("source", "model", "algorithm"):
        return None
    return _choose(kind, table, refused)


def _choose(kind: str, table: Any, refused: list[Problem]) -> Choice:
    """What a table of unknown content chose."""
    name = _selected(table, KINDS[kind].selector)
    if name is None:
        return Choice(kind)
    registered = name in registry.names(kind)
    custom = KINDS[kind].custom and ":" in name
    # A refused plugin is left to `find`, whose error says which packages clash.
    if not registered and not custom and name not in registry.plugins(kind).refused:
        return Choice(kind)  # an unknown name, which its field refuses
    try:
        return Choice(kind, registry.find(kind, name), custom=not registered)
    except ConfigError as error:
        # Collected and not raised: all mistakes of a file are reported at once.
        refused += error.problems
        # As a custom one, so that its name is not reported once more, as an unknown one.
        return Choice(kind, custom=True)


def _plugin_engine(tables: Mapping[str, Any], refused: list[Problem]) -> str | None:
    """The engine of another package that the tables name, if they do and it can be used."""
    name = _selected(tables.get("engine"), "name")
    if name is None or name not in registry.plugins("engine").usable:
        return None
    try:
        registry.find("engine", name)
    except ConfigError as error:
        refused += error.problems
        return None
    return name


def _selected(table: Any, selector: str) -> str | None:
    """The name that a table of unknown content chose."""
    name = value_at(table, (selector,))
    return name if isinstance(name, str) else None


# The runs of a sweep or of a report differ in values and make the same few choices. Without the
# cache a check takes 5 ms in place of 0.2 ms.
@lru_cache(maxsize=1024)
def _model(
    choices: tuple[tuple[str, Choice | tuple[Choice, ...] | None], ...],
    objects: frozenset[str],
    plugin_engine: str | None,
    detector: str,
) -> type[Table]:
    """The pydantic model of tables with these choices, and with these objects of Python."""
    chosen = dict(choices)
    engine = _engine_model(plugin_engine)
    found: dict[str, Any] = {}
    for field in fields(Tables):
        if not field.compare:
            continue
        default = default_of(field)
        if field.name in objects:
            found[field.name] = (Any, default)
        elif field.name == "seed":
            found["seed"] = (schema.Seed, default)
        elif field.name == "engine":
            found["engine"] = (engine, engine())
        elif field.name == "data":
            source = chosen["source"]
            partition = chosen["partition"]
            assert isinstance(source, Choice)
            assert isinstance(partition, Choice)
            found["data"] = (_data_model(source.model(), partition.model()), ...)
        elif field.name in CHOICES:
            found[field.name] = (_choice_type(chosen[CHOICES[field.name]]), default)
        elif field.name in record_types():
            found[field.name] = _record_field(field.name, default, detector)
        else:
            found[field.name] = (str | None, None)
    return create_model("Experiment", __base__=Table, **found)


def _choice_type(choice: Choice | tuple[Choice, ...] | None) -> Any:
    """The type of a choice: a table, a tuple of them, or nothing."""
    if choice is None:
        return None
    if isinstance(choice, tuple):
        return tuple.__class_getitem__(tuple(one.model() for one in choice))
    return choice.model()


def _record_field(name: str, default: Any, detector: str) -> tuple[Any, Any]:
    table = table_of(record_types()[name])
    # The algorithm's own migration, so that a run's folder says it.
    if name == "migration" and detector != "none":
        return table | None, table_of(Migration).model_validate({"detector": detector})
    if default is None:
        return table | None, None
    return table, ... if default is ... else table()


def _data_model(source: Any, partition: Any) -> type[DataTable]:
    bases: tuple[Any, ...] = (source, DataTable)
    # The options of an unknown source are unknown, too, so none of them is refused.
    if source.model_config["extra"] == "allow":
        bases = (*bases, registry.Open)
    found: dict[str, Any] = {"partition": (partition, ...), "root": (str | None, None)}
    return create_model("Data", __base__=bases, **found)


@lru_cache(maxsize=32)
def _engine_model(plugin: str | None) -> type[EngineTable]:
    """The table of the engines: the options of all that Coterie has, and those of one plugin."""
    known = registry.names("engine")
    found: dict[str, Any] = {"name": (Literal[known], default_at(EngineTable, ("name",)))}
    for name in (*registry.builtin("engine"), *([plugin] if plugin else [])):
        factory = registry.find("engine", name)
        options = schema.fields(factory, KINDS["engine"].context)
        found |= {option: kind for option, kind in options.items() if option not in found}
    return create_model("Engine", __base__=EngineTable, **found)

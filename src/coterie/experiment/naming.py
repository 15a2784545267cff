"""An experiment with names in place of its objects, so that the folder of its run says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from coterie.config.choice_tables import ChoiceTable
from coterie.config.schema import python_values, to_plain
from coterie.data.population import Population
from coterie.data.sources.saved import population_digest
from coterie.errors import ConfigError, Problem
from coterie.experiment.experiment import Experiment, check
from coterie.experiment.live import described
from coterie.experiment.model import is_object
from coterie.experiment.tables import CHOICES, SELECTORS, table_names, unnamed_in
from coterie.methods.method import Method
from coterie.rules.migration import Migration


def named(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment with names in place of its objects; those that have none stay, with what the
    folder says of them.

    Raises:
        ConfigError: for functions in a table, which no file can hold.
    """
    tables: dict[str, Any] = {}
    objects = dict(experiment.objects)
    found: list[Problem] = []
    for name in table_names():
        value = getattr(experiment, name)
        if name == "data" and isinstance(value, Population):
            tables[name] = _data_table(value, experiment.seed, folder)
        elif name == "algorithm" and (written := method_tables(value)) is not None:
            tables |= written
        elif name in SELECTORS and is_object(value) and not isinstance(value, ChoiceTable | tuple):
            tables[name] = value
            objects[name] = described(value, SELECTORS[name])
        elif problems := unnamed_in(name, value):
            found += problems
        else:
            tables[name] = to_plain(value)
    if found:
        raise ConfigError.of(found)
    checked = check({name: table for name, table in tables.items() if table is not None}, "")
    # Tables that were read know what the user set, and defaults that few clients lower.
    choices = {name: getattr(experiment, name) for name in CHOICES}
    kept: dict[str, Any] = {
        name: table for name, table in choices.items() if isinstance(table, ChoiceTable)
    }
    return replace(checked, given=experiment.given, objects=objects, **kept)


def has_origin(data: Population, seed: int) -> bool:
    """Whether tables with this seed can name the data: one seed is for all of a run."""
    origin = data.origin
    return origin is not None and origin.seed == seed and not origin.from_frame


def method_tables(method: Any) -> dict[str, Any] | None:
    """The tables of a method that a factory of `coterie.algorithms` made; ``None`` for another one,
    one that was changed since, and one with options that no file can hold.

    Example:
        >>> import coterie as ct
        >>> method_tables(ct.fedgroup(groups=5))
        {'algorithm': {'name': 'fedgroup', 'groups': 5}}
    """
    made_by = method.made_by if isinstance(method, Method) else None
    if made_by is None:
        return None
    # A copy: the record belongs to the method.
    table = python_values(dict(made_by))
    tables: dict[str, Any] = {"algorithm": table}
    # An argument of the factory in Python is a table of its own in a configuration.
    if "migration" in table:
        migration = table.pop("migration")
        tables["migration"] = {"detector": migration}
        if isinstance(migration, Migration):
            tables["migration"] = asdict(migration)
    kinds = bool | int | float | str | list | tuple | Mapping
    if not all(isinstance(value, kinds) for value in table.values()):
        return None
    return tables


def _data_table(data: Population, seed: int, folder: Path) -> dict[str, Any]:
    if has_origin(data, seed):
        assert data.origin is not None
        return dict(data.origin.table)
    # The digest, so that runs on other data have another identity; where the folder lies has no
    # part in it.
    return {
        "source": "saved",
        "digest": population_digest(data),
        "root": str(folder),
        "partition": {"kind": "given"},
    }

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
from coterie.experiment.tables import CHOICES, table_names, unnamed_in
from coterie.methods.method import Method
from coterie.rules.migration import Migration


def named(experiment: Experiment, folder: Path) -> Experiment:
    """The experiment with names in place of its objects.

    Raises:
        ConfigError: for an object that no file can name, such as a module or a rule.
    """
    tables: dict[str, Any] = {}
    found: list[Problem] = []
    for name in table_names():
        value = getattr(experiment, name)
        if name == "data" and isinstance(value, Population):
            tables[name] = _data_table(value, experiment.seed, folder)
        elif name == "algorithm" and not isinstance(value, ChoiceTable):
            tables |= method_tables(value)
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
    return replace(checked, given=experiment.given, **kept)


def has_origin(data: Population, seed: int) -> bool:
    """Whether tables with this seed can name the data: one seed is for all of a run."""
    origin = data.origin
    return origin is not None and origin.seed == seed and not origin.from_frame


def method_tables(method: Any) -> dict[str, Any]:
    """The tables of a method that a factory of `coterie.algorithms` made.

    Raises:
        ConfigError: for another one, or one that was changed since.

    Example:
        >>> import coterie as ct
        >>> method_tables(ct.fedgroup(groups=5))
        {'algorithm': {'name': 'fedgroup', 'groups': 5}}
    """
    made_by = method.made_by if isinstance(method, Method) else None
    if made_by is None:
        expected = "an unchanged method from a factory such as coterie.fedgroup"
        raise ConfigError(
            "cannot-be-written",
            "method",
            "a run folder cannot name this method",
            got=method,
            allowed=expected,
        )
    # A copy: the record belongs to the method.
    table = python_values(dict(made_by))
    tables: dict[str, Any] = {"algorithm": table}
    # An argument of the factory in Python is a table of its own in a configuration.
    if "migration" in table:
        migration = table.pop("migration")
        tables["migration"] = {"detector": migration}
        if isinstance(migration, Migration):
            tables["migration"] = asdict(migration)
    for option, value in table.items():
        if not isinstance(value, bool | int | float | str | list | tuple | Mapping):
            expected = "a number, a string or a list, which can be written to a configuration"
            raise ConfigError(
                "cannot-be-written",
                f"method.{option}",
                "cannot be written to a configuration",
                got=value,
                allowed=expected,
            )
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

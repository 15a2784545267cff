"""An experiment, read from a TOML file with overrides of single keys, or made in Python, and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coterie.config import custom, registry
from coterie.config.arguments import validated
from coterie.config.choice_tables import DataTable, completed
from coterie.config.kinds import KINDS
from coterie.config.problems import problems
from coterie.config.schema import RecordTable, Seed, Table, python_values, table_of, without_objects
from coterie.config.toml_text import printable_name, put_all, read, value_at
from coterie.errors import ConfigError, Problem, shown
from coterie.experiment.crosscheck import as_tables, cross_check
from coterie.experiment.defaults import (
    LOWERED,
    fit_defaults,
    fit_to_privacy,
    said_by_hand,
    without_lowered,
)
from coterie.experiment.live import absent_in
from coterie.experiment.model import experiment_model
from coterie.experiment.objects import field_problems, object_problems
from coterie.experiment.tables import Tables, record_types, table_names


@dataclass(frozen=True, kw_only=True)
class Experiment(Tables):
    """The complete description of a run. Each field is a table of a configuration.

    A choice is a name with options, or a Python object. Only choices with a name can be written to
    a file; `tables` and `toml` reject the others.

    Args:
        seed: the seed of all random draws.
        data: a source with its options and its partition, or a population.
        model: the network: a name with options, or a module whose parameters are the initial model,
            alone or together with the kernels that have an L2 penalty.
        local: how clients train.
        train: rounds, and who takes part in them.
        evaluate: with which models clients are scored in addition to those that serve them.
        algorithm: the method.
        engine: where clients train.
        quorum: when a round counts.
        bounds: how far one client may be from the others of a request.
        checkpoint: how often the state is saved.
        log: the trackers that receive the rounds.
        shift: how clients' data change over the rounds: a table, several tables, or a function.
        server: a server optimiser, in place of the algorithm's.
        weigh: the weights of replies, in place of the algorithm's rule.
        objective: what clients minimise, in place of the algorithm's objective.
        own_model: models that clients keep in addition to the algorithm's models.
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
        folder: where ``module:factory`` is found; by default the folder in which the run was
            started.
        given: keys that the user set. All other keys have defaults, which may depend on other
            tables. By default what the records say, but for defaults that few clients lower.
        file: the file from which it was read, for error messages.
        objects: what the folder of a run says of its Python objects, by field.
    """

    def __post_init__(self) -> None:
        _check_values(self.seed, self.folder, self.file)
        found = field_problems(self)
        if not isinstance(self.given, frozenset):
            got = shown(self.given)
            allowed = "a frozenset of key paths"
            found.append(Problem("wrong-type", "given", got=got, allowed=allowed))
        if found:
            raise ConfigError.of(found)
        if not self.given:
            # Frozen records set their own fields this way.
            object.__setattr__(self, "given", said_by_hand(self))

    @classmethod
    @validated
    def from_toml(cls, path: str | os.PathLike[str]) -> Experiment:
        """Read and check a configuration.

        Raises:
            ConfigError: with one line for each problem.
        """
        return load_config(os.fspath(path))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Experiment:
        """Read and check tables in the form of TOML; a choice may also be a Python object.

        Raises:
            ConfigError: with one line for each problem.

        Example:
            >>> experiment = Experiment.from_tables({
            ...     "data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
            ...     "train": {"rounds": 3}, "algorithm": {"name": "fedgroup", "groups": 2}})
            >>> experiment.train.rounds, experiment.options("algorithm")["groups"]
            (3, 2)
        """
        return check(tables)


@validated
def _check_values(seed: Seed, folder: str | None, file: str) -> None:
    """Refuse values of an experiment that was made by hand."""


def load_config(
    path: Path | str, overrides: Sequence[str] = (), values: Mapping[str, Any] = {}
) -> Experiment:
    """Read and check a configuration.

    Args:
        path: a TOML file.
        overrides: ``key.path=value``, each value as TOML writes it, or plain text.
        values: key path -> value, set after the overrides; ``None`` sets nothing.

    Raises:
        ConfigError: with one line for each problem.
    """
    tables = read(path)
    put_all(tables, overrides, values)
    return check(tables, printable_name(path))


def check(tables: Mapping[str, Any], file: str = "configuration") -> Experiment:
    """Check tables that were read from ``file``, or made in Python.

    A choice may be an object of Python, and so may the record of a table.

    Args:
        tables: the tables of the experiment.
        file: the file from which they were read; empty for tables from Python.

    Raises:
        ConfigError: with one line for each problem.
    """
    if not isinstance(tables, Mapping):
        allowed = "a table of tables, such as {'data': ..., 'model': ...}"
        raise ConfigError("wrong-type", "configuration", got=tables, allowed=allowed)
    try:
        # Paths first: a factory of the user's own is looked for in the folder that they name.
        read = _anchored(python_values(tables))
        absent = absent_in(read)
        experiment, found = _check({**read, **absent}, file)
    except ConfigError as error:
        raise error.located(file) from None
    except RecursionError:
        deep = ConfigError("cannot-be-read", "configuration", "its tables are nested too deeply")
        raise deep.located(file) from None
    if experiment is None or found:
        raise ConfigError.of(found).located(file)
    _check_shifts(experiment)
    objects = {place: one.table for place, one in absent.items()}
    experiment = fit_to_privacy(replace(experiment, objects=objects))
    clients = None
    if isinstance(experiment.data, DataTable):
        clients = experiment.data.partition.options.get("clients")
    if isinstance(clients, int):
        return fit_defaults(experiment, clients)
    return experiment


def _check(tables: Mapping[str, Any], file: str) -> tuple[Experiment | None, list[Problem]]:
    """The experiment, if its tables can be read as one, and all that is wrong."""
    found = object_problems(tables)
    # Without those defaults of records that few clients lower.
    tables = dict(tables)
    for name in LOWERED:
        if isinstance(tables.get(name), record_types()[name]):
            tables[name] = without_lowered(name, tables[name])
    values, objects = _without_objects(tables)
    model, all_found = experiment_model(values)
    refused = {problem.path for problem in all_found}
    validated = None
    try:
        validated = model.model_validate(values)
    except ValidationError as error:
        found += problems(error, values, model)
    # On the unvalidated tables, so that these problems are listed with those of single keys.
    objects_refused = {problem.path for problem in found}
    rest = {name: value for name, value in tables.items() if name not in objects_refused}
    found += cross_check(as_tables(rest), model)
    for problem in found:
        # One line for each key: what follows from a factory that is not there is no news.
        if problem.path not in refused:
            refused.add(problem.path)
            all_found.append(problem)
    if validated is None or all_found:
        return None, all_found
    return _made(validated, objects, file), all_found


def _without_objects(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The tables without the functions in those of records, and these functions by table."""
    values = dict(tables)
    found = {}
    for name, record in record_types().items():
        if isinstance(values.get(name), Mapping):
            values[name], objects = without_objects(record, values[name])
            if objects:
                found[name] = objects
    return values, found


def _made(validated: Table, objects: Mapping[str, Mapping[str, Any]], file: str) -> Experiment:
    values: dict[str, Any] = {}
    given = set()
    for name in table_names():
        value = getattr(validated, name)
        if isinstance(value, RecordTable):
            given |= {f"{name}.{key}" for key in value.model_fields_set}
            value = value.made()
        elif name in record_types() and value is not None:
            given |= {f"{name}.{key}" for key in table_of(type(value)).model_fields}
        if name in objects:
            given |= {f"{name}.{key}" for key in objects[name]}
            value = replace(value, **objects[name])
        values[name] = value
    return Experiment(**values, given=frozenset(given), file=file)


def fit_to_clients(experiment: Experiment, clients: int) -> Experiment:
    """The experiment for so many clients, once the data are there: defaults that they do not allow
    are lowered.

    Raises:
        ConfigError: if more groups, cold-start clients or clients per round are asked for than
            there are clients.
    """
    experiment = fit_defaults(experiment, clients)
    tables = as_tables({name: getattr(experiment, name) for name in table_names()})
    model, _ = experiment_model(tables)
    found = cross_check(tables, model, clients)
    if found:
        raise ConfigError.of(found).located(experiment.file)
    return experiment


def _anchored(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same tables with paths spelled from the root, so that a run can be resumed from any
    folder, and with the partition that follows from a column of clients."""
    out = dict(tables)
    data = tables.get("data")
    if isinstance(data, Mapping):
        out["data"] = completed(data)
    trackers = value_at(tables, ("log", "to"))
    if not isinstance(trackers, list | tuple):
        trackers = ()
    customs = (_names_custom(tables, kind) for kind, where in KINDS.items() if where.custom)
    if any(":" in str(name) for name in trackers) or any(customs):
        out.setdefault("folder", os.getcwd())
        # Only then: a folder that is searched can also stand in for a package that is not there.
        if isinstance(out["folder"], str):
            custom.search_in(out["folder"])
    return out


def _names_custom(tables: Mapping[str, Any], kind: str) -> bool:
    """Whether a table names ``module:factory``."""
    name = value_at(tables, (*KINDS[kind].place, KINDS[kind].selector))
    return isinstance(name, str) and ":" in name


def _check_shifts(experiment: Experiment) -> None:
    """Make the shifts once: their factories know which parameters go together."""
    try:
        # What is made is thrown away: data are not there yet, and the run makes its own.
        for table in experiment.shifts():
            registry.build("shift", table)
    except ConfigError as error:
        raise error.located(experiment.file) from None

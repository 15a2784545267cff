"""The configuration that a call of ``coterie.run`` stands for, so that its folder says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from coterie.clients.bounds import Bounds
from coterie.config.kinds import KINDS
from coterie.config.problems import Problem, refuse
from coterie.core.augment import Augment, Transform
from coterie.core.solver import Solver
from coterie.data.population import Population
from coterie.data.sources.saved import population_digest
from coterie.listed import name_of_list
from coterie.methods.method import Method
from coterie.rules.migration import Migration
from coterie.runs.availability import Availability

CHOICES = ("server", "weigh", "objective", "own_model", "attack", "task", "shift")
TRAIN = (
    "rounds",
    "clients_per_round",
    "hold_out",
    "evaluate_every",
    "evaluate_clients",
    "evaluate_loss",
)


def tables_of(call: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The tables of the configuration of a call.

    Args:
        call: the arguments of ``coterie.run`` by name.
        folder: of the run.

    Raises:
        ConfigError: for an argument that no configuration can hold, such as a module or a rule.

    Example:
        >>> import coterie as ct
        >>> from coterie.python.tables import method_table
        >>> method_table(ct.fedgroup(groups=5))
        {'algorithm': {'name': 'fedgroup', 'groups': 5}}
    """
    tables = {
        "seed": call["seed"],
        "data": _data_table(call["data"], call["seed"], folder),
        "model": choice_table("model", call["model"]),
        "local": _local_table(call["local"] or Solver()),
        "train": _train_table(call),
        "evaluate": evaluate_table(call),
        "engine": _engine_table(call),
        "quorum": _record(call["quorum"]),
        "privacy": _record(call["privacy"]),
        "secure": _record(call["secure"]),
        "bounds": _bounds_table(call["bounds"]),
        "availability": _availability_table(call["availability"]),
        "reply_times": _record(call["reply_times"]),
        **method_table(call["method"]),
    }
    # What is not set is left out: some defaults of a configuration follow from other tables.
    for argument in CHOICES:
        tables[argument] = choice_table(argument, call[argument])
    if call["migration"] is not None:
        tables["migration"] = _migration_table(call["migration"])
    if call["personal"]:
        tables["personal"] = {"layers": list(call["personal"])}
    return {name: table for name, table in tables.items() if table is not None}


def has_origin(data: Population, seed: int) -> bool:
    """Whether a configuration with this seed can name the data: one seed is for all of a run."""
    return data.origin is not None and data.origin.seed == seed


def method_table(method: Any) -> dict[str, Any]:
    """The tables of a method that a factory of `coterie.algorithms` made.

    Raises:
        ConfigError: for another one, or one that was changed since.
    """
    made_by = method.made_by if isinstance(method, Method) else None
    if made_by is None:
        expected = "what a factory such as coterie.fedgroup made, unchanged"
        refuse(Problem("method", "no method that a run folder can name", _shown(method), expected))
    # A copy: the record belongs to the method.
    table = dict(made_by)
    tables = {"algorithm": table}
    # An argument of the factory in Python is a table of its own in a configuration.
    if "migration" in table:
        tables["migration"] = _migration_table(table.pop("migration"))
    for option, value in table.items():
        if not isinstance(value, bool | int | float | str | list | tuple | Mapping):
            expected = "a number, a text or a list, which a configuration can hold"
            refuse(Problem(f"method.{option}", "is in no configuration", _shown(value), expected))
    return tables


def choice_table(argument: str, value: Any) -> Any:
    """The table of a choice that is given as a name or as a table of its name and its options.

    Raises:
        ConfigError: for an object of Python.
    """
    selector = KINDS[argument].selector
    # Several shifts are a list of tables.
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, str):
        return {selector: value}
    if isinstance(value, Mapping):
        return dict(value)
    expected = f"a name, or a table such as {{'{selector}': 'name of it', ...}}"
    if argument == "model":
        expected += "; 'module:factory' names a network of your own"
    refuse(Problem(argument, "nothing that a run folder can name", _shown(value), expected))


# --- single tables --------------------------------------------------------------------------------


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


def _local_table(local: Solver) -> dict[str, Any]:
    found = _record(local) or {}
    # For work that brings its own budget; a run counts epochs.
    if found.pop("steps", None) is not None:
        refuse(Problem("local.steps", "is in no configuration", local.steps, "epochs alone"))
    # Functions have no place in a file; what names them has.
    found.pop("augment", None)
    if local.augment:
        found["augment"] = [_augment_table(change) for change in local.augment]
    return found


def _augment_table(change: Transform) -> dict[str, Any]:
    if not isinstance(change, Augment):
        expected = "coterie.Augment, which names a class or module:factory"
        refuse(Problem("local.augment", "is in no configuration", _shown(change), expected))
    if not change.options:
        return {"name": change.name}
    return {"name": change.name, "options": dict(change.options)}


def _train_table(call: Mapping[str, Any]) -> dict[str, Any]:
    table = {name: call[name] for name in TRAIN if call[name] is not None}
    # In Python at most all clients take part; in a configuration more of them are a mistake.
    table["clients_per_round"] = min(call["clients_per_round"], call["data"].clients)
    if call["over_selection"] != 1:
        table["over_selection"] = call["over_selection"]
    sampler = call["sampler"]
    if sampler is not None:
        if not isinstance(sampler, str):
            refuse(Problem("sampler", "is in no configuration", _shown(sampler), "a name"))
        table["sampler"] = sampler
    # A measure of the user's own is a function, which a resumed run could not find again.
    for measure in call["measures"]:
        if not isinstance(measure, str):
            what = "is in no configuration"
            refuse(Problem("measures", what, _shown(measure), name_of_list("measure")))
    table["measures"] = list(call["measures"])
    return table


def evaluate_table(call: Mapping[str, Any]) -> dict[str, Any]:
    """The table ``[evaluate]`` of a call."""
    table = {"local": call["evaluate_local"], "rounds": call["evaluate_rounds"]}
    if call["evaluate_adapt"] is not None:
        table["adapt"] = _record(call["evaluate_adapt"])
    unseen = call["evaluate_unseen"]
    if unseen is not None:
        table["unseen"] = list(unseen) if isinstance(unseen, tuple) else unseen
    if call["evaluate_training"]:
        table["training"] = True
    if not call["evaluate_unseen_labels"]:
        table["unseen_labels"] = False
    if call["evaluate_validation"] is not None:
        table["validation"] = call["evaluate_validation"]
    if call["evaluate_order"] != "after":
        table["order"] = call["evaluate_order"]
    return table


def _engine_table(call: Mapping[str, Any]) -> dict[str, Any]:
    options = {
        "name": call["engine"],
        "workers": call["workers"],
        "threads": None if call["threads"] == 1 else call["threads"],
        "round_timeout": call["round_timeout"],
        "address": call["ray_address"],
    }
    # Only of `vmap`; elsewhere they are refused where they are not the default.
    if call["engine"] in ("vmap", "ray"):
        options |= {"device": call["device"], "precision": call["precision"]}
    return {name: value for name, value in options.items() if value is not None}


def _bounds_table(bounds: Bounds | bool | None) -> dict[str, Any] | None:
    if bounds is None:
        return None
    if isinstance(bounds, bool):
        return {"enabled": bounds}
    # A configuration knows two numbers of them. Bounds with others would silently become these.
    floor = bounds.norm.floor
    ceiling = float(bounds.norm.ceiling)
    if replace(Bounds.between(floor, ceiling), enabled=bounds.enabled) != bounds:
        expected = "true, false, or Bounds.between(floor, ceiling)"
        refuse(Problem("bounds", "is in no configuration", _shown(bounds), expected))
    return {"enabled": bounds.enabled, "floor": floor, "ceiling": ceiling}


def _availability_table(availability: Availability | None) -> dict[str, Any] | None:
    if availability is None:
        return None
    # A configuration names a file, of which the record has the content alone.
    if availability.kind == "file":
        expected = "kind 'day_night' or 'random', or a configuration that names the file"
        refuse(Problem("availability.spans", "are in no configuration", "spans", expected))
    # Names are those of the data.
    table = _record(replace(availability, spans={}, names=())) or {}
    return {key: value for key, value in table.items() if key not in ("spans", "names")}


def _migration_table(migration: Any) -> dict[str, Any]:
    if isinstance(migration, Migration):
        return asdict(migration)
    return {"detector": migration}


def _record(record: Any) -> dict[str, Any] | None:
    """The fields of a record that are set, and of records in it."""
    if record is None:
        return None
    found = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            value = _record(value)
        if value is not None:
            found[field.name] = value
    return found


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}"

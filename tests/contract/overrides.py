"""Every value of every table that a run can have in addition to its method, data and network.

All are read off the registries and the records, as TOML reads them: a new choice, record or field is
among them by itself. Each is a set of tables that `ct.run` takes.
"""

from __future__ import annotations

import itertools
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coterie.config import registry
from coterie.config.kinds import KINDS
from coterie.config.schema import strict, table_of
from coterie.experiment.tables import CHOICES, Tables, record_types, table_names

# What these say is another subject: the data, the network and the method are those of the case;
# files, processes and addresses are tested with what they belong to.
ELSEWHERE = ("seed", "data", "model", "algorithm", "engine", "checkpoint", "log", "folder")
# Texts and free tables of which no value follows from their types.
TEXTS: Mapping[str, tuple[Any, ...]] = {
    "train.rounds": (1, 3),
    "algorithm.layer": ("final", "0.weight"),
    "algorithm.layers": (("head",), ("*0.bias",)),
    "local.optimizer": ("adam", "adamw", "rmsprop", "Adagrad"),
    "local.optimizer_options": ({"nesterov": True},),
    "personal.layers": (("head",), ("bias",), ("norm",)),
    "evaluate.adapt.layers": (("head",),),
    "evaluate.unseen": ((0, 3),),
    "availability.file": (),
    # These change images.
    "local.augment": (),
    "task.unit": ("days",),
}
# What a table is refused without.
WITH: Mapping[str, dict[str, Any]] = {"privacy": {"noise": 1.0}}
LEAST = 1e-3
LARGE = 1e3
LARGE_COUNT = 20  # more than there are clients


def overrides() -> dict[str, dict[str, Any]]:
    """The tables of each override, by a name such as ``attack.factor=2``."""
    found: dict[str, dict[str, Any]] = {}
    for table in table_names():
        if table in ELSEWHERE:
            continue
        if table in CHOICES:
            for name, values in choices(CHOICES[table]):
                found[f"{table} {name}"] = {table: values}
        else:
            for name, values in _record(table):
                found[f"{table} {name}"] = {table: values}
    return found


def choices(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each name of a kind with its defaults, and with each value of each option."""
    selector = KINDS[kind].selector
    for name in registry.names(kind):
        options = registry.options(kind, name)
        given = {
            option: values_of(f"{kind}.{option}", strict(annotation))[0]
            for option, (annotation, default) in options.items()
            if default is ...
        }
        yield name, {selector: name, **given}
        for option, (annotation, default) in options.items():
            for value in values_of(f"{kind}.{option}", strict(annotation)):
                if value != default and value != given.get(option):
                    yield f"{name} {option}={value}", {selector: name, **given, option: value}


def _record(table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table by itself where it is none by default, and each value of each of its keys."""
    default = next(one for one in fields(Tables) if one.name == table)
    if default.default is None and default.default_factory is MISSING:
        yield "{}", WITH.get(table, {})
    for key, info in table_of(record_types()[table]).model_fields.items():
        for value in values_of(f"{table}.{key}", _annotation(info)):
            if value != info.default:
                yield f"{key}={value}", {**WITH.get(table, {}), key: value}


def values_of(path: str, kind: Any) -> list[Any]:
    """Values of a type at a key: all of a few, and the ends and the middle of a range."""
    if path in TEXTS:
        return list(TEXTS[path])
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return _in_range(path, args[0], _limits(args[1:]))
    if origin is Literal:
        return list(args)
    if origin in (Union, types.UnionType):
        arms = (values_of(path, one) for one in args if one is not type(None))
        return list(itertools.chain.from_iterable(arms))
    if origin is tuple:
        return [(one,) for one in values_of(path, args[0])]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return list(_tables_of(path, kind))
    return _in_range(path, kind, {})


def _tables_of(path: str, model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """A table inside a table, with each value of each of its keys."""
    given = {}
    for key, info in model.model_fields.items():
        if info.is_required():
            given[key] = values_of(f"{path}.{key}", _annotation(info))[0]
    yield given
    # Some keys belong to one kind.
    for kind in given_kinds(model):
        yield {**given, **kind}
        for key, info in model.model_fields.items():
            for value in values_of(f"{path}.{key}", _annotation(info)):
                if key not in kind and value not in (info.default, given.get(key)):
                    yield {**given, **kind, key: value}


def given_kinds(model: type[BaseModel]) -> list[dict[str, Any]]:
    """A table inside a table for each of its kinds, or an empty one where it has none."""
    if "kind" not in model.model_fields:
        return [{}]
    return [{"kind": kind} for kind in get_args(model.model_fields["kind"].annotation)]


def _annotation(info: FieldInfo) -> Any:
    """The type of a field with its limits, which pydantic keeps apart."""
    if info.metadata:
        return Annotated[(info.annotation, *info.metadata)]
    return info.annotation


def _limits(metadata: tuple[Any, ...]) -> dict[str, Any]:
    """The limits among the marks of a type."""
    found: dict[str, Any] = {}
    for mark in metadata:
        if isinstance(mark, FieldInfo):
            found |= _limits(tuple(mark.metadata))
        for name in ("ge", "gt", "le", "lt", "multiple_of"):
            if getattr(mark, name, None) is not None:
                found[name] = getattr(mark, name)
    return found


def _in_range(path: str, kind: Any, limits: Mapping[str, Any]) -> list[Any]:
    if get_origin(kind) is Annotated:
        marks = get_args(kind)
        return _in_range(path, marks[0], {**_limits(marks[1:]), **limits})
    if kind is bool:
        return [False, True]
    if kind is int:
        return _whole(limits)
    if kind is float:
        return _real(limits)
    if kind in (str, Any) or get_origin(kind) is dict:
        raise LookupError(f"TEXTS needs values of {path}, which is a {kind}")
    return values_of(path, kind)


def _whole(limits: Mapping[str, Any]) -> list[int]:
    step = int(limits.get("multiple_of", 1))
    least = int(limits.get("ge", 0))
    largest = int(limits.get("le", LARGE_COUNT))
    return sorted({least, least + step, largest - largest % step})


def _real(limits: Mapping[str, Any]) -> list[float]:
    least = float(limits.get("ge", limits.get("gt", -math.inf)))
    largest = float(limits.get("le", limits.get("lt", LARGE)))
    if "ge" not in limits:
        least += LEAST
    if "lt" in limits:
        largest -= LEAST
    middle = (least + largest) / 2 if "le" in limits or "lt" in limits else 1.0
    return sorted({least, middle, largest})

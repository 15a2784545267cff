"""Arguments of Python calls, held to the same annotations as the tables of a configuration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from coterie.config import schema
from coterie.config.problems import problems
from coterie.config.schema import Factory
from coterie.config.wording import nearest
from coterie.errors import ConfigError, Problem, shown

P = ParamSpec("P")
R = TypeVar("R")


class Arguments(BaseModel):
    """Arguments by name; the ones left out have their factory's defaults."""

    model_config = ConfigDict(extra="ignore")


def validated(factory: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function before it runs; those of a type that TOML does not know,
    other than functions, are not checked.

    Raises:
        ConfigError: with a line ``<name>: <what>, got <value>; expected <what it may be>`` for each
            wrong argument.
    """
    signature = inspect.signature(factory)

    @wraps(factory)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.arguments.update(check_arguments(factory, bound.arguments))
        return factory(*bound.args, **bound.kwargs)

    return call


def check_arguments(factory: Factory, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that can be checked, as the annotations of ``factory`` have them."""
    model = _model(factory)
    # The rest are objects of Python (modules, rules, populations), of which the model has no field.
    known = {name: value for name, value in arguments.items() if name in model.model_fields}
    known = schema.python_values(known)
    try:
        record = model.model_validate(known)
    except ValidationError as error:
        raise ConfigError.of(problems(error, known, model)) from None
    # Only what the caller gave: a default stays the object that the factory's signature has.
    return {name: getattr(record, name) for name in known}


def check_fields(record: Any) -> None:
    """Hold the fields of a record to their annotations, as `check_arguments` does."""
    check_arguments(
        type(record), {one.name: getattr(record, one.name) for one in dataclasses.fields(record)}
    )


def check_record(record: Any) -> None:
    """Hold the fields of a record to their annotations; functions among them are not checked."""
    kind = type(record)
    model = schema.table_of(kind)
    fields = {name: getattr(record, name) for name in model.model_fields}
    tables, objects = schema.without_objects(kind, fields)
    for one in dataclasses.fields(kind):
        value = objects.get(one.name, ())
        if isinstance(one.default, tuple) and not isinstance(value, list | tuple):
            raise ConfigError("wrong-type", one.name, got=value, allowed="a list")
    try:
        model.model_validate(tables)
    except ValidationError as error:
        raise ConfigError.of(problems(error, tables, model)) from None
    for_python = {
        one.name: getattr(record, one.name)
        for one in dataclasses.fields(record)
        if one.metadata == schema.PYTHON_ONLY
    }
    if for_python:
        check_arguments(kind, for_python)


class CheckedFields:
    """The base of records whose fields `check_fields` holds to their annotations."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)


class CheckedRecord:
    """The base of records that `check_record` holds to their annotations."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_record(self)


# To make a model takes a millisecond, longer than many of the factories that it checks.
@lru_cache(maxsize=256)
def _model(factory: Factory) -> type[Arguments]:
    fields = schema.fields(factory, ("self", "cls"), _can_be_checked)
    return create_model("Arguments", __base__=Arguments, **fields)


def _can_be_checked(kind: Any) -> bool:
    """Whether a value of this type can stand in a TOML file, or is a function."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    functions = [get_origin(part) is Callable for part in parts if part is not NoneType]
    return all(functions) or schema.tomlable(kind)


def refuse_arguments(
    names: Sequence[str], given: Mapping[str, Any], allowed: str, known: Sequence[str] = ()
) -> None:
    """Refuse arguments that say again what another one has said, or that are none."""
    found = []
    for name in names:
        said = Problem("in-conflict", name, "given twice", shown(given[name]), allowed)
        if known and name not in known:
            said = Problem(
                "unknown-key", name, "", shown(given[name]), allowed, hint=nearest(name, known)
            )
        found.append(said)
    if found:
        raise ConfigError.of(found)


# --- functions of the user's own ------------------------------------------------------------------


def check_takes(
    path: str, function: Callable[..., Any], names: Sequence[str], hint: str = ""
) -> None:
    """Refuse a function that cannot be called with these arguments."""
    if isinstance(function, type) or not callable(function):
        raise ConfigError("wrong-type", path, got=function, allowed="a function")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # some functions that are written in C do not say
    # By their number and not their names, since a user may have called them anything.
    try:
        signature.bind(*names)
    except TypeError:
        taken = ", ".join(signature.parameters)
        allowed = f"{', '.join(names)}{hint}"
        what = "wrong arguments"
        raise ConfigError("differs", path, what, found=taken or "none", allowed=allowed) from None


def check_returned(path: str, value: Any, fits: bool, expected: str) -> None:
    """Refuse what a function returned."""
    if not fits:
        what = "the function returned something else"
        raise ConfigError("wrong-type", path, what, got=value, allowed=expected)


def place_of(function: Callable[..., Any]) -> str:
    """A function by its name and where it begins, as ``Mine.__call__ at mine.py, line 7,``."""
    called: Any = inspect.unwrap(function)
    while isinstance(called, partial):
        called = called.func
    name = getattr(called, "__qualname__", "")
    if not inspect.isroutine(called):
        called = type(called).__call__
        name = called.__qualname__
    code = getattr(called, "__code__", None)
    if code is None:
        return name
    # The name of a function in a function says nothing of where that one is.
    name = name.rpartition("<locals>.")[2]
    return f"{name} at {code.co_filename}, line {code.co_firstlineno},"

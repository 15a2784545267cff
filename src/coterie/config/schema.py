"""Tables of a configuration from the signatures of factories.

A factory is the single source of truth for the names, types, defaults and ranges of its options;
the pydantic model of its table is read from its signature. Nothing here knows what a factory makes.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

Factory = Callable[..., Any]

LARGEST = 2**31 - 1  # of a number in a table: counts and sizes are int32 in compiled code
PLAIN = (int, float, bool, list, dict, str, Path, type(None))
CONTAINERS: Mapping[Any, Any] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    dict: dict,
    Mapping: dict,
}


def _not_huge(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise PydanticCustomError("too_large", "out of range")
    return value


# Types that refuse what TOML did not write as such: no bool for a number, nothing infinite or huge.
Int = Annotated[int, Field(strict=True), BeforeValidator(_not_huge)]
Float = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Bool = Annotated[bool, Field(strict=True)]
STRICT: Mapping[Any, Any] = {int: Int, float: Float, bool: Bool}


class Table(BaseModel):
    """A table of the configuration: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def strict(kind: Any) -> Any:
    """The same type with `Int`, `Float` and `Bool` in the place of Python's."""
    if kind in (int, float, bool):
        return STRICT[kind]
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return Annotated[(strict(args[0]), *args[1:])]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(strict(a) for a in args)]  # noqa: UP007 (built at run time)
    # The items, too: without it `hidden = [true, 2.0]` would pass as a list of integers.
    if origin in CONTAINERS:
        return CONTAINERS[origin][tuple(a if a is Ellipsis else strict(a) for a in args)]
    return kind


def tomlable(kind: Any) -> bool:
    """Whether a value of this type can stand in a TOML file.

    Example:
        >>> tomlable(int | None), tomlable(tuple[float, ...]), tomlable(Callable[[int], int])
        (True, True, False)
    """
    if kind is Any or kind is Ellipsis or kind in PLAIN:
        return True
    if isinstance(kind, type) and issubclass(kind, Table):
        return True
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return tomlable(args[0])
    if origin is Literal:
        return True
    return origin in (typing.Union, types.UnionType, *CONTAINERS) and all(tomlable(a) for a in args)


def factory_options(factory: Factory, context: Iterable[str] = ()) -> dict[str, tuple[Any, Any]]:
    """The options of a factory: name -> (type, default, ``...`` where there is none), in order.

    Args:
        factory: any callable with a signature.
        context: parameters that the library fills in, left out of the options.

    Example:
        >>> def fedgroup(groups: Annotated[int, Field(ge=1)] = 3, *, measure: Literal["edc", "madc"] = "edc"): ...
        >>> list(factory_options(fedgroup)), factory_options(fedgroup)["groups"][1]
        (['groups', 'measure'], 3)
    """
    found = {}
    # Annotations are strings in modules with `from __future__ import annotations`, so they
    # are evaluated.
    for name, parameter in inspect.signature(factory, eval_str=True).parameters.items():
        several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name in context or name.startswith("_") or several:
            continue
        kind = parameter.annotation
        if kind is parameter.empty:
            kind = Any
        default = parameter.default
        if default is parameter.empty:
            default = ...
        # A parameter of another type, such as a rule or a module, is for Python alone and
        # no option.
        if tomlable(kind):
            found[name] = (kind, default)
    return found


def fields(factory: Factory, context: Iterable[str] = ()) -> dict[str, Any]:
    """The same as fields of a pydantic model.

    Every validation of an option, of a table as of a Python call, goes through these.
    """
    found = factory_options(factory, context)
    return {name: (strict(kind), default) for name, (kind, default) in found.items()}

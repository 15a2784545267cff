"""Tables of a configuration from the signatures of factories, and their errors as one line each.

A factory is the single source of truth for the names, types, defaults and ranges of its options;
the pydantic model of its table is read from its signature. Nothing here knows what a factory makes.
"""

from __future__ import annotations

import difflib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError, PydanticUndefined

LARGEST = 2**31 - 1
BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
PLAIN = (str, Path, type(None))
CONTAINERS: Mapping[Any, Any] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    dict: dict,
    Mapping: dict,
}


class Table(BaseModel):
    """A table of the configuration: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration.

    Example:
        >>> print(Problem("algorithm.group", "unknown key", 3, "one of alpha, groups", "groups").line())
        algorithm.group: unknown key, got 3; expected one of alpha, groups; did you mean 'groups'?
    """

    path: str
    what: str
    got: Any
    expected: str
    hint: str | None = None

    def line(self) -> str:
        """The problem as one line, without the name of the file."""
        hint = f"; did you mean '{self.hint}'?" if self.hint else ""
        return f"{self.path}: {self.what}, got {shown(self.got)}; expected {self.expected}{hint}"


# --- factory -> table -----------------------------------------------------------------------------


def _not_huge(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise PydanticCustomError("too_large", "out of range")
    return value


def strict(kind: Any) -> Any:
    """The same type, refusing what TOML did not write as such: no bool for a number, nothing
    infinite or huge."""
    if kind is int:
        return Annotated[int, Field(strict=True), BeforeValidator(_not_huge)]
    if kind is float:
        return Annotated[float, Field(strict=True, allow_inf_nan=False)]
    if kind is bool:
        return Annotated[bool, Field(strict=True)]
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return Annotated[(strict(args[0]), *args[1:])]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(strict(a) for a in args)]  # noqa: UP007 (built at run time)
    if origin in CONTAINERS:
        return CONTAINERS[origin][tuple(a if a is Ellipsis else strict(a) for a in args)]
    return kind


def tomlable(kind: Any) -> bool:
    """Whether a value of this type can stand in a TOML file.

    Example:
        >>> tomlable(int | None), tomlable(tuple[float, ...]), tomlable(Callable[[int], int])
        (True, True, False)
    """
    if kind is Any or kind is Ellipsis or kind in (int, float, bool, list, dict, *PLAIN):
        return True
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return tomlable(args[0])
    if origin is Literal:
        return True
    return origin in (typing.Union, types.UnionType, *CONTAINERS) and all(tomlable(a) for a in args)


def options(factory: Callable[..., Any], given: Iterable[str] = ()) -> dict[str, tuple[Any, Any]]:
    """The options of a factory: name -> (type, default, ``...`` where there is none), in order.

    Args:
        factory: any callable with a signature.
        given: parameters that the library fills in, left out here.

    Example:
        >>> def fedgroup(groups: Annotated[int, Field(ge=1)] = 3, *, measure: Literal["edc", "madc"] = "edc"): ...
        >>> list(options(fedgroup)), options(fedgroup)["groups"][1]
        (['groups', 'measure'], 3)
    """
    found = {}
    for name, parameter in inspect.signature(factory, eval_str=True).parameters.items():
        if (
            name in given
            or name.startswith("_")
            or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ):
            continue
        kind = Any if parameter.annotation is parameter.empty else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        if tomlable(kind):
            found[name] = (kind, default)
    return found


@lru_cache(maxsize=256)
def table(
    title: str,
    selector: str,
    choices: tuple[str, ...],
    factory: Callable[..., Any] | None,
    given: tuple[str, ...] = (),
    own: bool = False,
) -> type[Table]:
    """The pydantic model of a table that names a choice and holds its options.

    Args:
        title: name of the model.
        selector: the key that names the choice (``name``, ``kind``, ``source``).
        choices: the registered names.
        factory: the one chosen; ``None`` where the name is unknown, then any option passes.
        given: parameters that the library fills in.
        own: whether the choice is the user's own, ``module:factory``.
    """
    kind = str if own else Literal[choices] if choices else str
    fields: dict[str, Any] = {selector: (kind, ...)}
    if factory is not None:
        for name, (annotation, default) in options(factory, (*given, selector)).items():
            fields[name] = (strict(annotation), default)
    return create_model(title, __base__=Table if factory else Open, **fields)


class Open(Table):
    """The table of a choice that nobody knows: its options cannot be checked."""

    model_config = ConfigDict(extra="allow")


# --- what a value may be, in words ----------------------------------------------------------------


def describe(kind: Any, metadata: Sequence[Any] = ()) -> str:
    """What a value of this type may be, in words.

    Example:
        >>> describe(Annotated[float, Field(ge=0, lt=1)]), describe(Literal["edc", "madc"]), describe(int | None)
        ('a number >= 0 and < 1', "one of 'edc', 'madc'", 'an integer')
    """
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is Annotated:
        return describe(args[0], [*_flat(args[1:]), *metadata])
    if origin is Literal:
        return ("one of " if len(args) > 1 else "") + ", ".join(
            f"'{a}'" if isinstance(a, str) else str(a) for a in args
        )
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe(a) for a in args if a is not type(None)))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "a table"
    if origin in (list, tuple):
        inner = [describe(a) for a in args if a is not Ellipsis]
        return "a list" + (
            f" of {inner[0]}"
            if len(set(inner)) == 1
            else f" of {len(inner)} values"
            if inner
            else ""
        )
    if origin is dict or kind is dict:
        return "a table" + (f" with values {describe(args[1])}" if args else "")
    words = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "text",
        Path: "a path",
        list: "a list",
    }
    bounds = " and ".join(_bound(m) for m in metadata if _bound(m))
    return f"{words.get(kind, 'a value')} {bounds}".rstrip()


def _flat(metadata: Iterable[Any]) -> list[Any]:
    return [
        m for item in metadata for m in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]


def _bound(constraint: Any) -> str:
    signs = {"Ge": (">=", "ge"), "Gt": (">", "gt"), "Le": ("<=", "le"), "Lt": ("<", "lt")}
    sign, name = signs.get(type(constraint).__name__, ("", ""))
    if sign:
        return f"{sign} {getattr(constraint, name)}"
    return ""


def shown(value: Any) -> str:
    """A value in an error line: short, on one line, printable.

    Example:
        >>> shown("a\\nb"), shown(True), shown([1, 2.5]), shown(16**5000)
        ("'a\\\\nb'", 'true', '[1, 2.5]', 'an integer of 20001 bits')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(v) for v in value[:8])}{', ...' if len(value) > 8 else ''}]"
    text = repr(value) if isinstance(value, str | int | float) else repr(str(value))
    if len(text) <= 80:
        return text
    return text[:76] + "..." + text[-1]


def spelled(parts: Iterable[Any]) -> str:
    """A key path as TOML writes it.

    Example:
        >>> spelled(["data", "partition", "my key"])
        "data.partition.'my key'"
    """
    return ".".join(p if BARE.match(p) else shown(p) for p in map(str, parts))


# --- pydantic's errors -> problems ----------------------------------------------------------------


def problems(
    error: ValidationError, raw: Mapping[str, Any], model: type[BaseModel]
) -> list[Problem]:
    """Every error of a validation, one problem per key path.

    Args:
        error: what pydantic raised.
        raw: the tables that it was given.
        model: the model that they were given to.
    """
    found: dict[str, Problem] = {}
    for one in error.errors(include_url=False, include_context=False):
        path = _path(one, raw)
        problem = _problem(one, path, raw, model)
        found.setdefault(problem.path, problem)
    return list(found.values())


def _path(one: ErrorDetails, raw: Any) -> list[Any]:
    """The part of pydantic's location that is a place in the file (unions add their own tags)."""
    path: list[Any] = []
    part: Any
    for part in one["loc"]:
        listed = isinstance(raw, list) and isinstance(part, int) and part < len(raw)
        if listed or (isinstance(raw, Mapping) and part in raw):
            raw = raw[part]
        else:
            if one["type"] == "missing" and isinstance(raw, Mapping):
                return [*path, part]
            return path
        path.append(part)
    return path


def _problem(one: ErrorDetails, path: list[Any], raw: Any, model: type[BaseModel]) -> Problem:
    where = spelled(path) or "configuration"
    if one["type"] == "extra_forbidden":
        known = list(fields_at(model, path[:-1]))
        expected = f"one of {', '.join(known)}" if known else "no further keys"
        return Problem(
            where,
            "unknown key",
            one["input"],
            expected,
            nearest(str(path[-1]), known) or _at_home(path, model),
        )
    expected = expected_at(model, path)
    if one["type"] == "missing":
        return Problem(where, "missing", None, expected)
    got = _at(raw, path)
    what = _what(one["type"])
    if one["type"] == "too_large":
        expected += f" and <= {LARGEST}" if got > 0 else f" and >= {-LARGEST}"
    choices = _choices(_annotation(model, path))
    return Problem(where, what, got, expected, nearest(got, choices))


def _what(kind: str) -> str:
    if kind.startswith(("greater_than", "less_than", "too_large", "multiple_of")):
        return "out of range"
    if kind == "finite_number":
        return "not finite"
    if kind.startswith(("literal", "enum")):
        return "unknown choice"
    if kind.startswith(("too_short", "too_long", "string_too")):
        return "wrong length"
    if "type" in kind or "parsing" in kind:
        return "wrong type"
    return "cannot be used"


def _at(raw: Any, path: Sequence[Any]) -> Any:
    for part in path:
        raw = raw[part]
    return raw


def fields_at(model: Any, path: Sequence[Any]) -> dict[str, FieldInfo]:
    """The fields of the table at a key path, empty where there is none."""
    for part in path:
        model = _within(model, part)
    if _is_table(model):
        return dict(model.model_fields)
    return {}


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _within(kind: Any, part: Any) -> Any:
    """What stands at a key of a table, or at a place in a list of tables; ``None`` where nothing
    does."""
    if _is_table(kind):
        field = kind.model_fields.get(part)
        if field is None:
            return None
        return field.annotation
    places = get_args(kind) if get_origin(kind) is tuple else ()
    if isinstance(part, int) and part < len(places):
        return places[part]
    return None


def _field(model: Any, path: Sequence[Any]) -> FieldInfo | None:
    """The field that holds a key path: its own, or the nearest one above it."""
    for end in range(len(path), 0, -1):
        field = fields_at(model, path[: end - 1]).get(str(path[end - 1]))
        if field is not None:
            return field
    return None


def _annotation(model: Any, path: Sequence[Any]) -> Any:
    field = _field(model, path)
    if field is None:
        return None
    return field.annotation


def expected_at(model: Any, path: Sequence[Any]) -> str:
    """What may stand at a key path, in words."""
    field = _field(model, path)
    if field is None:
        return "a table"
    return field.description or describe(field.annotation, field.metadata)


def default_at(model: Any, path: Sequence[Any]) -> Any:
    """The default of a key path, ``None`` where it has none."""
    field = fields_at(model, path[:-1]).get(str(path[-1]))
    if field is None or field.default is PydanticUndefined:
        return None
    return field.default


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(a) for a in get_args(kind)]
    return [c for a in get_args(kind) for c in _choices(a)]


def nearest(got: Any, known: Sequence[str]) -> str | None:
    """The known name that a misspelt one may have meant.

    Example:
        >>> nearest("fedavgg", ["fedavg", "fedprox"]), nearest(3, ["fedavg"])
        ('fedavg', None)
    """
    if not isinstance(got, str):
        return None
    near = difflib.get_close_matches(got.lower(), known, n=1, cutoff=0.6)
    if near:
        return near[0]
    return None


def _at_home(path: Sequence[Any], model: type[BaseModel]) -> str | None:
    """The full path of a key that was written into the wrong table."""
    tables: list[tuple[str, ...]] = [
        (),
        *((name,) for name in model.model_fields),
        ("data", "partition"),
    ]
    for home in tables:
        if path[-1] in fields_at(model, home):
            return spelled([*home, path[-1]])
    return None

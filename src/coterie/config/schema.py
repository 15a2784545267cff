"""Tables of a configuration from the signatures of factories, and from records.

A factory or a record is the single source of truth for the names, types, defaults and ranges of its
options; the pydantic model of its table is read from its signature. Nothing here knows what a
factory makes.
"""

from __future__ import annotations

import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from dataclasses import Field as RecordField
from dataclasses import fields as record_fields
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from coterie.config.wording import FACTORY

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


def _listed(value: Any) -> Any:
    # Pydantic takes more for a list: a set, whose order is another one in each process, or a frame.
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("list_type", "no list")
    return value


# Types that refuse what TOML did not write as such: no bool for a number, nothing infinite or huge.
Int = Annotated[int, Field(strict=True), BeforeValidator(_not_huge)]
Float = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Bool = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]
STRICT: Mapping[Any, Any] = {int: Int, float: Float, bool: Bool, str: Text}


def _possible(path: str) -> str:
    # Systems raise errors of their own for names that no file can have.
    if "\0" in path or any(len(os.fsencode(part)) > 255 for part in Path(path).parts):
        raise PydanticCustomError("path", "not possible")
    return path


PathText = Annotated[str, Field(strict=True), AfterValidator(_possible)]

# Ranges that many options have.
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
# Up to the largest integer of TOML.
Seed = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]


class Table(BaseModel):
    """A table of the configuration: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RecordTable(Table):
    """The table of a record, see `table_of`."""

    record: ClassVar[Any] = None

    def made(self) -> Any:
        """The record that the table stands for."""
        return self.record(**{name: _made(getattr(self, name)) for name in type(self).model_fields})


def _made(value: Any) -> Any:
    if isinstance(value, RecordTable):
        return value.made()
    if isinstance(value, tuple):
        return tuple(map(_made, value))
    return value


def strict(kind: Any) -> Any:
    """The part of a type that a file can hold, with `Int`, `Float`, `Bool` and `Text` in the place of
    Python's, and tables in that of records; ``None``: nothing of it."""
    if kind in STRICT:
        return STRICT[kind]
    if kind == Seed:
        return kind
    if isinstance(kind, type) and is_dataclass(kind):
        return table_of(kind)
    origin = get_origin(kind)
    args = get_args(kind)
    if origin is PathLike:
        return PathText
    if origin is Annotated:
        return _annotated(args[0], args[1:])
    if origin in (typing.Union, types.UnionType):
        if any(get_origin(a) is PathLike for a in args):
            args = tuple(a for a in args if a is not str)
        parts = [part for part in map(strict, args) if part is not None]
        # Of `Callable | None` only the None would be left.
        if not set(parts) - {type(None)}:
            return None
        return typing.Union[tuple(parts)]  # noqa: UP007 (built at run time)
    # The items, too: without it `hidden = [true, 2.0]` would pass as a list of integers.
    if origin in CONTAINERS:
        parts = [part if part is Ellipsis else strict(part) for part in args]
        if None in parts:
            return None
        kind = CONTAINERS[origin][tuple(parts)]
        return kind if CONTAINERS[origin] is dict else Annotated[kind, BeforeValidator(_listed)]
    return kind if tomlable(kind) else None


def _annotated(kind: Any, metadata: Sequence[Any]) -> Any:
    for mark in metadata:
        if isinstance(mark, OneOf):
            return mark.kind()
    part = strict(kind)
    if part is None:
        return None
    return Annotated[(part, *metadata)]


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
    if origin in (Literal, PathLike):
        return True
    return origin in (typing.Union, types.UnionType, *CONTAINERS) and all(tomlable(a) for a in args)


def factory_options(
    factory: Factory, context: Iterable[str] = (), is_option: Callable[[Any], bool] = tomlable
) -> dict[str, tuple[Any, Any]]:
    """The options of a factory in order: name -> (type, default, ``...`` where there is none),
    without the parameters that the library fills in."""
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
        if is_option(kind):
            found[name] = (kind, default)
    return found


def takes_fields_of(record: Any) -> Callable[[Factory], Factory]:
    """Mark a factory whose further options, ``**options``, are the fields of a record.

    Example:
        >>> @dataclass(frozen=True)
        ... class Form:
        ...     shape: tuple[int, ...]
        ...     classes: int = 2
        >>> @takes_fields_of(Form)
        ... def nodes(seed: int = 0, **form: Any) -> Form:
        ...     return Form(**form)
        >>> list(factory_options(nodes)), nodes(shape=(2,))
        (['seed', 'shape', 'classes'], Form(shape=(2,), classes=2))
    """
    kinds = get_type_hints(record, include_extras=True)
    options = []
    for one in record_fields(record):
        default = default_of(one)
        if default is ...:
            default = inspect.Parameter.empty
        options.append(
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=kinds[one.name],
            )
        )

    def marked(factory: Factory) -> Factory:
        own = inspect.signature(factory, eval_str=True)
        kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        signature = own.replace(parameters=[*kept, *options])
        # What `inspect.signature` returns, see PEP 362.
        setattr(factory, "__signature__", signature)  # noqa: B010
        return factory

    return marked


def fields(
    factory: Factory, context: Iterable[str] = (), is_option: Callable[[Any], bool] = tomlable
) -> dict[str, Any]:
    """The same as fields of a pydantic model. Every validation of an option, of a table as of a
    Python call, uses these."""
    found = factory_options(factory, context, is_option)
    # Functions stay as they are: they are options of Python's calls alone.
    kinds = {name: strict(kind) if tomlable(kind) else kind for name, (kind, _) in found.items()}
    return {name: (kinds[name], default) for name, (_, default) in found.items()}


# --- tables of records ----------------------------------------------------------------------------

# Metadata of a record's field that no file can set, though a file could hold its value.
# `coterie.cli.declarations` looks for this name in the text of a field.
PYTHON_ONLY: Mapping[str, Any] = {"in_tables": False}


@dataclass(frozen=True, slots=True)
class OneOf:
    """Marks a text that must be a registered name, or ``module:factory`` where code of the user's own
    is allowed; which names there are is known at run time."""

    names: Callable[[], tuple[str, ...]]
    custom: bool = False

    def kind(self) -> Any:
        """The type of such texts."""
        known: Any = Literal[self.names()]
        if self.custom:
            return typing.Union[known, Annotated[str, Field(pattern=FACTORY)]]  # noqa: UP007
        return known


def default_of(field: RecordField[Any]) -> Any:
    """The default of a record's field, ``...`` where it has none."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ... if field.default is MISSING else field.default


def table_of(record: Any) -> type[RecordTable]:
    """The pydantic model of a record's table: those of its fields that a file can hold."""
    return _table_of(record)


@lru_cache(maxsize=64)
def _table_of(record: Any) -> type[RecordTable]:
    kinds = get_type_hints(record, include_extras=True)
    found: dict[str, Any] = {}
    for field in record_fields(record):
        kind = strict(kinds[field.name])
        if kind is None or not field.metadata.get("in_tables", True):
            continue
        default = default_of(field)
        if is_dataclass(default):
            default = table_of(type(default))()
        found[field.name] = (kind, default)
    model = create_model(record.__name__, __base__=RecordTable, **found)
    model.record = record
    return model


def to_plain(value: Any) -> Any:
    """A record as its table has it, without keys that are ``None``: mappings, lists, numbers and
    texts."""
    if is_dataclass(value) and not isinstance(value, type):
        names = table_of(type(value)).model_fields
        value = {name: getattr(value, name) for name in names}
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: to_plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        # A key without a value is one that is not set; a place of a list cannot be left out.
        return [to_plain(inner) for inner in value]
    return python_values(value)


def python_values(value: Any) -> Any:
    """The same with numbers of Python in place of NumPy's, and texts in place of paths, in mappings
    and lists, too."""
    # The strict types refuse `np.int64` and `np.float32`, which are what a user's own
    # arithmetic gives.
    if isinstance(value, Mapping):
        return {key: python_values(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(python_values, value))
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, PathLike):
        return os.fspath(value)
    return value


@lru_cache(maxsize=64)
def _records_in(record: Any) -> frozenset[Any]:
    """The records that are values of a record's fields, wherever in their types they stand."""
    found = set()
    waiting = list(get_type_hints(record).values())
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and is_dataclass(kind):
            found.add(kind)
    return frozenset(found)


def without_objects(
    record: type[Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a record's fields as its table has them, and those that no file can hold.

    Example:
        >>> @dataclass(frozen=True)
        ... class Training:
        ...     rounds: int
        ...     sampler: Literal["uniform"] | Callable[[int], Any] = "uniform"
        >>> without_objects(Training, {"rounds": 3, "sampler": range})
        ({'rounds': 3}, {'sampler': <class 'range'>})
    """
    kind: Any = record
    inner = _records_in(kind)
    takes = _fields_for_objects(kind)
    objects = {
        name: value for name, value in values.items() if name in takes and _has_object(value, inner)
    }
    rest = {name: to_plain(value) for name, value in values.items() if name not in objects}
    return rest, objects


@lru_cache(maxsize=64)
def _fields_for_objects(record: Any) -> frozenset[str]:
    """The fields of a record whose types allow more than a file can hold."""
    return frozenset(name for name, kind in get_type_hints(record).items() if _allows_objects(kind))


def _allows_objects(kind: Any) -> bool:
    if get_origin(kind) is Callable:
        return True
    parts = [part for part in get_args(kind) if part is not Ellipsis]
    if parts:
        return get_origin(kind) is not Literal and any(map(_allows_objects, parts))
    return not tomlable(kind) and not is_dataclass(kind)


def _has_object(value: Any, inner: frozenset[Any] = frozenset()) -> bool:
    """Whether a value is a function, or has one in it, other than a record that can be called."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(_has_object(one, inner) for one in value)
    return callable(value) and type(value) not in inner


def outside_tables(value: Any) -> dict[str, Any]:
    """What of a record, or of the table of a choice, no file can hold: its functions, and fields for
    Python alone that are not as by default."""
    if isinstance(value, BaseModel):
        return {name: found for name, found in value if _has_object(found)}
    if not is_dataclass(value) or isinstance(value, type):
        return {}
    values = {one.name: getattr(value, one.name) for one in record_fields(value)}
    _, found = without_objects(type(value), values)
    for one in record_fields(value):
        if not one.metadata.get("in_tables", True) and values[one.name] != default_of(one):
            found[one.name] = values[one.name]
    return found

"""What is wrong with a configuration or with an argument: one line each, all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from coterie.config.schema import LARGEST
from coterie.config.wording import describe_type, nearest, spelled
from coterie.errors import Code, Problem, shown


def problems(
    error: ValidationError, raw: Mapping[str, Any], model: type[BaseModel]
) -> list[Problem]:
    """Every error of a validation, one problem per key path."""
    found: dict[str, Problem] = {}
    for one in error.errors(include_url=False, include_context=False):
        problem = _problem(one, _path(one, raw), raw, model)
        # A union such as `int | Literal["auto"]` reports an error for each of its members.
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
            path.append(part)
        elif one["type"] == "missing" and isinstance(raw, Mapping):
            return [*path, part]
        else:
            return path
    return path


def _problem(one: ErrorDetails, path: list[Any], raw: Any, model: type[BaseModel]) -> Problem:
    where = spelled(path) or "configuration"
    if "[key]" in one["loc"] or one["type"] == "invalid_key":
        key = path[-1] if path else one["loc"][-1]
        return Problem("wrong-type", where, "a key that is not text", shown(key), "text")
    if one["type"] == "extra_forbidden":
        known = list(fields_at(model, path[:-1]))
        expected = "no further keys"
        if known:
            expected = f"one of {', '.join(known)}"
        # A misspelt key of this table, or else a key of another table.
        hint = nearest(str(path[-1]), known) or _table_that_has(path, model)
        return Problem("unknown-key", where, got=shown(one["input"]), allowed=expected, hint=hint)
    expected = expected_at(model, path)
    if one["type"] == "missing":
        return Problem("missing", where, allowed=expected)
    got = raw
    for part in path:
        got = got[part]
    # The limit is that of all numbers and stands in no annotation, so it is added here.
    if one["type"] == "too_large":
        expected += f" and <= {LARGEST}" if got > 0 else f" and >= {-LARGEST}"
    field = _field(model, path)
    choices = [] if field is None else _choices(field.annotation)
    code = _code(one["type"])
    return Problem(code, where, got=shown(got), allowed=expected, hint=nearest(got, choices))


def _code(kind: str) -> Code:
    # Prefixes, because pydantic has many kinds (`greater_than_equal`, `int_parsing`, ...) and adds
    # to them; the order matters, since some contain the word "type".
    if kind.startswith(("greater_than", "less_than", "too_large", "multiple_of")):
        return "out-of-range"
    if kind == "finite_number":
        return "not-finite"
    if kind.startswith(("literal", "enum")):
        return "unknown-choice"
    if kind.startswith(("too_short", "too_long", "string_too")):
        return "wrong-shape"
    if "type" in kind or "parsing" in kind:
        return "wrong-type"
    return "cannot-be-used"


# --- what a key path of a model may hold ----------------------------------------------------------


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
        # The table of `Table | None`, but not of `Table | tuple[Table, ...]`, where the place in the
        # list says which table is meant.
        kinds = get_args(field.annotation)
        tables = [one for one in kinds if _is_table(one)]
        return tables[0] if len(tables) == 1 and type(None) in kinds else field.annotation
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


def expected_at(model: Any, path: Sequence[Any]) -> str:
    """What may stand at a key path, in words."""
    field = _field(model, path)
    if field is None:
        return "a table"
    return field.description or describe_type(field.annotation, field.metadata)


def default_at(model: Any, path: Sequence[Any]) -> Any:
    """The default of a key path, ``None`` where it has none."""
    field = fields_at(model, path[:-1]).get(str(path[-1]))
    if field is None or field.default is PydanticUndefined:
        return None
    return field.default


def _choices(kind: Any) -> list[str]:
    """The names that a type allows, wherever in it they stand."""
    if get_origin(kind) is Literal:
        return [str(a) for a in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]


def _table_that_has(path: Sequence[Any], model: type[BaseModel]) -> str | None:
    """The full path of a key that was written into the wrong table."""
    tables: list[tuple[str, ...]] = [(), ("data", "partition")]
    # The top level first and the nested table last: the shortest path is the likeliest.
    tables[1:1] = [(name,) for name in model.model_fields]
    for table in tables:
        if path[-1] in fields_at(model, table):
            return spelled([*table, path[-1]])
    return None

"""Values that an option may have, made from its type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError

from coterie.config import registry
from coterie.config.schema import table_of

Schema = Mapping[str, Any]


def other_values(kind: str, name: str) -> dict[str, Any]:
    """Option -> a value that is not its default, for each option of a choice."""
    model = registry.table_model(kind, registry.find(kind, name))
    defaults = {option: one[1] for option, one in registry.options(kind, name).items()}
    return _other_values(model, defaults)


def other_values_of_record(record: Any) -> dict[str, Any]:
    """The same for each key of a record's table."""
    model = table_of(record)
    return _other_values(model, {key: one.default for key, one in model.model_fields.items()})


def _other_values(model: type[BaseModel], defaults: Mapping[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema()
    found = {}
    for option, default in defaults.items():
        values = _values(schema["properties"][option], schema.get("$defs", {}))
        fitting = (value for value in values if _fits(model, option, value))
        found[option] = next(value for value in fitting if value != _plain(default))
    return found


def _plain(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _fits(model: Any, option: str, value: Any) -> bool:
    validator = model.__pydantic_validator__
    try:
        validator.validate_assignment(model.model_construct(), option, value)
    except ValidationError:
        return False
    return True


def _values(schema: Schema, tables: Mapping[str, Schema]) -> Iterator[Any]:
    """Some values that a JSON schema allows, and a few that it may not."""
    if "$ref" in schema:
        schema = tables[schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", ()):
        yield from _values(one, tables)
    yield from schema.get("enum", ())
    if "const" in schema:
        yield schema["const"]
    kind = schema.get("type")
    if kind == "boolean":
        yield from (True, False)
    elif kind in ("integer", "number"):
        yield from _numbers(schema)
    elif kind == "string":
        yield from ("a", "b")
    elif kind == "array":
        yield from _arrays(schema, tables)
    elif kind == "object":
        yield from _objects(schema, tables)


def _numbers(schema: Schema) -> Iterator[float]:
    bounds = ("minimum", "exclusiveMinimum", "ge")
    low = next((schema[bound] for bound in bounds if bound in schema), 0)
    if schema["type"] == "integer":
        yield from range(low + 4, low - 1, -1)
        return
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 4))
    for share in (0.25, 0.5, 0.75):
        yield low + share * (high - low)


def _arrays(schema: Schema, tables: Mapping[str, Schema]) -> Iterator[list[Any]]:
    if "prefixItems" in schema:
        yield [next(_values(part, tables)) for part in schema["prefixItems"]]
        return
    for value in _values(schema.get("items", {"type": "number"}), tables):
        yield [value]
        yield [value, value]


def _objects(schema: Schema, tables: Mapping[str, Schema]) -> Iterator[dict[str, Any]]:
    if "properties" not in schema:
        further = schema.get("additionalProperties", True)
        for value in islice(_values({"type": "number"} if further is True else further, tables), 3):
            yield {"a": value}
        return
    keys = schema["properties"]
    needed = {key: next(_values(keys[key], tables)) for key in schema.get("required", ())}
    for key, one in keys.items():
        for value in _values(one, tables):
            yield {**needed, key: value}

"""The keys of each table that is a record, for the reference page, completion and messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticUndefined

from coterie.config.schema import RecordTable, field_help, table_of
from coterie.config.wording import describe_type
from coterie.experiment.tables import record_types


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key of a table.

    Args:
        expected: what it may be, in words.
        default: its default; ``None`` also if it has none.
        help: one line from the record's docstring.
    """

    name: str
    expected: str
    default: Any
    required: bool
    help: str


def keys_of_tables() -> dict[str, tuple[TableKey, ...]]:
    """Table, such as ``local`` or ``local.step_schedule`` -> its keys, in their order.

    Example:
        >>> [key.name for key in keys_of_tables()["checkpoint"]]
        ['seconds', 'keep']
    """
    found: dict[str, tuple[TableKey, ...]] = {}
    waiting: list[tuple[str, Any]] = list(record_types().items())
    while waiting:
        name, record = waiting.pop(0)
        found[name] = tuple(_keys(record))
        waiting = [(f"{name}.{key}", inner) for key, inner in _tables_in(record)] + waiting
    return found


def _keys(record: Any) -> list[TableKey]:
    texts = field_help(record)
    return [
        TableKey(
            name,
            describe_type(field.annotation, field.metadata),
            None if field.default is PydanticUndefined else field.default,
            field.default is PydanticUndefined,
            texts.get(name, ""),
        )
        for name, field in table_of(record).model_fields.items()
    ]


def _tables_in(record: Any) -> list[tuple[str, Any]]:
    """The records that are values of a record's keys."""
    found = []
    for name, field in table_of(record).model_fields.items():
        waiting = [field.annotation]
        while waiting:
            kind: Any = waiting.pop()
            waiting += getattr(kind, "__args__", ())
            if isinstance(kind, type) and issubclass(kind, RecordTable):
                found.append((name, kind.record))
    return found

"""Tables of a configuration with their keys, read off the records and the registered factories.

They need nothing but coterie, so that tests read them where Sphinx is not installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

Row = tuple[str, ...]


class TableKey(NamedTuple):
    """A key of a table: what it may be in words, its default (``None`` also if it has none), whether
    it must be set, and one line from the record's docstring."""

    name: str
    expected: str
    default: Any
    required: bool
    help: str


def keys_of_tables() -> dict[str, tuple[TableKey, ...]]:
    """Table, such as ``local`` or ``local.step_schedule`` -> its keys, in their order."""
    from coterie.experiment.tables import record_types

    found: dict[str, tuple[TableKey, ...]] = {}
    waiting: list[tuple[str, Any]] = list(record_types().items())
    while waiting:
        name, record = waiting.pop(0)
        found[name] = tuple(_keys(record))
        waiting = [(f"{name}.{key}", inner) for key, inner in _tables_in(record)] + waiting
    return found


def _keys(record: Any) -> list[TableKey]:
    from pydantic_core import PydanticUndefined

    from coterie.config.schema import table_of
    from coterie.config.wording import describe_type

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
    from coterie.config.schema import RecordTable, table_of

    found = []
    for name, field in table_of(record).model_fields.items():
        waiting = [field.annotation]
        while waiting:
            kind: Any = waiting.pop()
            waiting += getattr(kind, "__args__", ())
            if isinstance(kind, type) and issubclass(kind, RecordTable):
                found.append((name, kind.record))
    return found


def field_help(record: Any) -> dict[str, str]:
    """What the docstring of a record or a factory says of each field or argument, in one line."""
    text = inspect.getdoc(record) or ""
    _, _, listed = text.partition("\nArgs:\n")
    found: dict[str, str] = {}
    name = ""
    for line in listed.splitlines():
        if line.strip() and not line.startswith("    "):
            break
        entry, colon, rest = line.strip().partition(": ")
        if line.startswith("    ") and line[4:5].strip() and colon:
            name = entry
            found[name] = rest
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}"
    return found


def record_lines(only: str | None = None) -> list[str]:
    """The keys of records, a table for each."""
    from coterie.errors import shown

    lines: list[str] = []
    for table, keys in keys_of_tables().items():
        if only is not None and table != only:
            continue
        if only is None:
            lines += [f".. rubric:: [{table}]", ""]
        rows = []
        for key in keys:
            default = "required" if key.required else shown(key.default)
            if key.default is None and not key.required:
                default = "not set"
            rows.append((f"``{key.name}``", key.expected, f"``{default}``", key.help))
        lines += table_of(("key", "value", "default", "meaning"), (18, 20, 14, 48), rows)
    return lines


def option_lines(only: str | None = None) -> list[str]:
    """The options of choices, a table for each kind."""
    from coterie.config import registry
    from coterie.config.kinds import KINDS
    from coterie.config.wording import describe_type
    from coterie.errors import shown

    lines: list[str] = []
    for kind, where in KINDS.items():
        if not where.place or only not in (None, kind):
            continue
        if only is None:
            lines += [f".. rubric:: [{'.'.join(where.place)}]", ""]
        rows = []
        for name in registry.names(kind):
            options = registry.options(kind, name)
            texts = field_help(registry.find(kind, name))
            for option, (type_, default) in options.items():
                value = "``required``" if default is ... else f"``{shown(default)}``"
                if default is None:
                    value = "``not set``"
                text = texts.get(option, "")
                rows.append((f"``{name}``", f"``{option}``", describe_type(type_), value, text))
            if not options:
                rows.append((f"``{name}``", "", "", "", ""))
        heads = ("name", "option", "value", "default", "meaning")
        lines += table_of(heads, (14, 16, 20, 14, 36), rows)
    return lines


def table_of(heads: Row, widths: tuple[int, ...], rows: Iterable[Row]) -> list[str]:
    """A table in reStructuredText."""
    lines = [
        ".. list-table::",
        f"   :widths: {' '.join(map(str, widths))}",
        "   :header-rows: 1",
        "",
    ]
    for row in (heads, *rows):
        lines += [f"   {'* -' if place == 0 else '  -'} {cell}" for place, cell in enumerate(row)]
    return [*lines, ""]

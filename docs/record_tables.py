"""Tables of a configuration with their keys, read off the records and the registered factories.

They need nothing but coterie, so that tests read them where Sphinx is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable

Row = tuple[str, ...]


def record_lines(only: str | None = None) -> list[str]:
    """The keys of records, a table for each."""
    from coterie.errors import shown
    from coterie.experiment.reference import keys_of_tables

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
    from coterie.config.schema import field_help
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

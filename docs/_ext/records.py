"""The directives `records` and `options`: tables of a configuration with their keys, read off the
records and the registered factories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Row = tuple[str, ...]


class Records(SphinxDirective):
    """All records, or the one that is named."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        return parsed(self, record_lines(*self.arguments))


class Options(SphinxDirective):
    """The names of all kinds of choices with their options and defaults, or those of the kind that is
    named, such as `source`."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        return parsed(self, option_lines(*self.arguments))


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
            for option, (type_, default) in options.items():
                value = "``required``" if default is ... else f"``{shown(default)}``"
                if default is None:
                    value = "``not set``"
                rows.append((f"``{name}``", f"``{option}``", describe_type(type_), value))
            if not options:
                rows.append((f"``{name}``", "", "", ""))
        lines += table_of(("name", "option", "value", "default"), (20, 20, 40, 20), rows)
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


def parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    holder = nodes.container()
    directive.state.nested_parse(StringList(lines, "records"), directive.content_offset, holder)
    return holder.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("records", Records)
    app.add_directive("options", Options)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

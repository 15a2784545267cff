"""The directives `records` and `options`: the tables of `docs/record_tables.py`."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from record_tables import option_lines, record_lines
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


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


def parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    holder = nodes.container()
    directive.state.nested_parse(StringList(lines, "records"), directive.content_offset, holder)
    return holder.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("records", Records)
    app.add_directive("options", Options)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

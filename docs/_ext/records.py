"""The directive `records`: the tables of a configuration with their keys, read off the records."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Records(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        from coterie.config.wording import shown
        from coterie.experiment.reference import keys_of_tables

        lines: list[str] = []
        for table, keys in keys_of_tables().items():
            lines += [f".. rubric:: [{table}]", "", ".. list-table::", "   :widths: 18 20 14 48"]
            lines += ["   :header-rows: 1", "", "   * - key", "     - value", "     - default"]
            lines += ["     - what it says"]
            for key in keys:
                default = "required" if key.required else shown(key.default)
                if key.default is None and not key.required:
                    default = "not set"
                row = (f"``{key.name}``", key.expected, f"``{default}``", key.help)
                lines += [
                    f"   {'* -' if place == 0 else '  -'} {cell}" for place, cell in enumerate(row)
                ]
            lines.append("")
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, "records"), self.content_offset, holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("records", Records)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

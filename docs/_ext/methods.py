"""The directive `methods`: a table of all methods, by its name in `docs/method_tables.py`."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from method_tables import TABLES, sent
from records import parsed
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Methods(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from coterie.algorithms import ALGORITHMS

        return parsed(self, TABLES[self.arguments[0]](ALGORITHMS, sent()).splitlines())


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("methods", Methods)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

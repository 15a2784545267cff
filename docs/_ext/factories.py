"""The directive `factories`: the interface of every registered method, so that none is forgotten."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from records import parsed
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Factories(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        from coterie.algorithms import ALGORITHMS

        # `coterie.local` is the package of local training, so that method has one home only.
        homes = {
            name: "coterie.algorithms" if name == "local" else "coterie" for name in ALGORITHMS
        }
        return parsed(self, [f".. autofunction:: {home}.{name}" for name, home in homes.items()])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("factories", Factories)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

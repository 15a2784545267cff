"""Keeps a value, its deviation and its unit on one line in the cells of tables."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

UNBROKEN = "\N{NO-BREAK SPACE}"
APART = re.compile(r"(?<=[\d%]) (?=±)|(?<=±) (?=\d)|(?<=\d) (?=%)")


class UnbrokenCells(SphinxPostTransform):
    default_priority = 400
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for cell in self.document.findall(nodes.entry):
            for text in list(cell.findall(nodes.Text)):
                text.parent.replace(text, nodes.Text(APART.sub(UNBROKEN, text.astext())))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(UnbrokenCells)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

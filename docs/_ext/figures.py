"""Puts the pictures of docs/figures into the page itself, where they follow its theme.

An SVG behind an `<img>` sees the system's theme alone, not the one chosen on the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class InlineFigures(SphinxPostTransform):
    default_priority = 5  # before Sphinx looks for another format of the image
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.srcdir, image["uri"])
            if path.suffix == ".svg" and path.parent.name == "figures":
                drawing = path.read_text(encoding="utf-8")
                drawing = f'<span class="drawing">{drawing}</span>'
                image.replace_self(nodes.raw("", drawing, format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(InlineFigures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

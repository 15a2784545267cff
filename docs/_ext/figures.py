"""Puts the pictures of docs/figures into the page itself, where they follow its theme.

An SVG behind an `<img>` sees the system's theme alone, not the one chosen on the page. On a phone
the panels of the landing page stand one below the other.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


@cache
def narrow_pictures(folder: Path) -> dict[str, str]:
    """What `docs/figures/draw.py` draws for phones."""
    sys.path.insert(0, str(folder))
    from draw import narrow_pictures

    return narrow_pictures()


class InlineFigures(SphinxPostTransform):
    default_priority = 5  # before Sphinx looks for another format of the image
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.srcdir, image["uri"])
            if path.suffix == ".svg" and path.parent.name == "figures":
                drawing = path.read_text(encoding="utf-8")
                narrow = narrow_pictures(path.parent).get(path.name)
                if narrow is None:
                    drawing = f'<span class="drawing">{drawing}</span>'
                else:
                    drawing = (
                        f'<span class="drawing wide">{drawing}</span>'
                        f'<span class="drawing narrow">{narrow}</span>'
                    )
                image.replace_self(nodes.raw("", drawing, format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(InlineFigures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

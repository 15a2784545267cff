"""How the documentation is built: `make docs`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "docs"))
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])
)

from docutils import nodes  # noqa: E402

from coterie import __version__  # noqa: E402

project = "Coterie"
author = "the Coterie authors"
copyright = "the Coterie authors"
release = version = __version__
extensions = [
    "records",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "cells",
    "factories",
    "figures",
    "formulas",
    "methods",
]
exclude_patterns = ["_build", "_ext", "**.ipynb_checkpoints"]

html_theme = "furo"
html_title = f"Coterie {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # docs/_ext/formulas.py

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 90


def shorter(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returns: str
) -> tuple[str, str]:
    """Signatures without pydantic's ranges, which the algorithms' pages say in words."""
    ranged = re.compile(
        r"~?(?:typing\.)?Annotated\[(.*?), ~?(?:\w+\.)*FieldInfo\(.*?metadata=\[.*?\]\)\]"
    )
    return ranged.sub(r"\1", signature or "") or signature, returns


def unbroken(app: Any, tree: Any, page: str) -> None:
    """No line breaks before a percent sign or at the sign of an interval."""
    for text in list(tree.findall(nodes.Text)):
        kept = text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")
        if kept != text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(kept))


def setup(app: Any) -> None:
    app.connect("doctree-resolved", unbroken)
    app.connect("autodoc-process-signature", shorter)

"""Formulas as MathML, made while the pages are built.

Browsers show MathML without a script and without a network, so the pages are complete offline.
docutils brings the converter. It stops at a command that it does not know, and Sphinx then warns
with the page and the formula.
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

# The converter knows no \tag. The number of the paper's equation goes to the right of the formula.
TAG = re.compile(r"\\tag\{([^}]*)\}")

# Without \left and \right the converter puts an index on the closing bar alone, which then differs
# from the opening one.
BAR = re.compile(r"(?<![a-z])\\(l|r)(vert|Vert)(?![a-zA-Z])")
SIDE = {"l": r"\left", "r": r"\right"}


def mathml(formula: str, node: nodes.Element, *, block: bool) -> str:
    formula = BAR.sub(lambda bar: SIDE[bar[1]] + bar[0], formula)
    try:
        return tex2mathml(formula, as_block=block)
    except MathError as problem:
        logger.warning("formula %r: %s", formula, problem, location=node)
        return f"<code>{html.escape(formula)}</code>"


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_display(translator: Any, node: nodes.math_block) -> None:
    source = node.astext().strip()
    numbers = TAG.findall(source)
    formula = mathml(TAG.sub("", source).strip(), node, block=True)
    translator.body.append(f'<div class="formula">{formula}')
    if numbers:
        label = html.escape(", ".join(numbers))
        translator.body.append(f'<span class="equation-number">({label})</span>')
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

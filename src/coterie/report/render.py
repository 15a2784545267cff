"""A page as one self-contained HTML text: it works offline, runs no script but its own, and follows
the reader's light or dark setting."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from coterie.report.figures.style import pack
from coterie.report.section import Section


def render_page(
    title: str,
    headline: str,
    intro: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[Section],
) -> str:
    """A page as text."""
    library = _library()
    draw = _template("draw.js")
    style = page_style()
    specs = {
        chart["id"]: pack(chart["spec"])
        for section in sections
        for chart in section.get("charts", ())
    }
    return str(
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            headline=headline,
            intro=intro,
            facts=facts,
            sections=sections,
            specs=specs,
            library=library,
            draw=draw,
            style=style,
            # The content security policy names scripts and style by these hashes, so that no
            # script in a client's name can run.
            hashes=[_sha256(library), _sha256(draw)],
            style_hash=_sha256(style),
        )
    )


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``, made without network or
    browser."""
    import altair
    import vl_convert

    # Vega-Lite of the version for which Altair has written the specifications.
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle = vl_convert.javascript_bundle(_template("bundle.js"), vl_version=version)
    return _inline(str(bundle))


def _inline(script: str) -> str:
    """A script that can stand in an HTML script element."""
    # The parser of a page looks for these two, even within a text of the script.
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def page_style() -> str:
    """The style of all pages: text for a ``style`` element."""
    return _template("style.css")


def _template(name: str) -> str:
    return resources.files("coterie.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    import jinja2

    loader = jinja2.PackageLoader("coterie.report")
    # Names of clients, labels and runs are anything: all of them are escaped.
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )

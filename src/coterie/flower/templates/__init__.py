"""The files of a deployment that are made from templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render_template(name: str, values: Mapping[str, Any]) -> str:
    """The text of a file."""
    templates = Environment(
        loader=PackageLoader("coterie.flower", "templates"),
        # A value that a template misses is our mistake, and must not become empty text.
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return templates.get_template(f"{name}.j2").render(values)

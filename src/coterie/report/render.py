"""A page of sections as one self-contained HTML text: it works offline, runs no script but its own,
and follows the reader's light or dark setting."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Required, TypedDict

from coterie.data.images.cache import cache_folder
from coterie.files import read_sealed, replace_file, sealed

Table = tuple[list[str], list[list[Any]]]  # the heads of its columns, and its rows


class Chart(TypedDict, total=False):
    """A chart of a section.

    Keys:
        id: the id of its element; also its name on the command line and as a file.
        spec: its Vega-Lite specification.
        title: its title, if the section has several charts.
        table: the same as text, for those who do not read charts.
    """

    id: Required[str]
    spec: Required[dict[str, Any]]
    title: str
    table: Table


class Section(TypedDict, total=False):
    """A section of a page: charts, or a table, or texts.

    Keys:
        title: its heading.
        note: what it shows or says, in a sentence or more.
        definitions: what its words mean and how to read it; folded.
        charts: one or several.
        hints: what is shown of a column's head that is pointed at, by its name.
        columns: names of the columns of a table, each a text, or a text and a class.
        rows: the table's rows; a cell is a text, or a text and a class of the style sheet: ``figure``
            and ``text`` are set right and left. Without one, the first column is set left, all
            others right.
        texts: each a name and a long text, which is folded.
        part: sections that follow each other with the same part stand under its heading.
        wide: several charts stand two side by side.
        square: the chart is no wider than it is high.
    """

    title: Required[str]
    note: str
    definitions: str
    charts: Sequence[Chart]
    hints: Mapping[str, str]
    columns: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    texts: Sequence[tuple[str, str]]
    part: str
    wide: bool
    square: bool


def chart_section(
    title: str, note: str, name: str, spec: dict[str, Any], table: Table, definitions: str = ""
) -> Section:
    """A section of one chart, which is also shown as a table."""
    charts: list[Chart] = [{"id": name, "spec": spec, "table": table}]
    return {"title": title, "note": note, "definitions": definitions, "charts": charts}


# --- HTML ------------------------------------------------------------------------------------------


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
        page_templates("coterie.report")
        .get_template("page.html.j2")
        .render(
            title=title,
            headline=headline,
            intro=intro,
            facts=facts,
            sections=[
                {"note": "", "definitions": "", "hints": {}, **section} for section in sections
            ],
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


def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``, made without network or
    browser.

    Making it takes longer than all else of a page, so it is kept in the user's cache folder."""
    import altair
    import vl_convert

    # Vega-Lite of the version for which Altair has written the specifications.
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    code = _template("bundle.js")
    made_by = metadata.version("vl-convert-python")
    name = hashlib.sha256(f"{made_by} {version} {code}".encode()).hexdigest()
    # Without a folder to write to, it is made each time.
    with suppress(OSError):
        found = read_sealed(_kept_script(name).read_bytes())
        if found is not None:
            return str(found["script"])
    # The parser of a page looks for these two, even within a text of the script.
    script = (
        str(vl_convert.javascript_bundle(code, vl_version=version))
        .replace("</script", "<\\/script")
        .replace("<!--", "<\\!--")
    )
    with suppress(OSError):
        kept = _kept_script(name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, sealed({"script": script}))
    return script


def _kept_script(name: str) -> Path:
    return cache_folder().parent / "pages" / f"{name}.json"


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def page_style() -> str:
    """The style of all pages: text for a ``style`` element."""
    return _template("style.css")


def _template(name: str) -> str:
    return resources.files("coterie.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def page_templates(package: str) -> Any:
    """The templates of pages in a package."""
    import jinja2

    loader = jinja2.PackageLoader(package)
    # Names of clients, labels and runs are anything: all of them are escaped.
    found = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    found.filters["unbroken"] = _unbroken
    return found


def _unbroken(text: str) -> str:
    """A text whose lines do not break before a unit or within an interval."""
    return text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def pack(spec: dict[str, Any]) -> dict[str, Any]:
    """A specification whose data stand in columns, without the names of the fields in every row.

    It keeps a page of many clients small; ``draw.js`` unpacks the data.

    Example:
        >>> pack({"datasets": {"d": [{"a": 1, "b": 2}, {"a": 3}]}})
        {'datasets': {'d': {'fields': ['a', 'b'], 'rows': [[1, 2], [3, None]]}}}
    """
    if "datasets" not in spec:
        return spec
    return {**spec, "datasets": {name: _columns(rows) for name, rows in spec["datasets"].items()}}


def _columns(rows: Any) -> Any:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return rows
    fields = list(dict.fromkeys(key for row in rows for key in row))
    return {"fields": fields, "rows": [[row.get(key) for key in fields] for row in rows]}

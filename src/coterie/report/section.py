"""What a page is made of: sections with charts, a table, or texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Required, TypedDict

Table = tuple[list[str], list[list[Any]]]  # the heads of its columns, and its rows


class Chart(TypedDict, total=False):
    """A chart of a section.

    Keys:
        id: of its element; also its name on the command line and as a file.
        spec: its Vega-Lite specification.
        title: where a section has several.
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
        note: what it shows, in a sentence or more.
        charts: one or several.
        columns: names of the columns of a table, each a text, or a text and a class.
        rows: of the table; a cell is a text, or a text and a class of the style sheet: ``figure``
            and ``text`` are set right and left. Without one, the first column is set left, all
            others right.
        texts: each a name and a long text, which is folded.
        part: sections that follow each other with the same part stand under its heading.
        wide: several charts stand two side by side.
        square: the chart is no wider than it is high.
    """

    title: Required[str]
    note: Required[str]
    charts: Sequence[Chart]
    columns: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    texts: Sequence[tuple[str, str]]
    part: str
    wide: bool
    square: bool


def chart_section(title: str, note: str, name: str, spec: dict[str, Any], table: Table) -> Section:
    """A section of one chart, which is also shown as a table."""
    return {"title": title, "note": note, "charts": [{"id": name, "spec": spec, "table": table}]}

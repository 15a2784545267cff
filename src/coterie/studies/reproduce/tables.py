"""The papers' tables, read from their files.

``<paper>.toml`` holds a paper's tables as rows and columns made of parts of configurations, and
``paper_tables.toml`` what is printed. A line is a row and a column.

A paper's file has a base configuration and parts of configurations, ``[part.<name>]``. The
configuration of a line is the base with the parts of its table, row and column laid over it, in
this order.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from coterie.studies.reproduce.papers import Drawings, Line, Paper, PaperTable, Tables

Place = tuple[Any, ...]


def printed() -> Mapping[str, Any]:
    """What the papers print, as ``paper_tables.toml`` has it."""
    return read_toml("paper_tables")


@cache
def paper(name: str) -> Paper:
    """A paper's tables, with the configurations of the full profile."""
    content = read_toml(name)
    return Paper(
        name=name,
        title=content["paper"],
        seeds=content["seeds"],
        tables=tuple(_table(name, content, table) for table in content["table"]),
        notes=content["note"],
        left_out=content["left_out"],
    )


@cache
def read_toml(name: str) -> Mapping[str, Any]:
    """Read a file of this package."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


# --- lines ----------------------------------------------------------------------------------------


def _table(name: str, content: Mapping[str, Any], table: Tables) -> PaperTable:
    lines = [
        _line(name, content, table, row, column)
        for row in _listed(content, table, "rows")
        for column in _listed(content, table, "columns")
        # A row may name the columns that it has.
        if column["name"] in row.get("columns", [column["name"]])
    ]
    drawings = {one.name: table[one.name] for one in fields(Drawings) if one.name in table}
    return PaperTable(
        name=table["name"],
        title=table["title"],
        notes=tuple(table.get("notes", ())),
        drawings=TypeAdapter(Drawings).validate_python(drawings),
        lines=tuple(line for line in lines if line is not None),
    )


def _listed(content: Mapping[str, Any], table: Tables, key: str) -> list[Tables]:
    """The rows or columns of a table. A name stands for those of the table of that name."""
    found: list[Tables] | str = table[key]
    if isinstance(found, str):
        # Tables of the same rows (accuracies, transfers) write them down once.
        others = {other["name"]: other for other in content["table"]}
        found = others[found][key]
        assert not isinstance(found, str)
    return found


def _line(
    name: str, content: Mapping[str, Any], table: Tables, row: Tables, column: Tables
) -> Line | None:
    """The line of a row and a column; ``None`` if the paper prints a dash and draws no curve."""
    place = _place(name, table, row, column)
    value, std = _printed_at(place)
    # A dash in print: there is nothing to compare. A curve that is drawn has its run all the same.
    if place is not None and value is None and not column.get("drawn", False):
        return None
    parts, against_parts = _parts(table, row, column)
    tables = _configuration(content, parts)
    line = f"{row['name']}/{column['name']}"
    quick = table.get("quick", {})
    # A column's setting wins over the row's, and that over the table's.
    settings = {**table, **row, **column}
    compute = settings.get("compute", "")
    return Line(
        paper=name,
        table=table["name"],
        name=line,
        printed=value,
        printed_std=std,
        unit=settings.get("unit", "percent"),
        metric="" if compute else settings.get("metric", "max"),
        compute=compute,
        how=settings.get("how", "value"),
        tables=tables,
        against=_configuration(content, against_parts),
        arguments={**row.get("arguments", {}), **column.get("arguments", {})},
        target=settings.get("target", 0.0),
        full_rounds=0 if compute or tables is None else tables["train"]["rounds"],
        seconds=_seconds(row, column),
        notes=_notes(row, column),
        place=place,
        quick=any(fnmatchcase(line, pattern) for pattern in quick.get("lines", ())),
        shortcut=quick,
        method=_method_name(content, parts),
        against_method=_method_name(content, against_parts),
        seeds=_seeds_of(content, parts),
        until=settings.get("until", 0),
        axis=settings.get("axis", ""),
    )


def _parts(table: Tables, row: Tables, column: Tables) -> tuple[list[str], list[str]]:
    """The parts of a line's run and of the other run; empty where it has none."""
    common = [*table.get("parts", ()), *row.get("parts", ())]
    parts = [*common, *column.get("parts", ())]
    if "against" not in column:
        return parts, []
    return parts, [*common, *column["against"]]


def _configuration(content: Mapping[str, Any], parts: Sequence[str]) -> Tables | None:
    if not parts:
        return None
    return configuration_of(content, parts)


def _method_name(content: Mapping[str, Any], parts: Sequence[str]) -> str:
    """The parts that set the algorithm or its options, from the last that names one."""
    found: list[str] = []
    for part in parts:
        algorithm = content["part"][part].get("algorithm")
        # A part that names an algorithm replaces the one before with all its options.
        if algorithm is not None and "name" in algorithm:
            found = []
        if algorithm is not None:
            found.append(part)
    return " ".join(found)


def _seeds_of(content: Mapping[str, Any], parts: Sequence[str]) -> tuple[int, ...]:
    """The seeds that the file names for one of these parts; none: those of every line."""
    named: Mapping[str, Sequence[int]] = content.get("seeds_of", {})
    return next((tuple(named[part]) for part in parts if part in named), ())


def _seconds(row: Tables, column: Tables) -> float:
    """The estimate of a round's time: that of the row, or else of the column, times factors."""
    seconds: float = row.get("seconds") or column.get("seconds") or 0.0
    return seconds * float(row.get("factor", 1)) * float(column.get("factor", 1))


def _notes(row: Tables, column: Tables) -> tuple[str, ...]:
    # A remark of a column is a note on one row only.
    remarks = column.get("remarks", {}).get(row["name"], ())
    return (*row.get("notes", ()), *column.get("notes", ()), *remarks)


# --- printed values -------------------------------------------------------------------------------


def _place(name: str, table: Tables, row: Tables, column: Tables) -> Place | None:
    """Keys and indices of a line's value in ``paper_tables.toml``."""
    if "values" not in table or "key" not in column:
        return None
    place: Place = (name, table["values"])
    if "match" in row:
        rows = printed()[name][table["values"]]["rows"]
        place = (*place, "rows", _matching(rows, row["match"]))
    place = (*place, *column["key"].split("."))
    if "index" in table:
        place = (*place, table["index"])
    return place


def _matching(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> int:
    """The index of the first row that has all these values."""
    return next(
        index
        for index, row in enumerate(rows)
        if all(row[key] == value for key, value in wanted.items())
    )


def _printed_at(place: Place | None) -> tuple[float | None, float | None]:
    """The value at a place and its standard deviation, which stands next to it."""
    if place is None:
        return None, None
    return _at(place), _at((*place[:-1], f"{place[-1]}_std"))


def _at(place: Place) -> float | None:
    """The value at a place of ``paper_tables.toml``; ``None`` for a dash."""
    found: Any = printed()
    for part in place:
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list) and isinstance(part, int):
            found = found[part]
        else:
            return None
    # Text stands for a dash, or for a remark of the paper.
    if found is None or isinstance(found, Mapping | list | str):
        return None
    return float(found)


# --- configurations made of parts -----------------------------------------------------------------


def configuration_of(content: Mapping[str, Any], parts: Iterable[str]) -> Tables:
    """The base with parts laid over it, and their values filled in.

    A part may set ``value.<name>``, which fills in every ``"$<name>"`` of the configuration.

    Args:
        parts: names, from the lowest to the highest.

    Example:
        >>> content = {
        ...     "base": {"model": {"name": "mclr"}, "algorithm": {"name": "ifca", "groups": "$m"}},
        ...     "part": {"mnist": {"value": {"m": 3}}, "cnn": {"model": {"name": "cnn"}}},
        ... }
        >>> configuration_of(content, ["mnist", "cnn"])
        {'model': {'name': 'cnn'}, 'algorithm': {'name': 'ifca', 'groups': 3}}
    """
    # The file's content is cached, and must not change with the first line.
    found: Tables = copy.deepcopy(content["base"])
    for part in parts:
        found = overlay(found, content["part"][part])
    # Filled in last: a higher part may have set another value.
    values = found.pop("value", {})
    filled: Tables = _fill(found, values)
    return filled


def overlay(below: Tables, above: Mapping[str, Any]) -> Tables:
    """Lay tables over others, key by key. A table that names an algorithm or a model replaces the
    one below with all its options, which would not be valid."""
    found = dict(below)
    for key, value in above.items():
        lower = found.get(key)
        if isinstance(value, Mapping) and isinstance(lower, Mapping) and "name" not in value:
            found[key] = overlay(dict(lower), value)
        else:
            found[key] = copy.deepcopy(value)
    return found


def _fill(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, values) for key, inner in value.items()}
    if isinstance(value, str) and value.startswith("$"):
        return values[value[1:]]
    return value

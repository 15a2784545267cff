"""The papers' tables as lines: a printed value, the configuration that should give it, and how to
read it off a run.

``<paper>.toml`` holds a paper's tables as rows and columns made of parts of configurations,
``paper_tables.toml`` what is printed. A line is a row and a column; its configuration is the base,
the parts of the table, the row, the column.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, Literal

from coterie.config import RunConfig, check
from coterie.errors import ConfigError

PAPERS = ("fedgroup", "flexcfl", "fedclust", "fedgsp", "rfedavg")
Profile = Literal["quick", "full"]
Unit = Literal["percent", "count", "number", "ratio", "share"]
How = Literal["value", "difference", "ratio", "reduction"]
Tables = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One printed value beside the runs that should give it.

    Args:
        paper: of `PAPERS`.
        table: its name in the paper's file.
        name: ``row/column``.
        printed: the value, ``None`` where the paper prints none.
        printed_std: its spread, where that is printed.
        unit: ``percent`` of accuracy, a ``count``, a plain ``number``, a ``ratio``, or a ``share``
            in percent.
        metric: what is read off a run, see ``metrics.METRICS``; empty where the value is computed.
        compute: a formula of ``computed.FORMULAS`` instead of a run.
        how: the metric itself, or a difference, ratio or reduction against the other run.
        tables: the configuration without its seed, unchecked; ``None`` where none is needed.
        against: that of the other run.
        arguments: of the formula.
        target: of rounds to a target.
        full_rounds: rounds in print.
        seconds: a guess of the time of a round on two cores.
        notes: keys of the paper's notes.
        place: where in ``paper_tables.toml`` the value stands.
        quick: whether the quick profile has it.
        shortcut: what the quick profile changes.
    """

    paper: str
    table: str
    name: str
    printed: float | None
    printed_std: float | None
    unit: Unit
    metric: str
    compute: str
    how: How
    tables: Tables | None
    against: Tables | None
    arguments: Mapping[str, Any]
    target: float
    full_rounds: int
    seconds: float
    notes: tuple[str, ...]
    place: tuple[Any, ...] | None
    quick: bool
    shortcut: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Rounds that it runs."""
        if self.tables and not self.compute:
            return int(self.tables["train"]["rounds"])
        return 0

    def configs(self, seed: int, root: str | None = None) -> tuple[RunConfig, ...]:
        """The checked configurations of its runs with one seed: its own, and that of the other run.

        Raises:
            ConfigError: if a configuration is not valid.
        """
        wanted = [self.tables, self.against] if not self.compute else []
        return tuple(_checked(tables, seed, root) for tables in wanted if tables is not None)

    def config(self, root: str | None = None) -> RunConfig:
        """Its own configuration with seed 0, for a formula.

        Raises:
            ConfigError: if it has none, or it is not valid.
        """
        return _checked(self.tables or {}, 0, root)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Args:
        name: as ``--table`` has it.
        title: what it holds.
        notes: keys of notes that concern all of it.
        curves: whether the page draws its runs.
        lines: its lines with the full profile.
    """

    name: str
    title: str
    notes: tuple[str, ...]
    curves: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Paper:
    """A paper's tables.

    Args:
        name: of `PAPERS`.
        title: authors and year.
        seeds: of the full profile, ``0 .. seeds - 1``.
        tables: in the paper's order.
        notes: key -> where paper, reference code and this run differ.
        left_out: what of the paper has no line, and why.
    """

    name: str
    title: str
    seeds: int
    tables: tuple[Table, ...]
    notes: Mapping[str, str]
    left_out: Mapping[str, str]


# --- reading --------------------------------------------------------------------------------------


@cache
def printed() -> Mapping[str, Any]:
    """What the papers print, as ``paper_tables.toml`` has it.

    Example:
        >>> printed()["flexcfl"]["table3"]["rows"][0]["FlexCFL"]
        95.8
    """
    return _toml("paper_tables")


@cache
def paper(name: str) -> Paper:
    """A paper's tables, with the configurations of the full profile.

    Example:
        >>> line = paper("flexcfl").tables[1].lines[0]
        >>> line.name, line.printed, line.configs(seed=0)[0].train.rounds
        ('mnist-mclr/fedavg', 89.4, 300)
    """
    content = _toml(name)
    by_name = {table["name"]: table for table in content["table"]}
    tables = tuple(_table(name, content, by_name, table) for table in content["table"])
    return Paper(
        name, content["paper"], content["seeds"], tables, content["note"], content["left_out"]
    )


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(
        resources.files("coterie.studies.reproduce")
        .joinpath(f"{name}.toml")
        .read_text(encoding="utf-8")
    )


def _table(name: str, content: Tables, by_name: Mapping[str, Tables], table: Tables) -> Table:
    rows, columns = (
        by_name[table[k]][k] if isinstance(table[k], str) else table[k] for k in ("rows", "columns")
    )
    pairs = ((r, c) for r in rows for c in columns if c["name"] in r.get("columns", [c["name"]]))
    lines = (_line(name, content, table, row, column) for row, column in pairs)
    notes = tuple(table.get("notes", ()))
    return Table(
        table["name"],
        table["title"],
        notes,
        table.get("curves", False),
        tuple(x for x in lines if x),
    )


def _line(name: str, content: Tables, table: Tables, row: Tables, column: Tables) -> Line | None:
    """A row and a column; ``None`` where the paper prints a dash."""
    place = _place(name, table, row, column)
    value = None if place is None else _at(place)
    if place is not None and value is None:
        return None

    def chosen(key: str, default: Any) -> Any:
        return column.get(key, row.get(key, table.get(key, default)))

    common = [*table.get("parts", ()), *row.get("parts", ())]
    compute = chosen("compute", "")
    parts = [*common, *column.get("parts", ())]
    against = [*common, *column["against"]] if "against" in column else None
    tables = _merged(content, parts) if parts else None
    line = f"{row['name']}/{column['name']}"
    quick = table.get("quick", {})
    remarks = column.get("remarks", {}).get(row["name"], ())
    return Line(
        paper=name,
        table=table["name"],
        name=line,
        printed=value,
        printed_std=None if place is None else _at((*place[:-1], f"{place[-1]}_std")),
        unit=chosen("unit", "percent"),
        metric="" if compute else chosen("metric", "max"),
        compute=compute,
        how=chosen("how", "value"),
        tables=tables,
        against=None if against is None else _merged(content, against),
        arguments=row.get("arguments", {}),
        target=chosen("target", 0.0),
        full_rounds=0 if compute or tables is None else tables["train"]["rounds"],
        seconds=(row.get("seconds") or column.get("seconds") or 0.0)
        * row.get("factor", 1)
        * column.get("factor", 1),
        notes=(*row.get("notes", ()), *column.get("notes", ()), *remarks),
        place=place,
        quick=any(fnmatchcase(line, pattern) for pattern in quick.get("lines", ())),
        shortcut=quick,
    )


def _place(name: str, table: Tables, row: Tables, column: Tables) -> tuple[Any, ...] | None:
    """Where the value stands in ``paper_tables.toml``."""
    if "values" not in table or "key" not in column:
        return None
    start: tuple[Any, ...] = (name, table["values"])
    if "match" in row:
        rows = enumerate(printed()[name][table["values"]]["rows"])
        start = (
            *start,
            "rows",
            next(i for i, r in rows if all(r[k] == v for k, v in row["match"].items())),
        )
    return (*start, *column["key"].split("."), *([table["index"]] if "index" in table else []))


def _at(place: Sequence[Any]) -> float | None:
    """The value there, ``None`` for a dash."""
    found: Any = printed()
    for part in place:
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list) and isinstance(part, int):
            found = found[part]
        else:
            return None
    if isinstance(found, Mapping | list | str) or found is None:
        return None
    return float(found)


# --- configurations -------------------------------------------------------------------------------


def _merged(content: Tables, parts: Iterable[str]) -> Tables:
    """The base with parts laid over it, and their values filled in."""
    found: Tables = copy.deepcopy(content["base"])
    for part in parts:
        found = _over(found, content["part"][part])
    values = found.pop("value", {})
    return _filled(found, values)


def _over(below: Tables, above: Mapping[str, Any]) -> Tables:
    """Tables laid over others. One that names an algorithm or a model replaces the one below with
    its options."""
    found = dict(below)
    for key, value in above.items():
        other = found.get(key)
        joined = isinstance(value, Mapping) and isinstance(other, Mapping) and "name" not in value
        found[key] = _over(dict(other or {}), value) if joined else copy.deepcopy(value)
    return found


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, values) for key, inner in value.items()}
    if isinstance(value, str) and value.startswith("$"):
        return values[value[1:]]
    return value


def _checked(tables: Tables, seed: int, root: str | None) -> RunConfig:
    data = {**tables["data"], **({} if root is None else {"root": root})}
    return check({**tables, "data": data, "seed": seed}, "reproduce")


# --- choosing -------------------------------------------------------------------------------------


def profiled(line: Line, profile: Profile) -> Line:
    """The line as a profile runs it: ``full`` as printed, ``quick`` with fewer rounds and what else
    is said there."""
    if profile == "full" or line.compute or line.tables is None:
        return line
    short = line.shortcut
    content = _toml(line.paper)

    def shortened(tables: Tables | None) -> Tables | None:
        if tables is None:
            return None
        rounds = min(short.get("rounds", line.full_rounds), line.full_rounds)
        found = _over(tables, {"train": {"rounds": rounds}})
        for part in short.get("parts", ()):
            found = _over(found, content["part"][part])
        return found

    return replace(
        line,
        tables=shortened(line.tables),
        against=shortened(line.against),
        seconds=line.seconds * short.get("speed", 1.0),
        notes=(*line.notes, *short.get("notes", ())),
    )


def choose(
    papers: Sequence[str],
    profile: Profile = "quick",
    table: str | None = None,
    rows: Sequence[str] = (),
) -> list[Line]:
    """The lines that were asked for, as the profile runs them.

    Args:
        papers: of `PAPERS`; none: all.
        profile: the quick one has its own choice of lines, unless ``rows`` are named.
        table: a table by its name; ``4`` is ``4a`` to ``4d``.
        rows: names of rows or lines, with wild cards.

    Raises:
        ConfigError: for a paper, table or row that is not there.

    Example:
        >>> [line.name for line in choose(["fedgsp"], "full", "1", ["fedgsp"])]
        ['fedgsp/accuracy', 'fedgsp/rounds-to-80']
    """
    for name in papers:
        if name not in PAPERS:
            raise ConfigError(f"paper: unknown, got {name!r}; expected one of {', '.join(PAPERS)}")
    tables = [(p, t) for p in papers or PAPERS for t in paper(p).tables]
    found = [(p, t) for p, t in tables if table is None or _named(t.name, table)]
    if not found:
        names = ", ".join(dict.fromkeys(t.name for _, t in tables))
        raise ConfigError(f"--table: unknown, got {table!r}; expected one of {names}")
    lines = [line for _, t in found for line in t.lines]
    for row in rows:
        if not any(_matches(line, row) for line in lines):
            names = ", ".join(dict.fromkeys(line.name.split("/")[0] for line in lines))
            raise ConfigError(
                f"--row: unknown, got {row!r}; expected one of {names}, or row/column"
            )
    wanted = [line for line in lines if not rows or any(_matches(line, row) for row in rows)]
    return [profiled(line, profile) for line in wanted if rows or profile == "full" or line.quick]


def _named(name: str, wanted: str) -> bool:
    return name == wanted or name.rstrip("abcd") == wanted


def _matches(line: Line, row: str) -> bool:
    return fnmatchcase(line.name, row) or line.name.split("/")[0] == row


def every_line() -> Iterator[Line]:
    """All lines of all papers, with the full profile."""
    return (line for name in PAPERS for table in paper(name).tables for line in table.lines)

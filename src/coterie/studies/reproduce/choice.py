"""Which lines a command runs, and with which profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from coterie.errors import ConfigError
from coterie.studies.reproduce import PAPERS
from coterie.studies.reproduce.papers import Line, Profile, Tables
from coterie.studies.reproduce.tables import overlay, paper, read_toml


def choose(
    papers: Sequence[str],
    profile: Profile = "quick",
    table: str | None = None,
    rows: Sequence[str] = (),
) -> list[Line]:
    """Choose lines, as a profile runs them; the quick one has only some, unless ``rows`` are named.
    Table ``4`` is ``4a`` to ``4d``."""
    for name in papers:
        if name not in PAPERS:
            raise ConfigError(
                "unknown-choice", "paper", got=name, allowed=f"one of {', '.join(PAPERS)}"
            )
    lines = _lines_of(papers or PAPERS, table)
    # A misspelt row would else be left out without a word.
    for row in rows:
        if not any(_matches(line, row) for line in lines):
            names = ", ".join(dict.fromkeys(line.name.split("/")[0] for line in lines))
            raise ConfigError(
                "unknown-choice", "--row", got=row, allowed=f"one of {names}, or row/column"
            )
    # Lines that are named run with any profile: the user asked for them.
    if rows:
        chosen = [line for line in lines if any(_matches(line, row) for row in rows)]
    elif profile == "quick":
        chosen = [line for line in lines if line.quick]
    else:
        chosen = lines
    return [with_profile(line, profile) for line in chosen]


def _lines_of(papers: Sequence[str], table: str | None) -> list[Line]:
    """The lines of some papers, of one table or of all."""
    tables = [one for name in papers for one in paper(name).tables]
    found = tables
    if table is not None:
        found = [one for one in tables if table in (one.name, one.name.rstrip("abcd"))]
    if not found:
        names = ", ".join(dict.fromkeys(one.name for one in tables))
        raise ConfigError("unknown-choice", "--table", got=table, allowed=f"one of {names}")
    return [line for one in found for line in one.lines]


def _matches(line: Line, row: str) -> bool:
    return fnmatchcase(line.name, row) or line.name.split("/")[0] == row


def with_profile(line: Line, profile: Profile) -> Line:
    """The line as printed, or as the quick profile runs it: with fewer rounds, and the changes that the
    paper's file names."""
    if profile == "full" or line.compute or line.tables is None:
        return line
    quick = line.shortcut
    against = None
    if line.against is not None:
        against = _shortened(line, line.against)
    return replace(
        line,
        tables=_shortened(line, line.tables),
        against=against,
        until=min(line.until, quick.get("rounds", line.until)),
        seconds=line.seconds * quick.get("speed", 1.0),
        notes=(*line.notes, *quick.get("notes", ())),
    )


def _shortened(line: Line, tables: Tables) -> Tables:
    """A configuration of a line as the quick profile runs it."""
    quick = line.shortcut
    # A line of few rounds in print does not get more of them.
    rounds = min(quick.get("rounds", line.full_rounds), line.full_rounds)
    found = overlay(tables, {"train": {"rounds": rounds}})
    parts = read_toml(line.paper)["part"]
    for part in quick.get("parts", ()):
        found = overlay(found, parts[part])
    return found

"""The page of a reproduction, Markdown and self-contained HTML: paper, ours, difference, and what
is different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.report.charts.accuracy import accuracy_chart
from coterie.report.render import render
from coterie.report.view import RunView
from coterie.runs.store import RunFolder
from coterie.studies.reproduce.running import Outcome
from coterie.studies.reproduce.tables import Line, Paper, Profile, Table, paper

COLUMNS = ["line", "paper", "ours", "difference", "last ten", "rounds", "notes"]
Section = dict[str, Any]


def write(
    out: Path, outcomes: Sequence[Outcome], profile: Profile, seeds: Sequence[int]
) -> tuple[Path, Path]:
    """Write ``reproduce.md`` and ``reproduce.html``; returns their paths.

    Args:
        out: folder, made if need be.
        outcomes: of the lines, in their order.
        profile: which.
        seeds: which were asked for.
    """
    out.mkdir(parents=True, exist_ok=True)
    text = out / "reproduce.md"
    page = out / "reproduce.html"
    parts = [(p, [*_tables(p, outcomes)]) for p in _papers(outcomes)]
    text.write_text(_markdown(outcomes, parts, _intro(profile, seeds)), encoding="utf-8")
    sections = [section for p, tables in parts for section in _sections(p, tables)]
    facts = [
        ("lines", str(len(outcomes))),
        ("with a value", str(sum(bool(o.values) for o in outcomes))),
    ]
    html = render(
        "Coterie: the papers' tables", headline(outcomes), _intro(profile, seeds), facts, sections
    )
    page.write_text(html, encoding="utf-8")
    return text, page


def headline(outcomes: Sequence[Outcome]) -> str:
    """The result in words.

    Example:
        >>> headline([])
        'Nothing is run yet'
    """
    near = [
        abs(o.difference) for o in outcomes if o.difference is not None and o.line.unit == "percent"
    ]
    if not near:
        done = sum(bool(o.values) for o in outcomes)
        if done:
            return f"{done} of {len(outcomes)} lines have a value"
        return "Nothing is run yet"
    return f"{sum(d <= 2 for d in near)} of {len(near)} accuracies are within 2 points of print"


def _intro(profile: Profile, seeds: Sequence[int]) -> str:
    shown = "seed" if len(seeds) == 1 else "seeds"
    said = f"Profile {profile}, {shown} {', '.join(map(str, seeds))}. Accuracies in percent; ours is the mean over seeds "
    said += "with their standard deviation, the difference is ours less the paper's."
    short = " Fewer rounds than in print: a look at whether it goes the right way, no reproduction."
    return said + (short if profile == "quick" else "")


def _papers(outcomes: Iterable[Outcome]) -> list[Paper]:
    return [paper(name) for name in dict.fromkeys(o.line.paper for o in outcomes)]


def _tables(of: Paper, outcomes: Sequence[Outcome]) -> Iterable[tuple[Table, list[Outcome]]]:
    for table in of.tables:
        found = [o for o in outcomes if (o.line.paper, o.line.table) == (of.name, table.name)]
        if found:
            yield table, found


# --- cells ----------------------------------------------------------------------------------------


def number(value: float | None, line: Line) -> str:
    """A value in its line's unit, ``-`` for none."""
    if value is None:
        return "-"
    if line.unit == "count":
        if float(value).is_integer():
            return f"{value:,.0f}"
        return f"{value:,.1f}"
    if line.unit == "number":
        if abs(value) >= 10:
            return f"{value:,.1f}"
        return f"{value:.3g}"
    if line.unit == "ratio":
        return f"{value:.2f}"
    return f"{value:.1f}"


def cells(outcome: Outcome) -> list[str]:
    """A row of the page as text: see `COLUMNS`."""
    line = outcome.line
    printed = number(line.printed, line) + (
        "" if line.printed_std is None else f" ± {line.printed_std:g}"
    )
    ours = number(outcome.mean, line)
    ours += f" ± {number(outcome.spread, line)}" if outcome.spread is not None else ""
    gap = "-" if outcome.difference is None else _signed(number(outcome.difference, line))
    accuracy = line.metric in ("max", "median") and line.how == "value"
    last = (
        f"{sum(outcome.last10) / len(outcome.last10):.1f}" if accuracy and outcome.last10 else "-"
    )
    rounds = "-" if not outcome.rounds else f"{outcome.rounds} of {line.full_rounds}"
    said = [*dict.fromkeys(line.notes), *([outcome.problem] if outcome.problem else [])]
    said += ["computed"] if line.compute and outcome.values else []
    return [line.name, printed, ours, gap, last, rounds, ", ".join(said)]


def _signed(text: str) -> str:
    if text.startswith("-"):
        return text
    return f"+{text}"


def _note(table: Table, found: Sequence[Outcome]) -> str:
    rest = len(table.lines) - len(found)
    said = f"Notes: {', '.join(table.notes)}." if table.notes else ""
    return said + (f" {rest} more lines are not asked for here." if rest else "")


def _notes(of: Paper, tables: Sequence[tuple[Table, list[Outcome]]]) -> list[tuple[str, str]]:
    """The notes that are referred to, in the paper's order."""
    used = {
        key
        for table, found in tables
        for key in (*table.notes, *(k for o in found for k in o.line.notes))
    }
    return [(key, text) for key, text in of.notes.items() if key in used]


# --- Markdown -------------------------------------------------------------------------------------


def _markdown(
    outcomes: Sequence[Outcome], parts: Sequence[tuple[Paper, list[Any]]], intro: str
) -> str:
    lines = ["# The papers' tables", "", f"{headline(outcomes)}. {intro}", ""]
    for of, tables in parts:
        lines += [f"## {of.title}", ""]
        for table, found in tables:
            lines += [f"### {table.name}: {table.title}", ""]
            lines += [_note(table, found).strip(), ""] if _note(table, found) else []
            lines += [_row(COLUMNS), _row(["---", *["---:"] * 5, "---"])]
            lines += [*(_row(cells(o)) for o in found), ""]
        lines += [f"- **{key}**: {text}" for key, text in _notes(of, tables)]
        lines += [
            "",
            "Left out:",
            "",
            *(f"- {key}: {text}" for key, text in of.left_out.items()),
        ] * bool(of.left_out)
        lines += [""]
    return "\n".join(lines)


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


# --- HTML -----------------------------------------------------------------------------------------


def _sections(of: Paper, tables: Sequence[tuple[Table, list[Outcome]]]) -> list[Section]:
    sections: list[Section] = []
    for table, found in tables:
        rows = [
            [(text, "figure") if 0 < i < 6 else text for i, text in enumerate(cells(o))]
            for o in found
        ]
        title = f"{of.title}, {_called(table)}"
        note = f"{table.title}. {_note(table, found)}".strip()
        sections.append({"title": title, "note": note, "columns": COLUMNS, "rows": rows})
        drawn = _curves(of, table, found) if table.curves else []
        if drawn:
            sections.append(
                {"title": f"{title}: accuracy by round", "note": "First seed.", "charts": drawn}
            )
    notes = [[key, text] for key, text in _notes(of, tables)]
    if notes:
        sections.append(
            _listing(f"{of.title}: notes", "What differs from the paper.", "note", notes)
        )
    rest = [[key, text] for key, text in of.left_out.items()]
    if rest:
        sections.append(
            _listing(f"{of.title}: left out", "What has no line, and why.", "what", rest)
        )
    return sections


def _listing(title: str, note: str, first: str, rows: list[list[str]]) -> Section:
    return {"title": title, "note": note, "columns": [first, ""], "rows": rows}


def _called(table: Table) -> str:
    if table.name.startswith("fig"):
        return f"Fig. {table.name.removeprefix('fig')}"
    return f"Table {table.name}"


def _curves(of: Paper, table: Table, found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A chart of the runs of each row, each run once."""
    rows: dict[str, dict[Path, str]] = {}
    for o in (o for o in found if o.folders):
        row, column = o.line.name.split("/")
        rows.setdefault(row, {}).setdefault(o.folders[0], column)
    drawn = []
    for at, (row, runs) in enumerate(rows.items()):
        views = [
            RunView(name, RunFolder(path).rows(), np.zeros(1, np.int64), ("",))
            for path, name in runs.items()
        ]
        if any(view.accuracies for view in views):
            id = f"{of.name}-{table.name}-{at}"
            drawn.append({"id": id, "title": row, "spec": accuracy_chart(views)})
    return drawn

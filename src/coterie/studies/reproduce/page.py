"""The page of a reproduction, as Markdown and as self-contained HTML, and its results as data.

It shows what the paper prints, our value and the difference, with notes on what we do otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.files import markdown_lines, replace_file
from coterie.report.render import Chart, Section, render_page
from coterie.studies.reproduce.outcome import COLUMNS, Outcome, outcome_row, outcomes_headline
from coterie.studies.reproduce.panels import panels_of
from coterie.studies.reproduce.papers import Paper, PaperTable, Profile
from coterie.studies.reproduce.tables import paper

FILE = "reproduce.json"


@dataclass(frozen=True)
class _Part:
    """A table of a paper with the results of the lines that were chosen."""

    table: PaperTable
    outcomes: Sequence[Outcome]

    @property
    def note(self) -> str:
        """Which notes concern the whole table, and how many of its lines were not chosen."""
        texts = []
        if self.table.notes:
            texts.append(f"Notes: {', '.join(self.table.notes)}.")
        rest = len(self.table.lines) - len(self.outcomes)
        if rest:
            texts.append(f"{rest} more lines were not chosen.")
        return " ".join(texts)


@dataclass(frozen=True)
class _PaperPart:
    """A paper with the parts that have results."""

    of: Paper
    parts: Sequence[_Part]

    @classmethod
    def find(cls, name: str, outcomes: Sequence[Outcome]) -> _PaperPart:
        of = paper(name)
        parts = []
        for table in of.tables:
            key = (name, table.name)
            found = [one for one in outcomes if (one.line.paper, one.line.table) == key]
            if found:
                parts.append(_Part(table, found))
        return cls(of, parts)

    @property
    def notes(self) -> list[tuple[str, str]]:
        """The notes that are referred to, in the paper's order."""
        used: set[str] = set()
        for part in self.parts:
            used.update(part.table.notes)
            for outcome in part.outcomes:
                used.update(outcome.line.notes)
        return [(key, text) for key, text in self.of.notes.items() if key in used]


def write_reproduction(
    out: Path, outcomes: Sequence[Outcome], profile: Profile, seeds: Sequence[int]
) -> tuple[Path, Path]:
    """Write ``reproduce.md`` and ``reproduce.html``, and ``reproduce.json`` with what is known of every
    line, seed by seed; returns the paths of the first two."""
    out.mkdir(parents=True, exist_ok=True)
    markdown = out / "reproduce.md"
    html = out / "reproduce.html"
    names = dict.fromkeys(outcome.line.paper for outcome in outcomes)
    papers = [_PaperPart.find(name, outcomes) for name in names]
    intro = _intro(profile, seeds, outcomes)
    markdown.write_text(_markdown(outcomes, papers, intro), encoding="utf-8")
    html.write_text(_html(outcomes, papers, intro), encoding="utf-8")
    content = {
        "profile": profile,
        "seeds": list(seeds),
        "lines": [_record(outcome) for outcome in outcomes],
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(out / FILE, text.encode())
    return markdown, html


def _intro(profile: Profile, seeds: Sequence[int], outcomes: Sequence[Outcome]) -> str:
    text = (
        f"Profile {profile}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}. Accuracies are in percent. Ours "
        "is the mean over seeds with its standard deviation, and the difference is ours minus "
        "the paper's."
    )
    if any(outcome.line.seeds for outcome in outcomes):
        text += " Lines with seeds in their notes use those."
    if profile == "quick":
        text += (
            " These are fewer rounds than in the paper: they check the direction, but do not "
            "reproduce the values."
        )
    return text


def _record(outcome: Outcome) -> dict[str, Any]:
    line = outcome.line
    return {
        "paper": line.paper,
        "table": line.table,
        "line": line.name,
        "unit": line.unit,
        "metric": line.metric or line.compute,
        "how": line.how,
        "printed": line.printed,
        "place": line.place,
        "values": outcome.values,
        "seeds": outcome.seeds,
        "last10": outcome.last10,
        "rounds": outcome.rounds,
        "full_rounds": line.full_rounds,
        "notes": line.notes,
        "problem": outcome.problem,
    }


def _markdown(outcomes: Sequence[Outcome], papers: Sequence[_PaperPart], intro: str) -> str:
    lines = ["# The papers' tables", "", f"{outcomes_headline(outcomes)}. {intro}", ""]
    for one in papers:
        lines += [f"## {one.of.title}", ""]
        for part in one.parts:
            lines += [f"### {part.table.name}: {part.table.title}", ""]
            if part.note:
                lines += [part.note, ""]
            rows = [outcome_row(outcome) for outcome in part.outcomes]
            lines += [*markdown_lines(COLUMNS, rows, "lrrrrrl"), ""]
        lines += [f"- **{key}**: {text}" for key, text in one.notes]
        if one.of.left_out:
            lines += ["", "Left out:", ""]
            lines += [f"- {key}: {text}" for key, text in one.of.left_out.items()]
        lines.append("")
    return "\n".join(lines)


def _html(outcomes: Sequence[Outcome], papers: Sequence[_PaperPart], intro: str) -> str:
    sections: list[Section] = []
    for one in papers:
        for part in one.parts:
            sections += _table_sections(one.of, part)
        sections += [
            *_listing(f"{one.of.title}: notes", "Differences from the paper.", "note", one.notes),
            *_listing(
                f"{one.of.title}: left out",
                "Values without a line, with the reason.",
                "what",
                list(one.of.left_out.items()),
            ),
        ]
    known = sum(bool(outcome.values) for outcome in outcomes)
    facts = [("lines", str(len(outcomes))), ("with a value", str(known))]
    title = "Coterie: the papers' tables"
    return render_page(title, outcomes_headline(outcomes), intro, facts, sections)


def _table_sections(of: Paper, part: _Part) -> list[Section]:
    """A table, and its curves if it has any."""
    name = f"Table {part.table.name}"
    if part.table.name.startswith("fig"):
        name = f"Fig. {part.table.name.removeprefix('fig')}"
    title = f"{of.title}, {name}"
    rows = []
    for outcome in part.outcomes:
        first, *figures, notes = outcome_row(outcome)
        rows.append([first, *((text, "figure") for text in figures), (notes, "text")])
    *names, last = COLUMNS
    note = f"{part.table.title}. {part.note}".strip()
    columns = [*names, (last, "text")]
    sections: list[Section] = [{"title": title, "note": note, "columns": columns, "rows": rows}]
    panels = panels_of(part.table, part.outcomes)
    if panels:
        # What curves, bars, cells and points stand for, of those that there are.
        drawn = " ".join(dict.fromkeys(panel.note for panel in panels))
        charts: list[Chart] = [
            {"id": f"{of.name}-{part.table.name}-{n}", "title": one.title, "spec": one.spec()}
            for n, one in enumerate(panels)
        ]
        sections.append({"title": f"{title}: drawn", "note": drawn, "charts": charts})
    return sections


def _listing(title: str, note: str, first: str, rows: Sequence[tuple[str, str]]) -> list[Section]:
    """A section of names and texts; none without rows."""
    if not rows:
        return []
    cells = [[name, (text, "text")] for name, text in rows]
    return [{"title": title, "note": note, "columns": [first, ("", "text")], "rows": cells}]

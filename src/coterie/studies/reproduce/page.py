"""The page of a reproduction, as Markdown and as self-contained HTML, and its results as data.

It shows what the paper prints, our value and the difference, with notes on what we do otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.files import replace_file
from coterie.report.render import render_page
from coterie.report.section import Chart, Section
from coterie.studies.reproduce.outcome import COLUMNS, Outcome, outcome_row, outcomes_headline
from coterie.studies.reproduce.panel_charts import panel_chart
from coterie.studies.reproduce.panels import (
    BarPanel,
    CurvePanel,
    DistancePanel,
    GridPanel,
    Panel,
    ScatterPanel,
    panels_of,
)
from coterie.studies.reproduce.papers import Paper, PaperTable, Profile
from coterie.studies.reproduce.tables import paper


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


def write_reproduction(
    out: Path, outcomes: Sequence[Outcome], profile: Profile, seeds: Sequence[int]
) -> tuple[Path, Path]:
    """Write ``reproduce.md`` and ``reproduce.html``, and the same as data; returns the paths of the
    first two."""
    out.mkdir(parents=True, exist_ok=True)
    markdown = out / "reproduce.md"
    html = out / "reproduce.html"
    names = dict.fromkeys(outcome.line.paper for outcome in outcomes)
    papers = {name: list(_parts(paper(name), outcomes)) for name in names}
    intro = _intro(profile, seeds, outcomes)
    markdown.write_text(_markdown(outcomes, papers, intro), encoding="utf-8")
    html.write_text(_html(outcomes, papers, intro), encoding="utf-8")
    write_results_file(out, outcomes, profile, seeds)
    return markdown, html


def _intro(profile: Profile, seeds: Sequence[int], outcomes: Sequence[Outcome]) -> str:
    word = "seeds"
    if len(seeds) == 1:
        word = "seed"
    text = (
        f"Profile {profile}, {word} {', '.join(map(str, seeds))}. Accuracies are in percent. Ours "
        "is the mean over seeds with its standard deviation, and the difference is ours less the "
        "paper's."
    )
    if any(outcome.line.seeds for outcome in outcomes):
        text += " Lines whose notes name seeds have these."
    if profile == "quick":
        text += " These are fewer rounds than in print: a check of the direction, no reproduction."
    return text


def _parts(of: Paper, outcomes: Sequence[Outcome]) -> Iterator[_Part]:
    """The tables of a paper that have results."""
    for table in of.tables:
        key = (of.name, table.name)
        found = [one for one in outcomes if (one.line.paper, one.line.table) == key]
        if found:
            yield _Part(table, found)


def _notes(of: Paper, parts: Sequence[_Part]) -> list[tuple[str, str]]:
    """The notes that are referred to, in the paper's order."""
    used: set[str] = set()
    for part in parts:
        used.update(part.table.notes)
        for outcome in part.outcomes:
            used.update(outcome.line.notes)
    return [(key, text) for key, text in of.notes.items() if key in used]


# --- Markdown -------------------------------------------------------------------------------------


def _markdown(
    outcomes: Sequence[Outcome], papers: Mapping[str, Sequence[_Part]], intro: str
) -> str:
    lines = ["# The papers' tables", "", f"{outcomes_headline(outcomes)}. {intro}", ""]
    for name, parts in papers.items():
        of = paper(name)
        lines += [f"## {of.title}", ""]
        for part in parts:
            lines += _markdown_table(part)
        lines += [f"- **{key}**: {text}" for key, text in _notes(of, parts)]
        if of.left_out:
            lines += ["", "Left out:", ""]
            lines += [f"- {key}: {text}" for key, text in of.left_out.items()]
        lines.append("")
    return "\n".join(lines)


def _markdown_table(part: _Part) -> list[str]:
    lines = [f"### {part.table.name}: {part.table.title}", ""]
    if part.note:
        lines += [part.note, ""]
    lines += [_markdown_row(COLUMNS), _markdown_row(["---", *["---:"] * 5, "---"])]
    lines += [_markdown_row(outcome_row(outcome)) for outcome in part.outcomes]
    return [*lines, ""]


def _markdown_row(texts: Sequence[str]) -> str:
    safe = [text.replace("|", "\\|").replace("\n", " ") for text in texts]
    return f"| {' | '.join(safe)} |"


# --- HTML -----------------------------------------------------------------------------------------


def _html(outcomes: Sequence[Outcome], papers: Mapping[str, Sequence[_Part]], intro: str) -> str:
    sections: list[Section] = []
    for name, parts in papers.items():
        of = paper(name)
        for part in parts:
            sections += _table_sections(of, part)
        sections += _note_sections(of, parts)
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
    columns = [*names, (last, "text")]
    note = f"{part.table.title}. {part.note}".strip()
    sections: list[Section] = [{"title": title, "note": note, "columns": columns, "rows": rows}]
    panels = panels_of(part.table, part.outcomes)
    if panels:
        charts = _charts(f"{of.name}-{part.table.name}", panels)
        sections.append({"title": f"{title}: drawn", "note": _drawn_note(panels), "charts": charts})
    return sections


def _note_sections(of: Paper, parts: Sequence[_Part]) -> list[Section]:
    """The paper's notes, and what of it has no line."""
    sections: list[Section] = []
    notes = _notes(of, parts)
    if notes:
        title = f"{of.title}: notes"
        sections.append(_listing(title, "What differs from the paper.", "note", notes))
    if of.left_out:
        title = f"{of.title}: left out"
        left_out = list(of.left_out.items())
        sections.append(_listing(title, "What has no line, and why.", "what", left_out))
    return sections


def _listing(title: str, note: str, first: str, rows: Sequence[tuple[str, str]]) -> Section:
    cells = [[name, (text, "text")] for name, text in rows]
    return {"title": title, "note": note, "columns": [first, ("", "text")], "rows": cells}


def _drawn_note(panels: Sequence[Panel]) -> str:
    """What curves, bars, cells and points stand for, of those that there are."""
    sentences = []
    if any(isinstance(panel, CurvePanel) for panel in panels):
        sentences.append(
            "Each curve is the mean over the seeds, in a band from the lowest to the highest."
        )
    if any(isinstance(panel, BarPanel) for panel in panels):
        sentences.append("Each bar is the mean over the seeds.")
    if any(isinstance(panel, GridPanel) for panel in panels):
        sentences.append("Each cell is the mean over the seeds; darker is more.")
    if any(isinstance(panel, ScatterPanel) for panel in panels):
        sentences.append("Each point is a pair of clients.")
    if any(isinstance(panel, DistancePanel) for panel in panels):
        sentences.append(
            "Each cell is the distance of two clients' weights. The strips at the top and at the "
            "left are the groups of clients with the same labels."
        )
    return " ".join(sentences)


def _charts(name: str, panels: Sequence[Panel]) -> list[Chart]:
    """The charts of a table's panels."""
    return [
        {"id": f"{name}-{number}", "title": panel.title, "spec": panel_chart(panel)}
        for number, panel in enumerate(panels)
    ]


# --- data for other programs ----------------------------------------------------------------------

FILE = "reproduce.json"


def write_results_file(
    out: Path, outcomes: Sequence[Outcome], profile: Profile, seeds: Sequence[int]
) -> Path:
    """Write ``reproduce.json``: what is known of every line, seed by seed; returns its path."""
    content = {
        "profile": profile,
        "seeds": list(seeds),
        "lines": [_line(outcome) for outcome in outcomes],
    }
    path = out / FILE
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())
    return path


def _line(outcome: Outcome) -> dict[str, Any]:
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

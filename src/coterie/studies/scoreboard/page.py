"""The page of a scoreboard, as Markdown and as self-contained HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coterie.files import escape_cell, markdown_lines, replace_file
from coterie.report.render import Chart, Section, render_page
from coterie.studies.scoreboard.charts import curve_sections, rank_chart
from coterie.studies.scoreboard.figures import SuiteFigures
from coterie.studies.scoreboard.running import DEFAULTS, TUNED
from coterie.studies.scoreboard.suite import BASELINE
from coterie.studies.scoreboard.tables import (
    cost_table,
    planted_groups_table,
    rank_table,
    refusals,
    score_table,
    settings_table,
)

RULES = (
    "All methods have the same clients, first model, cohorts, local epochs and seeds. Defaults: "
    "each method as in its paper, with the number of planted groups if it needs one, and with the "
    "options that the suite sets for all federations. Scores are means over the seeds with their standard deviation."
)


def write_scoreboard(
    out: Path, figures: SuiteFigures, versions: Mapping[str, str]
) -> tuple[Path, Path]:
    """Write ``scoreboard.md`` and ``scoreboard.html``; returns their paths."""
    text = out / "scoreboard.md"
    html = out / "scoreboard.html"
    replace_file(text, markdown(figures).encode())
    replace_file(html, _html(figures, versions).encode())
    return text, html


def result_sentence(figures: SuiteFigures) -> str:
    """The result in a sentence."""
    ranking = figures.ranking(DEFAULTS, "equal_work")
    if ranking is None:
        return "Fewer than two methods were run on every federation"
    least = min(ranking.ranks.values())
    best = [name for name, value in ranking.ranks.items() if value == least]
    others = [name for name in ranking.ranks if name not in best]
    has = "has" if len(best) == 1 else "share"
    found = f"{' and '.join(best)} {has} the best mean rank, {least:.1f}"
    if BASELINE in others:
        found += f", and {BASELINE} has {ranking.ranks[BASELINE]:.1f}"
    critical = ranking.critical
    if critical is None:
        return found
    alike = sum(ranking.ranks[name] - least < critical for name in others)
    if alike:
        found += f"; {alike} of the others cannot be told apart from it by the ranks alone"
    return found


def tables(figures: SuiteFigures) -> list[Section]:
    """All tables, in the order of the page."""
    found = [rank_table(figures), score_table(figures, DEFAULTS, "equal_work")]
    if figures.tuned:
        found.append(score_table(figures, TUNED, "equal_work"))
    found += [
        score_table(figures, DEFAULTS, "equal_bytes"),
        planted_groups_table(figures),
        cost_table(figures),
    ]
    if any(entry["trials"] for entry in figures.entries):
        found.append(settings_table(figures))
    return found


def _federation_rows(figures: SuiteFigures) -> list[list[str]]:
    scored = {
        "served": "clients that train, last round",
        "unseen": "clients that never train, last round",
        "course": "clients that train, mean over all rounds whatever was spent",
    }
    return [
        [one.name, one.title, one.differ, str(one.groups or "-"), scored[one.score]]
        for one in figures.suite.federations
    ]


FEDERATION_COLUMNS = ["federation", "clients", "differ in", "planted groups", "scored"]


def _intro(figures: SuiteFigures) -> str:
    seeds = ", ".join(map(str, figures.suite.seeds))
    return f"{figures.suite.title}. Seeds {seeds}. {RULES}"


# --- Markdown -------------------------------------------------------------------------------------


def markdown(figures: SuiteFigures) -> str:
    """The page as Markdown."""
    lines = [f"# Scoreboard: {figures.suite.name}", "", f"{result_sentence(figures)}.", ""]
    federations = markdown_lines(FEDERATION_COLUMNS, _federation_rows(figures))
    lines += [_intro(figures), "", *federations, ""]
    for table in tables(figures):
        lines += [f"## {table['title']}", "", table["note"], ""]
        lines += [*markdown_lines(table["columns"], table["rows"]), ""]
    refused = refusals(figures)
    if refused:
        told = [f"- {escape_cell(name)}: {escape_cell(why)}" for name, why in refused]
        lines += ["## Not run", "", *told, ""]
    return "\n".join(lines)


# --- HTML -----------------------------------------------------------------------------------------


def _html(figures: SuiteFigures, versions: Mapping[str, str]) -> str:
    sections = tables(figures)
    ranking = figures.ranking(DEFAULTS, "equal_work")
    if ranking is not None:
        note = "Too few methods or federations for a test of their differences."
        if ranking.critical is not None:
            note = "Two methods differ, at the level of 5 %, if their bars do not overlap."
        chart: Chart = {"id": "ranks", "spec": rank_chart(ranking)}
        sections.insert(1, {"title": "Ranks, drawn", "note": note, "charts": [chart]})
    sections += curve_sections(figures)
    sections.insert(0, _federations(figures))
    refused = refusals(figures)
    if refused:
        rows = [[name, (why, "text")] for name, why in refused]
        columns = ["what", ("why", "text")]
        note = "Methods without a score, with the reason."
        sections.append({"title": "Not run", "note": note, "columns": columns, "rows": rows})
    facts = [
        ("federations", str(len(figures.suite.federations))),
        ("methods", str(len(figures.methods))),
        *versions.items(),
    ]
    title = f"Coterie scoreboard: {figures.suite.name}"
    return render_page(title, result_sentence(figures), _intro(figures), facts, sections)


def _federations(figures: SuiteFigures) -> Section:
    return {
        "title": "Federations",
        "note": "Whom the methods are compared on.",
        "columns": [FEDERATION_COLUMNS[0], *((name, "text") for name in FEDERATION_COLUMNS[1:])],
        "rows": [
            [first, *((text, "text") for text in others)]
            for first, *others in _federation_rows(figures)
        ],
    }

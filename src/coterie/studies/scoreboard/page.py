"""The page of a scoreboard, as Markdown and as self-contained HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import altair as alt
import pandas as pd

from coterie.files import escape_cell, markdown_lines, replace_file
from coterie.headline import Headline
from coterie.report.figures.style import RUNS, Spec, colour_by, round_axis, to_spec
from coterie.report.render import Chart, Section, render_page
from coterie.studies.scoreboard.figures import Ranking, SuiteFigures
from coterie.studies.scoreboard.running import DEFAULTS, TUNED
from coterie.studies.scoreboard.suite import BASELINE, ORACLE, Federation
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
        reasons = [f"- {escape_cell(name)}: {escape_cell(why)}" for name, why in refused]
        lines += ["## Not run", "", *reasons, ""]
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


# --- charts ---------------------------------------------------------------------------------------


ROW = 18  # pixels for a method
RANK_TITLE = "mean rank, 1 is best"


def rank_chart(ranking: Ranking) -> Spec:
    """Mean ranks as points, each in a bar as wide as the critical difference where there is one."""
    names = list(ranking.ranks)
    half = (ranking.critical or 0.0) / 2
    rows = [
        {"method": name, "rank": rank, "from": rank - half, "to": rank + half}
        for name, rank in ranking.ranks.items()
    ]
    base = alt.Chart(pd.DataFrame(rows)).encode(alt.Y("method:N", sort=names, title=None))
    bars = base.mark_rule(opacity=0.35, strokeWidth=4)
    points = base.mark_point(filled=True, size=70, opacity=1)
    layers = [points.encode(alt.X("rank:Q", title=RANK_TITLE))]
    if half:
        layers.insert(0, bars.encode(alt.X("from:Q", title=RANK_TITLE), x2="to:Q"))
    return to_spec(alt.layer(*layers), ROW * len(names))


def curve_chart(
    curves: Mapping[str, Sequence[tuple[float, float]]], axis: alt.X, headline: Headline
) -> Spec:
    """Score against what was spent, the field ``spent`` of the axis; one line a method."""
    rows = [
        {"method": method, "spent": spent, "value": headline.scale * value}
        for method, points in curves.items()
        for spent, value in points
    ]
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(strokeWidth=1.5)
    return to_spec(
        lines.encode(
            axis,
            alt.Y("value:Q", title=headline.axis, scale=alt.Scale(zero=False)),
            colour_by("method", list(curves), RUNS, None),
        ),
        300,
    )


# --- curves ---------------------------------------------------------------------------------------

Spent = Literal["bytes", "seconds", "rounds"]

# With FedAvg and the oracle as many as there are colours.
BEST = 6
DRAWN = f"FedAvg, the oracle and the {BEST} methods that are best there at equal work"

NOTES: Mapping[Spent, str] = {
    "bytes": "The score against all bytes until then.",
    "seconds": "The score against the seconds until then, without evaluation, on the machine where it "
    "was run.",
    "rounds": "The score after each round where data drift, with the oracle known_groups, which "
    "knows who changes to what and when.",
}


def curve_sections(figures: SuiteFigures) -> list[Section]:
    """A section for each of what was spent."""
    seed = figures.suite.seeds[0]
    found: list[Section] = []
    kinds: tuple[Spent, ...] = ("bytes", "seconds", "rounds")
    for spent in kinds:
        charts = [
            chart
            for federation in figures.suite.federations
            if spent != "rounds" or federation.score == "course"
            for chart in _chart(figures, federation, spent)
        ]
        if charts:
            note = f"{NOTES[spent]} With defaults and seed {seed}; {DRAWN}."
            title = f"Score against {spent}"
            found.append({"title": title, "note": note, "charts": charts, "wide": True})
    return found


def _drawn(figures: SuiteFigures, federation: Federation) -> list[str]:
    """The methods with a curve. More would share colours."""
    scores = {
        method: figures.gain(federation, method, DEFAULTS, "equal_work")
        for method in figures.methods
        if method not in (BASELINE, ORACLE)
    }
    known = {method: score for method, score in scores.items() if score is not None}
    best = sorted(known, key=lambda method: known[method], reverse=True)[:BEST]
    return [method for method in (BASELINE, ORACLE, *best) if method in figures.methods]


def _chart(figures: SuiteFigures, federation: Federation, spent: Spent) -> Iterator[Chart]:
    """The chart of a federation; none where no method has a curve."""
    curves = {}
    for method in _drawn(figures, federation):
        entry = figures.entry(federation, method, DEFAULTS) or {"runs": ()}
        for run in entry["runs"]:
            points = _points(run, spent)
            if run["seed"] == figures.suite.seeds[0] and points:
                curves[method] = points
    if curves:
        spec = curve_chart(curves, _axis(spent), figures.headline(federation))
        yield {"id": f"{spent}-{federation.name}", "title": federation.title, "spec": spec}


def _points(run: Mapping[str, Any], spent: Spent) -> list[tuple[float, float]]:
    """The points of a run; what spends nothing has no place on a logarithmic axis."""
    course = run["course"]
    if spent == "rounds":
        return [(at + 1, value) for at, _, _, value in course]
    if spent == "seconds":
        times = run["seconds"]["course"]
        return [(time, value) for time, (_, _, _, value) in zip(times, course, strict=True)]
    return [(moved / 1e6, value) for _, _, moved, value in course if moved > 0]


def _axis(spent: Spent) -> alt.X:
    if spent == "rounds":
        return round_axis("spent:Q")
    title = "MB down and up" if spent == "bytes" else "seconds"
    return alt.X("spent:Q", title=f"{title} (logarithmic)", scale=alt.Scale(type="log"))

"""The curves of a scoreboard's page: scores against bytes, against time, and over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import altair as alt

from coterie.report.charts.style import round_axis
from coterie.report.section import Chart, Section
from coterie.studies.scoreboard.charts import curve_chart
from coterie.studies.scoreboard.figures import SuiteFigures
from coterie.studies.scoreboard.running import DEFAULTS
from coterie.studies.scoreboard.suite import BASELINE, ORACLE, Federation

Spent = Literal["bytes", "seconds", "rounds"]

# With FedAvg and the oracle as many as there are colours.
BEST = 6
DRAWN = f"FedAvg, the oracle and the {BEST} methods that are best there at equal work"

NOTES: Mapping[Spent, str] = {
    "bytes": "The score against all bytes until then.",
    "seconds": "The score against the seconds until then, without evaluation, on the machine where it "
    "was run.",
    "rounds": "The score after each round where data drift, beside the oracle known_groups, which "
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
        entry = figures.entry(federation, method, DEFAULTS)
        runs = entry["runs"] if entry else []
        of_seed = [run for run in runs if run["seed"] == figures.suite.seeds[0]]
        points = _points(of_seed[0], spent) if of_seed else []
        if points:
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

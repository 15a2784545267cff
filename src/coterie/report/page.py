"""One self-contained HTML page of some runs: works offline, runs no script but its own, light and dark."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from coterie.report import charts, courses
from coterie.report.trees import Tree, dendrogram, heat_map
from coterie.report.view import RunView, agreement, headline, placements
from coterie.terminal import percent

MIX_NOTE = (
    "Which labels the training samples of each group's clients carry. Where the mixes are alike, the groups differ in "
    "something else than their labels."
)
AGREEMENT_NOTE = "How well the groups found agree with those that were planted, by round; 0 is what chance gives."
SHIFT_NOTE = "Clients by round: whose data changed, and what the method made of it. Ticks tell when a shift came."
THEORY_NOTE = (
    "Mean distance of a client's gradient from that of its group (FedGroup, definition 2): the smaller, the better the "
    "group's model suits its clients."
)
TREE_NOTE = "Two clients meet at the height of their distance; colour is the group, grey joins several."
NEAR_NOTE = "Distances between clients, in the order of the tree above; the strips tell the group of each."
PRINT = {
    "view": {"stroke": "transparent"},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
    "legend": {"orient": "bottom", "titleFontWeight": "normal", "columns": 8},
}
Section = dict[str, Any]
__all__ = ["RunView", "headline", "write_figures", "write_page"]


def write_page(path: Path | str, runs: Sequence[RunView], title: str = "Coterie", intro: str = "") -> Path:
    """Write the page of some runs over the same clients.

    Names of runs, clients and labels are escaped. The page loads nothing: data, charts and the Vega libraries are in
    it, and its content security policy allows only its own two scripts, by their hashes.

    Args:
        path: the file to write; its folder is made.
        runs: what to show; charts for which a run has no data are left out.
        title: title of the page.
        intro: a sentence or two under the headline.

    Returns:
        The path.

    Example:
        >>> import tempfile
        >>> run = RunView("FedAvg", [{"round": 0, "accuracy": 0.5}], np.zeros(2, int), ("a", "b"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     "FedAvg reached 50.0 %" in write_page(Path(folder) / "page.html", [run]).read_text(encoding="utf-8")
        True
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page_of(runs, title, intro), encoding="utf-8")
    return target


def page_of(runs: Sequence[RunView], title: str = "Coterie", intro: str = "") -> str:
    """The page of some runs as text; see `write_page`."""
    return render(title, headline(runs), intro, _facts(runs), sections(list(runs)))


def render(
    title: str, headline: str, intro: str, facts: Sequence[tuple[str, str]], sections: Sequence[Mapping[str, Any]]
) -> str:
    """A page as text.

    Args:
        title: of the page.
        headline: the result in words.
        intro: a sentence or two under the headline, or none.
        facts: figures under it: name and value.
        sections: each with ``title`` and ``note``, and either ``charts`` (each with ``id``, ``spec``, and a ``title``
            where there are several) or a table: ``columns`` and ``rows``. A cell is text, or text and a class.
    """
    library, draw = _library(), _template("draw.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            headline=headline,
            intro=intro,
            facts=facts,
            sections=sections,
            specs={chart["id"]: chart["spec"] for section in sections for chart in section.get("charts", ())},
            library=library,
            draw=draw,
            hashes=[_sha256(library), _sha256(draw)],
        )
    )


def sections(runs: list[RunView]) -> list[Section]:
    """What the page of some runs shows, from top to bottom."""
    every: list[Section] = []
    if any(run.accuracies for run in runs):
        every.append(
            _section(
                "accuracy",
                "Accuracy by round",
                "Share of the clients' own test samples classified correctly by the model each client is served.",
                charts.accuracy_chart(runs),
            )
        )
    every += _charted("agreement", "Agreement with the planted groups", AGREEMENT_NOTE, courses.agreement_chart(runs))
    for at, run in enumerate(runs):
        every += _of_course(run, at)
        every += _of_groups(run, at) if run.count > 1 else []
    return [*every, _table(runs)]


def _of_course(run: RunView, at: int) -> list[Section]:
    """What happened from round to round."""
    shifts = _charted(f"shift-{at}", f"What changed under {run.name}", SHIFT_NOTE, courses.shift_chart(run))
    theory = courses.divergence_chart(run)
    return shifts + _charted(f"theory-{at}", f"How far gradients lie apart in {run.name}", _theory_note(run), theory)


def _of_groups(run: RunView, at: int) -> list[Section]:
    found: list[Section] = []
    tree = Tree.of(run.memory)
    if tree is not None and len(run.groups) > tree.leaves.max():
        merges = dendrogram(tree, run.groups, run.names)
        found.append(_section(f"tree-{at}", f"How {run.name} merged its clients", TREE_NOTE, merges))
    if found and tree is not None and tree.proximity is not None:
        names = [str(run.names[i]) for i in tree.leaves]
        near = heat_map(tree.proximity, tree.rows, run.groups[tree.leaves], names)
        found.append({**_section(f"near-{at}", f"Who is near whom in {run.name}", NEAR_NOTE, near), "square": True})
    if run.embedding is not None:
        found.append(
            _section(f"map-{at}", f"Who is alike: the clients of {run.name}", _map_note(run), charts.map_chart(run))
        )
    if run.histograms is not None:
        found.append(_section(f"mix-{at}", f"Label mix of the groups of {run.name}", MIX_NOTE, charts.mix_chart(run)))
    return [*found, _late(run)] if len(run.late) else found


def _late(run: RunView) -> Section:
    placed = placements(run)
    columns = ["client", "joined in round", "population", "placed in", "with its own"]
    rows = [[p["client"], _or_dash(p["round"]), _population(p["planted"]), *_place(p)] for p in placed]
    title = f"Where {run.name} placed the newcomers"
    return {"title": title, "note": _late_note(placed), "columns": columns, "rows": rows}


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def _population(number: int | None) -> str:
    return "-" if number is None else chr(ord("A") + number % 26)


def _place(placed: Mapping[str, Any]) -> tuple[Any, Any]:
    """Where a newcomer went, and whether that is right."""
    group, right = placed["group"], placed["right"]
    verdict = "-" if right is None else ("yes", "good") if right else ("no", "bad")
    return ("no group" if group is None else f"group {group}", "figure"), verdict


def _section(id: str, title: str, note: str, spec: charts.Spec) -> Section:
    return {"title": title, "note": note, "charts": [{"id": id, "spec": spec}]}


def _charted(id: str, title: str, note: str, spec: charts.Spec | None) -> list[Section]:
    return [] if spec is None else [_section(id, title, note, spec)]


def _theory_note(run: RunView) -> str:
    last: Mapping[str, Any] = next((row["theory"] for row in reversed(run.rounds) if row.get("theory")), {})
    if last.get("bound") is None or last.get("bound_one") is None:
        return THEORY_NOTE
    bounds = f"{last['bound']:.4g} with these groups, {last['bound_one']:.4g} as one group"
    return f"{THEORY_NOTE} The bound on the loss after the last round: {bounds}."


def _map_note(run: RunView) -> str:
    note = (
        "Each mark is a client, placed by the direction of its first update (EDC): near is alike. Colour is its group"
    )
    note += ", shape its planted population." if run.planted is not None else "."
    return note + (" Hollow marks are newcomers." if len(run.late) else "")


def _late_note(placed: Sequence[dict[str, Any]]) -> str:
    known = [p for p in placed if p["right"] is not None]
    if not known:
        return f"{len(placed)} clients came late."
    return f"{sum(p['right'] for p in known)} of {len(known)} were placed with the clients of their own population."


def _facts(runs: Sequence[RunView]) -> list[tuple[str, str]]:
    """Figures under the headline: name and value."""
    if not runs:
        return []
    facts = [("clients", str(runs[0].clients)), ("rounds", str(max(len(run.rounds) for run in runs)))]
    for run in (run for run in runs if run.count > 1):
        facts.append((f"groups that {run.name} found", str(run.count)))
        score = agreement(run)
        if score is not None:
            facts.append(
                (
                    f"agreement of {run.name}'s groups with the planted ones (adjusted Rand index, 1 = the same)",
                    f"{score:.2f}",
                )
            )
        known = [p["right"] for p in placements(run) if p["right"] is not None]
        if known:
            facts.append((f"newcomers that {run.name} placed with their own", f"{sum(known)} of {len(known)}"))
    return facts


def _table(runs: Sequence[RunView]) -> Section:
    note = (
        "Accuracy after the last round and at its best, the clients in each group, and the agreement of the groups "
        "with the planted populations."
    )
    columns = ["run", "final", "best", "rounds", "clients per group", "agreement", "time"]
    return {"title": "The runs", "note": note, "columns": columns, "rows": [_row(run) for run in runs]}


def _row(run: RunView) -> list[Any]:
    score = agreement(run) if run.count > 1 else None
    seconds = [row["seconds"]["total"] for row in run.rounds if "seconds" in row]
    sizes = np.bincount(run.groups[run.groups >= 0])
    return [
        run.name,
        (percent(run.final) if run.accuracies else "-", "figure"),
        (percent(max(run.accuracies)) if run.accuracies else "-", "figure"),
        str(len(run.rounds)),
        " + ".join(str(s) for s in sizes if s) or "-",
        f"{score:.2f}" if score is not None else "-",
        (f"{sum(seconds):.1f} s" if seconds else "-", "figure"),
    ]


def write_figures(folder: Path, runs: Sequence[RunView]) -> list[Path]:
    """Each chart of the page as a PNG file, drawn from the same specification; returns the paths."""
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for chart in (chart for section in sections(list(runs)) for chart in section.get("charts", ())):
        spec = {**chart["spec"], "width": 640, "background": "white", "config": PRINT}
        paths.append(folder / f"{chart['id']}.png")
        paths[-1].write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    return paths


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``; no network, no browser."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return _inline(str(vl_convert.javascript_bundle(_template("bundle.js"), vl_version=version)))


def _inline(script: str) -> str:
    """A script that can stand in an HTML script element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _template(name: str) -> str:
    return resources.files("coterie.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:
    import jinja2

    loader = jinja2.PackageLoader("coterie.report")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)

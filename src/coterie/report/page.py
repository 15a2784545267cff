"""One self-contained HTML page of some runs: works offline, runs no script but its own, light and dark."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from coterie.report import charts
from coterie.report.view import RunView, agreement, headline, placements
from coterie.terminal import percent

MIX_NOTE = (
    "Which labels the training samples of each group's clients carry. Where the mixes are alike, the groups differ in "
    "something else than their labels."
)
__all__ = ["RunView", "headline", "write_page"]


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
    target.write_text(render(runs, title, intro), encoding="utf-8")
    return target


def render(runs: Sequence[RunView], title: str = "Coterie", intro: str = "") -> str:
    """The page as text; see `write_page`."""
    sections = _sections(list(runs))
    library, draw = _library(), _template("draw.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            headline=headline(runs),
            intro=intro,
            facts=_facts(runs),
            sections=sections,
            runs=[_row(run) for run in runs],
            specs={s["id"]: s["spec"] for s in sections if "spec" in s},
            library=library,
            draw=draw,
            hashes=[_sha256(library), _sha256(draw)],
        )
    )


def _sections(runs: list[RunView]) -> list[dict[str, Any]]:
    every: list[dict[str, Any]] = []
    if any(run.rounds for run in runs):
        every.append(
            _section(
                "accuracy",
                "Accuracy by round",
                "Share of the clients' own test samples classified correctly by the model each client is served.",
                charts.accuracy_chart(runs),
            )
        )
    for at, run in enumerate(runs):
        every += _of_groups(run, at) if run.count > 1 else []
    return every


def _of_groups(run: RunView, at: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if run.embedding is not None:
        found.append(
            _section(f"map-{at}", f"Who is alike: the clients of {run.name}", _map_note(run), charts.map_chart(run))
        )
    if run.histograms is not None:
        found.append(
            _section(
                f"mix-{at}",
                f"Label mix of the groups of {run.name}",
                MIX_NOTE,
                charts.mix_chart(run),
            )
        )
    if len(run.late):
        placed = placements(run)
        found.append(
            {
                "id": f"late-{at}",
                "title": f"Where {run.name} placed the newcomers",
                "note": _late_note(placed),
                "placed": placed,
            }
        )
    return found


def _section(id: str, title: str, note: str, spec: charts.Spec) -> dict[str, Any]:
    return {"id": id, "title": title, "note": note, "spec": spec}


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


def _row(run: RunView) -> dict[str, str]:
    score = agreement(run) if run.count > 1 else None
    seconds = [row["seconds"]["total"] for row in run.rounds if "seconds" in row]
    sizes = np.bincount(run.groups[run.groups >= 0])
    return {
        "name": run.name,
        "final": percent(run.final) if run.rounds else "-",
        "best": percent(max(run.accuracies)) if run.rounds else "-",
        "rounds": str(len(run.rounds)),
        "groups": " + ".join(str(s) for s in sizes if s),
        "agreement": f"{score:.2f}" if score is not None else "-",
        "seconds": f"{sum(seconds):.1f} s" if seconds else "-",
    }


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

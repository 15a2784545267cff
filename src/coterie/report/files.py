"""The charts of a page as files: PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.config.wording import nearest
from coterie.errors import ConfigError
from coterie.files import refuse_unwritable_output
from coterie.report.figures.style import Spec, legend_columns
from coterie.report.sections import charts_of
from coterie.report.view import RunView

KINDS = ("png", "svg", "pdf")
WIDTH = 640  # pixels
SCALE = 2  # dots of a PNG per pixel


def write_chart(path: Path, runs: Sequence[RunView], name: str) -> Path:
    """Write one chart of the page of some runs as PNG, SVG or PDF. ``name`` is its ``id``; ``mix``
    is ``mix-0``, that of the first run."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in KINDS:
        endings = ", ".join(f".{kind}" for kind in KINDS)
        expected = f"a name that ends in {endings}"
        what = "unknown kind of file"
        raise ConfigError("unknown-choice", "--out", what, got=path.name, allowed=expected)
    specs = {chart["id"]: chart["spec"] for chart in charts_of(runs)}
    if name not in specs:
        name_of_first = f"{name}-0"
        if name_of_first not in specs:
            expected = f"one of {', '.join(specs) or 'none'}"
            what = "not a chart of this page"
            hint = nearest(name, list(specs))
            raise ConfigError("not-found", "--chart", what, got=name, allowed=expected, hint=hint)
        name = name_of_first
    data = draw(specs[name], kind)
    with refuse_unwritable_output("--out", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return path


def write_figures(folder: Path, runs: Sequence[RunView]) -> list[Path]:
    """Write each chart of the page as a PNG file, from the same specification; returns the
    paths."""
    paths = []
    with refuse_unwritable_output("--figures", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for chart in charts_of(runs):
            path = folder / f"{chart['id']}.png"
            path.write_bytes(draw(chart["spec"], "png"))
            paths.append(path)
    return paths


def draw(spec: Spec, kind: str) -> bytes:
    """A chart in a format of `KINDS`, dark on white, with legends that fit its width."""
    # Imported here: it brings a JavaScript engine, and pages draw their charts in the browser.
    import vl_convert

    config = {
        "view": {"stroke": "transparent"},
        "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
        "legend": {
            "orient": "bottom",
            "titleFontWeight": "normal",
            "columns": legend_columns(spec, WIDTH),
        },
    }
    # A specification without a theme takes the one of where it is drawn: in a file, of paper.
    whole = {**spec, "width": WIDTH, "background": "white", "config": config}
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(whole)).encode()
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(whole))
    return bytes(vl_convert.vegalite_to_png(whole, scale=SCALE))

"""One self-contained HTML page of some runs: works offline, runs no script but its own, light and
dark."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError
from coterie.report.colours import Spec, legend_columns, packed
from coterie.report.sections import Section, facts, sections
from coterie.report.series import headline, lead
from coterie.report.view import RunView

FILE_WIDTH = 640  # pixels of a chart in a file of its own
WHICH_ACCURACY = "Accuracies are those after the last evaluated round."
__all__ = ["RunView", "Section", "headline", "sections", "write_figures", "write_page"]


def write_page(
    path: Path | str, runs: Sequence[RunView], title: str = "Coterie", intro: str = ""
) -> Path:
    """Write the page of some runs over the same clients.

    Names of runs, clients and labels are escaped. The page loads nothing: data, charts and the Vega
    libraries are in it, and its content security policy allows only its own two scripts and its
    style, by their hashes.

    Args:
        path: the file to write; its folder is made.
        runs: what to show; charts for which a run has no data are left out.
        title: title of the page.
        intro: a sentence or two under the headline.

    Returns:
        The path.

    Raises:
        ConfigError: if it cannot be written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> run = RunView("FedAvg", [{"round": 0, "accuracy": 0.5}], np.zeros(2, int), ("a", "b"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_page(Path(folder) / "page.html", [run]).read_text(encoding="utf-8")
        >>> "FedAvg reached 50.0" in page
        True
    """
    target = Path(path)
    text = page_of(runs, title, intro)
    with writing("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
    return target


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Refuse what cannot be written in a line that names the option.

    Raises:
        ConfigError: if the file system does not let it be written.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{option}: cannot be written ({error.strerror}), got {path}; expected a path that can be made"
        ) from None


def page_of(runs: Sequence[RunView], title: str = "Coterie", intro: str = "") -> str:
    """The page of some runs as text; see `write_page`."""
    which = WHICH_ACCURACY if any(run.accuracies for run in runs) else ""
    said = " ".join(part for part in (lead(runs), which, intro) if part)
    return render(title, headline(runs), said, facts(runs), sections(runs))


def render(
    title: str,
    headline: str,
    intro: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[Mapping[str, Any]],
) -> str:
    """A page as text.

    Args:
        title: of the page.
        headline: the result in words.
        intro: a sentence or two under the headline, or none.
        facts: figures under it: name and value.
        sections: each with ``title`` and ``note``, and either ``charts`` (each with ``id``,
            ``spec``, a ``title`` where there are several, and maybe ``table``, the same as columns
            and rows), or a table (``columns`` and ``rows``), or ``texts`` (each a name and a text).
            A cell is text, or text and a class. Sections that follow each other with the same
            ``part`` stand under its heading.
    """
    library = _library()
    draw = _template("draw.js")
    style = _template("style.css")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            headline=headline,
            intro=intro,
            facts=facts,
            sections=sections,
            specs={
                chart["id"]: packed(chart["spec"])
                for section in sections
                for chart in section.get("charts", ())
            },
            library=library,
            draw=draw,
            style=style,
            hashes=[_sha256(library), _sha256(draw)],
            style_hash=_sha256(style),
        )
    )


def write_figures(folder: Path, runs: Sequence[RunView]) -> list[Path]:
    """Each chart of the page as a PNG file, drawn from the same specification; returns the
    paths."""
    import vl_convert

    paths = []
    with writing("--figures", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for chart in (chart for section in sections(runs) for chart in section.get("charts", ())):
            spec = for_file(chart["spec"])
            paths.append(folder / f"{chart['id']}.png")
            paths[-1].write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    return paths


def for_file(spec: Spec) -> Spec:
    """A chart as it is drawn into a file: dark on white, with legends that fit its width."""
    columns = legend_columns(spec, FILE_WIDTH)
    config = {
        "view": {"stroke": "transparent"},
        "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
        "legend": {"orient": "bottom", "titleFontWeight": "normal", "columns": columns},
    }
    return {**spec, "width": FILE_WIDTH, "background": "white", "config": config}


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``vegaEmbed``; no network, no
    browser."""
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
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )

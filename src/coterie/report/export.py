"""One chart of a run's page as a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coterie.config.problems import Problem
from coterie.config.wording import nearest
from coterie.errors import ConfigError
from coterie.report.page import for_file
from coterie.report.sections import sections
from coterie.report.view import RunView

KINDS = ("png", "svg", "pdf")


def chart_names(runs: Sequence[RunView]) -> list[str]:
    """The charts that the page of some runs has.

    Example:
        >>> import numpy as np
        >>> chart_names([RunView("FedAvg", [{"round": 0, "accuracy": 0.5}], np.zeros(2, int), ("a", "b"))])
        ['accuracy']
    """
    return list(_charts(runs))


def write_chart(path: Path, runs: Sequence[RunView], name: str) -> Path:
    """Draw one chart of the page of some runs, as the ending of the file says: PNG, SVG or PDF.

    Args:
        path: the file; its folder is made.
        runs: what the page is of.
        name: one of `chart_names`; ``mix`` is ``mix-0``, that of the first run.

    Raises:
        ConfigError: for another ending, or a chart that the page has not.
    """
    kind = path.suffix.removeprefix(".").lower()
    charts = _charts(runs)
    if kind not in KINDS:
        _refuse(
            "--out",
            "unknown kind of file",
            path.name,
            f"a name that ends in {', '.join('.' + k for k in KINDS)}",
        )
    found = name if name in charts else f"{name}-0"
    if found not in charts:
        known = list(charts)
        _refuse(
            "--chart",
            "not on the page of the run",
            name,
            f"one of {', '.join(known) or 'none'}",
            nearest(name, known),
        )
    data = _draw(kind)(for_file(charts[found]))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        _refuse(
            "--out", f"cannot be written ({error.strerror})", str(path), "a file that can be made"
        )
    return path


def _charts(runs: Sequence[RunView]) -> dict[str, Any]:
    return {
        chart["id"]: chart["spec"]
        for section in sections(runs)
        for chart in section.get("charts", ())
    }


def _draw(kind: str) -> Callable[[Any], bytes]:
    import vl_convert

    if kind == "svg":
        return lambda spec: str(vl_convert.vegalite_to_svg(spec)).encode()
    if kind == "pdf":
        return lambda spec: bytes(vl_convert.vegalite_to_pdf(spec))
    return lambda spec: bytes(vl_convert.vegalite_to_png(spec, scale=2))


def _refuse(path: str, what: str, got: Any, expected: str, hint: str | None = None) -> None:
    raise ConfigError(Problem(path, what, got, expected, hint).line())

"""A run in a notebook: its result as HTML, and a table that grows while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError
from coterie.headline import ACCURACY, Headline
from coterie.terminal import duration, sizes

if TYPE_CHECKING:
    from coterie.runs.loop import RoundResult

_SHOWN = 10  # rounds of a table, the newest ones
_WIDTH = 320  # pixels of the curve
_HEIGHT = 60
_CELL = 'style="text-align:left;padding:2px 12px 2px 0"'


def result_html(
    rows: Sequence[Mapping[str, Any]], headline: Headline, clients: int, folder: object = None
) -> str:
    """The result of a run as a piece of HTML: its headline, the curve of it, and the last rounds.

    Args:
        rows: of the rounds.
        headline: of the run's task.
        clients: number of clients.
        folder: of the run, ``None``: it is in memory.

    Example:
        >>> page = result_html([{"round": 0, "accuracy": 0.5, "sizes": [3, 2]}], ACCURACY, 5)
        >>> "50.0 %" in page, "3 + 2" in page
        (True, True)
    """
    values = [row.get(headline.name) for row in rows]
    known = [value for value in values if value is not None]
    last = headline.text(known[-1] if known else None)
    facts = {
        headline.name: last,
        "rounds": str(len(rows)),
        "clients": str(clients),
        "groups": sizes(rows[-1]["sizes"]) if rows else "-",
    }
    if folder is not None:
        facts["folder"] = str(folder)
    lines = "".join(
        f"<tr><th {_CELL}>{escape(name)}</th><td {_CELL}>{escape(text)}</td></tr>"
        for name, text in facts.items()
    )
    return f"<table>{lines}</table>{_curve(known)}{rounds_html(rows, headline)}"


def rounds_html(rows: Sequence[Mapping[str, Any]], headline: Headline) -> str:
    """The newest rounds as an HTML table, a line each.

    Args:
        rows: of the rounds.
        headline: of the run's task.
    """
    titles = ("round", headline.name, "training loss", "groups", "time")
    head = "".join(f"<th {_CELL}>{escape(title)}</th>" for title in titles)
    body = "".join(_round_line(row, headline) for row in rows[-_SHOWN:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _round_line(row: Mapping[str, Any], headline: Headline) -> str:
    loss = row.get("loss")
    seconds = row.get("seconds", {}).get("total")
    cells = (
        str(row["round"]),
        headline.text(row.get(headline.name)),
        "-" if loss is None else f"{loss:.4g}",
        sizes(row["sizes"]),
        "-" if seconds is None else duration(seconds),
    )
    return "<tr>" + "".join(f"<td {_CELL}>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _curve(values: Sequence[float]) -> str:
    """The headline over the evaluated rounds as a line, nothing for fewer than two of them."""
    if len(values) < 2:
        return ""
    low = min(values)
    spread = (max(values) - low) or 1.0
    step = _WIDTH / (len(values) - 1)
    points = " ".join(
        f"{at * step:.1f},{_HEIGHT - (value - low) / spread * _HEIGHT:.1f}"
        for at, value in enumerate(values)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT + 4}" viewBox="0 -2 {_WIDTH} {_HEIGHT + 4}" '
        f'role="img" aria-label="curve of {len(values)} evaluated rounds">'
        f'<polyline points="{points}" fill="none" stroke="#2f74c0" stroke-width="2"/></svg>'
    )


class LiveTable:
    """Shows a run in a notebook while it goes on: give it to ``coterie.run`` as ``on_round``.

    Args:
        headline: of the run's task; default that of classification.

    Raises:
        ConfigError: outside of IPython, at the first round.

    Example:
        >>> table = LiveTable()
        >>> table.html()
        ''
    """

    def __init__(self, headline: Headline = ACCURACY) -> None:
        self.headline = headline
        self.rows: list[Mapping[str, Any]] = []
        self._shown: Any = None

    def __call__(self, done: RoundResult) -> None:
        self.rows.append(done.row)
        display, html = _ipython()
        if self._shown is None:
            self._shown = display(html(self.html()), display_id=True)
        else:
            self._shown.update(html(self.html()))

    def html(self) -> str:
        """The table as it is now; empty before the first round."""
        if not self.rows:
            return ""
        known = [row.get(self.headline.name) for row in self.rows]
        return _curve([value for value in known if value is not None]) + rounds_html(
            self.rows, self.headline
        )


def _ipython() -> tuple[Any, Any]:
    """What shows HTML in a notebook."""
    try:
        from IPython.display import HTML, display
    except ImportError:
        raise ConfigError(
            "on_round: a live table is shown by IPython, got none; expected a notebook, or "
            "pip install ipython"
        ) from None
    return display, HTML

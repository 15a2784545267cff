"""A run in a notebook: its result as HTML, and a table that grows while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError
from coterie.headline import ACCURACY, Headline
from coterie.runs.published import published_rows
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
        folder: the folder of the run; ``None``: the run is in memory.
    """
    rows = published_rows(rows, headline)
    values = _values(rows, headline)
    facts = {
        headline.name: headline.text(values[-1] if values else None),
        "rounds": str(len(rows)),
        "clients": str(clients),
        "groups": sizes(rows[-1]["sizes"]) if rows else "-",
    }
    if folder is not None:
        facts["folder"] = str(folder)
    lines = "".join(
        f"<tr>{_cells('th', [name])}{_cells('td', [facts[name]])}</tr>" for name in facts
    )
    return f"<table>{lines}</table>{rounds_html(rows, headline)}"


def rounds_html(rows: Sequence[Mapping[str, Any]], headline: Headline) -> str:
    """The curve of the headline, and the newest rounds as an HTML table, a line each."""
    rows = published_rows(rows, headline)
    titles = ("round", headline.name, "training loss", "groups", "time")
    body = "".join(f"<tr>{_cells('td', _figures(row, headline))}</tr>" for row in rows[-_SHOWN:])
    head = f"<thead><tr>{_cells('th', titles)}</tr></thead>"
    return f"{_curve(_values(rows, headline))}<table>{head}<tbody>{body}</tbody></table>"


def _values(rows: Sequence[Mapping[str, Any]], headline: Headline) -> list[float]:
    return [row[headline.name] for row in rows if row.get(headline.name) is not None]


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag} {_CELL}>{escape(text)}</{tag}>" for text in texts)


def _figures(row: Mapping[str, Any], headline: Headline) -> list[str]:
    loss = "-"
    if row.get("loss") is not None:
        loss = f"{row['loss']:.4g}"
    seconds = "-"
    if row.get("seconds"):
        seconds = duration(row["seconds"]["total"])
    value = headline.text(row.get(headline.name))
    return [str(row["round"]), value, loss, sizes(row["sizes"]), seconds]


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
    """A table in a notebook that shows a run in progress: pass it to ``coterie.run`` as
    ``on_round``.

    Args:
        headline: the headline metric of the run's task; default: that of classification.

    Raises:
        ConfigError: outside IPython, in the first round.

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
        try:
            from IPython.display import HTML, display
        except ImportError:
            what = "a live table needs IPython, which is not installed"
            do = "run in a notebook, or pip install ipython"
            raise ConfigError("not-installed", "on_round", what, do=do) from None
        if self._shown is None:
            self._shown = display(HTML(self.html()), display_id=True)
        else:
            self._shown.update(HTML(self.html()))

    def html(self) -> str:
        """The table as it is now; empty before the first round."""
        if not self.rows:
            return ""
        return rounds_html(self.rows, self.headline)
